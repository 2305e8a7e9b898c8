"""The server's process: where it listens, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server import running
from edgespec.server.app import create_app
from edgespec.server.running import Server, listen, serve
from edgespec.server.settings import Settings
from edgespec.server.sse import EventStream
from tests.fake_engine import Loaded
from tests.server.asgi import PATIENCE
from tests.server.live import Connection, head
from tests.server.whole import CHAT, chat, next_event, whole

LONG = {"parallel": 1, "short_lane": False}


# The end.


@pytest.mark.parametrize(
    ("path", "end"),
    [
        (CHAT, b'"code":"unavailable"'),
        ("/v1/completions", b'"code":"unavailable"'),
        ("/v1/messages", b"event: error"),
        ("/v1/responses", b"event: response.failed"),
        ("/api/chat", b'{"error":"The server is shutting down."}\n'),
    ],
)
def test_a_stream_that_takes_too_long_is_ended_in_words(
    monkeypatch: pytest.MonkeyPatch, path: str, end: bytes
) -> None:
    monkeypatch.setattr(running, "_GRACE_S", 0.1)
    prompt = {"input": "abc"} if "responses" in path else {**chat(), "prompt": "abc"}
    with whole(ollama=True) as server, ExitStack() as stack:
        server.model.hold()
        body = {**prompt, "max_tokens": None, "stream": True}
        connection = stack.enter_context(server.open(path, body))
        server.model.let(3)
        server.model.wait(4)
        server.stop()
        told = connection.rest()
        assert told.startswith(b"HTTP/1.1 200 OK")
        assert end in told
        assert told.endswith(b"\r\n0\r\n\r\n")  # and not cut in the middle
        assert b"[DONE]" not in told
        server.thread.join(PATIENCE)
        assert not server.thread.is_alive()


def test_who_waits_is_refused_at_once_and_a_whole_answer_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_GRACE_S", 0.3)
    with whole(Loaded(max_sequences=1), **LONG) as server, ExitStack() as stack:
        server.model.hold()
        first = stack.enter_context(server.open(CHAT, chat()))
        server.model.wait()
        waiting = stack.enter_context(server.open(CHAT, chat()))
        stream = stack.enter_context(server.open(CHAT, chat(stream=True)))
        server.until(lambda: server.gauge("requests_waiting") == 2)
        server.stop()
        for connection in (waiting, first):
            answer = connection.answer()
            assert answer.status == 503
            assert answer.headers["retry-after"]
            assert json.loads(answer.body)["error"]["message"] == "The server is shutting down."
            assert connection.rest() == b""
        assert next_event(stream)["choices"][0]["delta"]["role"] == "assistant"
        assert next_event(stream)["error"]["code"] == "unavailable"


def test_answers_that_end_in_time_are_whole() -> None:
    with whole() as server, ExitStack() as stack:
        whole_text = server.post(CHAT, chat()).json()["choices"][0]["message"]["content"]
        server.model.hold()
        stream = stack.enter_context(server.open(CHAT, chat(stream=True)))
        other = stack.enter_context(server.open(CHAT, chat()))
        server.until(lambda: server.gauge("requests_running") == 2)
        idle = stack.enter_context(Connection(server.port))
        assert idle.ask("GET", "/health").status == 200
        server.stop()
        assert idle.rest() == b""  # it has begun to end
        server.model.release()
        assert b'"finish_reason":"length"' in stream.until(b"data: [DONE]\n\n")
        answer = json.loads(other.answer().body)
        assert answer["choices"][0]["message"]["content"] == whole_text
        server.thread.join(PATIENCE)
        assert not server.thread.is_alive()
        with pytest.raises(OSError, match="refused"):
            Connection(server.port)


async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
    """An application whose streams do not end by themselves."""

    async def events() -> AsyncIterator[bytes]:
        yield b": here\n\n"
        await asyncio.Event().wait()

    await EventStream(events())(scope, receive, send)


class Deaf:
    """As an Application, to a server."""

    def stop(self, grace: float) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await deaf(scope, receive, send)


DEAF: Any = Deaf()


@contextmanager
def served(app: Any, host: str) -> Iterator[tuple[str, Server, threading.Thread]]:
    """The address at which it can be reached."""
    addresses: queue.Queue[str] = queue.Queue()
    bound = listen(host, 0)
    server = Server(app, host, 0, addresses.put)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield addresses.get(timeout=PATIENCE), server, thread
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_stream_that_does_not_end_does_not_keep_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_GRACE_S", 0.1)
    monkeypatch.setattr(running, "_LAST_WORDS_S", 0.1)
    with served(DEAF, "127.0.0.1") as (address, server, thread), ExitStack() as stack:
        connection = stack.enter_context(Connection(int(address.rpartition(":")[2])))
        connection.send(head("GET", "/"))
        connection.until(b": here\n\n")
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
        connection.rest()


# Signals need a process of their own.

PROGRAM = """
import signal
from edgespec.server import running
from edgespec.server.app import create_app
from edgespec.server.settings import Settings
from tests.fake_engine import Loaded

signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background
running._GRACE_S = 0.1
loaded = Loaded()
loaded.model.hold()
try:
    with loaded.engine:
        app = create_app(loaded.engine, Settings(model="fake"))
        running.serve(app, "127.0.0.1", 0, lambda address: print(address, flush=True))
except KeyboardInterrupt:
    print("interrupted")
print("tidied up")
"""


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("number", "last"),
    [(signal.SIGTERM, "tidied up\n"), (signal.SIGINT, "interrupted\ntidied up\n")],
)
def test_a_signal_ends_it_and_all_is_tidied_up(number: signal.Signals, last: str) -> None:
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert httpx.get(f"{address}/health", timeout=PATIENCE).status_code == 200
    with Connection(int(address.rpartition(":")[2])) as connection:
        body = json.dumps(chat(stream=True)).encode()
        connection.send(head("POST", CHAT, content_length=str(len(body))) + body)
        connection.until(b"assistant")
        process.send_signal(number)
        assert b'"code":"unavailable"' in connection.rest()
    out, err = process.communicate(timeout=3 * PATIENCE)
    assert (out, err, process.returncode) == (last, "", 0)


# Listening.


def test_any_free_port() -> None:
    with listen("127.0.0.1", 0) as one, listen("127.0.0.1", 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", None),
        ("nowhere.invalid", 0),
        ("203.0.113.7", 0),  # an address of nobody
        ("x" * 300, 0),
        ("a..b", 0),
        ("", -1),
        ("127.0.0.1", 65536),
    ],
)
def test_what_cannot_be_listened_on_is_told_in_a_line(host: str, port: int | None) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1] if port is None else port
        with pytest.raises(OptionError) as caught:
            listen(host, port)
        message = str(caught.value)
        assert message.startswith(f"{host}:{port} cannot be listened on: ")
        assert "\n" not in message
        assert message.endswith("Choose another --port or --host.")


def test_serving_on_a_taken_port_fails_before_anything_else() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(OptionError, match="in use"):
        serve(DEAF, "127.0.0.1", taken.getsockname()[1], pytest.fail)


def test_ipv6() -> None:
    try:
        listen("::1", 0).close()
    except OptionError:
        pytest.skip("there is no IPv6 here")
    with Loaded().engine as engine:
        app = create_app(engine, Settings(model="fake", host="::1"))
        with served(app, "::1") as (address, _, _):
            assert address.startswith("http://[::1]:")
            assert httpx.get(f"{address}/v1/models").status_code == 200


def test_small_parts_of_an_answer_are_sent_at_once() -> None:
    with whole() as server, Connection(server.port) as connection:
        assert connection.ask("GET", "/health").status == 200
        (protocol,) = server.connections()
        theirs = protocol.transport.get_extra_info("socket")
        assert theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_connection_is_kept_for_over_a_minute() -> None:
    assert Server(DEAF, "127.0.0.1", 0, print).config.timeout_keep_alive > 65


def test_uvicorn_speaks_in_our_log(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    class Ears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ours, theirs = logging.getLogger("edgespec"), logging.getLogger("uvicorn")
    before = (ours.handlers, theirs.handlers, theirs.propagate, theirs.level)
    ours.handlers = [Ears()]
    try:
        running._log_to_ours()
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        logging.getLogger("uvicorn.error").info("Started")
    finally:
        ours.handlers, theirs.handlers, theirs.propagate, level = before
        theirs.setLevel(level)
    assert heard == ["Invalid HTTP request received."]
    assert not caplog.records
