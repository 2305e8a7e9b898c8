"""The same parts behind real sockets, where clients hang up, dribble and lie."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.server.live import KEY, LIMIT, Connection, Watched, application, head, serving, watched

SOON = 5.0  # seconds; a promise of 1 s would be kept, but not on every busy machine


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(application()) as port:
        yield port


@pytest.fixture
def connection(port: int) -> Iterator[Connection]:
    with Connection(port) as connection:
        yield connection


@pytest.fixture
def seen() -> Watched:
    watched.reset()
    return watched


def test_one_connection_carries_many_requests(connection: Connection) -> None:
    for text in ("a", "é" * 100_000, "c"):
        body = json.dumps({"text": text}, ensure_ascii=False).encode()
        answer = connection.ask("POST", "/echo", body)
        assert answer.status == 200
        assert json.loads(answer.body) == {"text": text}
        assert "server" not in answer.headers


def test_errors_are_json_and_leave_the_connection_usable(connection: Connection) -> None:
    for path, status in (("/nowhere", 404), ("/echo", 405)):
        answer = connection.ask("GET", path)
        assert answer.status == status
        assert json.loads(answer.body)["error"]["message"]
    assert connection.ask("POST", "/echo", b"{").status == 400
    assert connection.ask("POST", "/echo", b"x" * 1000, authorization="").status == 401
    assert connection.ask("POST", "/echo", b"{}", host="evil.example").status == 403
    assert connection.ask("POST", "/echo", b"{}", origin="https://evil.example").status == 403
    assert connection.ask("POST", "/echo", b'{"text": "x"}', origin="null").status == 403
    page = "http://localhost:1"
    assert connection.ask("POST", "/echo", b'{"text": "x"}', origin=page).status == 415
    answer = connection.ask("POST", "/v1/messages", b"{}")
    assert json.loads(answer.body)["type"] == "error"
    assert connection.ask("GET", "/health", authorization="").status == 200


def test_a_preflight_over_the_wire(connection: Connection) -> None:
    answer = connection.ask(
        "OPTIONS",
        "/v1/chat/completions",
        authorization="",
        origin="http://localhost:5173",
        access_control_request_method="POST",
        access_control_request_headers="authorization, x-stainless-os",
    )
    assert answer.status == 204
    assert answer.headers["access-control-allow-headers"] == "authorization, x-stainless-os"


def test_a_request_without_a_host_needs_no_host(port: int) -> None:
    with Connection(port) as connection:
        connection.send(f"GET /health HTTP/1.0\r\nx-api-key: {KEY}\r\n\r\n".encode())
        assert connection.rest().startswith(b"HTTP/1.1 200")


def test_what_is_not_http_is_told_in_json(connection: Connection) -> None:
    connection.send(b"\x16\x03\x01 hello\r\n\r\n")
    raw = connection.rest()
    assert raw.startswith(b"HTTP/1.1 400")
    assert json.loads(raw.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


def test_a_websocket_is_no_way_in(connection: Connection) -> None:
    connection.send(
        head("GET", "/stream", authorization="", connection="upgrade", upgrade="websocket")
    )
    assert connection.answer().status == 401


# Bodies.


def test_100_megabytes_are_refused_before_they_are_sent(connection: Connection) -> None:
    connection.send(head("POST", "/echo", content_length="100000000"))
    answer = connection.answer()
    assert answer.status == 413
    assert json.loads(answer.body)["error"]["code"] == "request_too_large"


def test_who_asks_before_sending_is_not_told_to_go_on(connection: Connection) -> None:
    connection.send(head("POST", "/echo", content_length="100000000", expect="100-continue"))
    assert connection.answer().status == 413


def test_who_sends_all_the_same_can_read_why_it_is_refused(connection: Connection) -> None:
    size = 8 * LIMIT
    connection.send(head("POST", "/echo", content_length=str(size)) + b"x" * size)
    assert connection.answer().status == 413
    assert connection.rest() == b""


def chunk(raw: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(raw), raw)


def test_chunks_are_counted(connection: Connection) -> None:
    start = head("POST", "/echo", transfer_encoding="chunked")
    connection.send(start + chunk(b'{"text":') + chunk(b'"x"}') + chunk(b""))
    assert connection.answer().status == 200
    connection.send(start + chunk(b"x" * LIMIT) + chunk(b"x"))
    assert connection.answer().status == 413
    assert connection.rest() == b""


def test_a_broken_chunk_ends_the_connection(connection: Connection) -> None:
    connection.send(head("POST", "/echo", transfer_encoding="chunked") + b"nonsense\r\n\r\n")
    assert connection.rest().startswith(b"HTTP/1.1 400")


def test_a_body_that_dribbles_is_given_up(connection: Connection, port: int) -> None:
    connection.send(head("POST", "/echo", content_length="1000") + b"{")
    with Connection(port) as other:  # nobody else notices
        assert other.ask("GET", "/health").status == 200
    answer = connection.answer()
    assert answer.status == 408
    assert answer.headers["connection"] == "close"
    assert connection.rest() == b""


def dribbled(connection: Connection, piece: bytes) -> bool:
    """Send pieces until the server has enough; whether it ever has."""
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        try:
            connection.send(piece)
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_headers_that_dribble_are_given_up(connection: Connection) -> None:
    connection.send(b"GET /health HTTP/1.1\r\n")
    assert dribbled(connection, b"x: y\r\n")


def test_headers_of_a_second_request_that_dribble_are_given_up(connection: Connection) -> None:
    connection.send(head("GET", "/health") + b"GET /health HTTP/1.1\r\n")
    assert connection.answer().status == 200
    assert dribbled(connection, b"x: y\r\n")


def test_a_connection_that_says_nothing_is_given_up(connection: Connection) -> None:
    assert connection.rest() == b""


def test_a_body_that_dribbles_after_its_refusal_is_given_up(connection: Connection) -> None:
    connection.send(head("POST", "/echo", authorization="", content_length="100000"))
    assert connection.answer().status == 401
    assert dribbled(connection, b"x")


def test_an_idle_connection_is_kept(connection: Connection) -> None:
    assert connection.ask("GET", "/health").status == 200
    time.sleep(0.5)  # longer than headers may take
    assert connection.ask("GET", "/health").status == 200


# Streams.


def test_a_stream_over_the_wire(connection: Connection) -> None:
    connection.send(head("GET", "/short", connection="close"))
    raw = connection.rest()
    assert b"text/event-stream; charset=utf-8" in raw
    assert chunk(b'data: "\xc3\xa9\\u2028"\n\n') + chunk(b"data: [DONE]\n\n") + chunk(b"") in raw


def test_hanging_up_in_the_middle_of_a_stream_ends_it(port: int, seen: Watched) -> None:
    with Connection(port) as connection:
        connection.send(head("POST", "/stream", content_length="2") + b"{}")
        connection.until(b"data: 2\n\n")
        connection.until(b": waiting\n\n")  # the heartbeat
        assert not seen.ended.is_set()
    assert seen.ended.wait(SOON)


def test_hanging_up_before_the_first_event_ends_it(port: int, seen: Watched) -> None:
    with Connection(port) as connection:
        connection.send(head("GET", "/silent"))
        connection.until(b"\r\n\r\n")  # the headers are there at once
        assert seen.began.wait(SOON)
        assert not seen.ended.is_set()
    assert seen.ended.wait(SOON)


def test_hanging_up_ends_the_work_on_a_whole_answer(port: int, seen: Watched) -> None:
    with Connection(port) as connection:
        connection.send(head("POST", "/work", content_length="2") + b"{}")
        assert seen.began.wait(SOON)
        assert not seen.ended.is_set()
    assert seen.ended.wait(SOON)


def test_a_server_that_stops_ends_its_streams(seen: Watched) -> None:
    with ExitStack() as stack:
        with serving(application()) as port:
            connection = stack.enter_context(Connection(port))
            connection.send(head("GET", "/silent"))
            connection.until(b"\r\n\r\n")
        assert seen.ended.wait(SOON)
