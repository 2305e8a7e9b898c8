"""Bodies that are too large or too slow are refused, and never kept."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edgespec.server.errors import ApiError, bad_request
from edgespec.server.limits import BodyLimit
from tests.server.asgi import PATIENCE, Client, Headers, ask, hello, scope


@pytest.fixture(autouse=True)
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.server.limits._LINGER", 0.05)


async def unreached(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the application was asked")


@pytest.mark.parametrize("announced", ["0", "5", "10", "0010"])
async def test_a_body_within_the_limit_passes(announced: str) -> None:
    headers = {"content-length": announced}
    client = await ask(BodyLimit(hello, limit=10), "POST", "/", headers, b"12345", b"67890")
    assert client.body == b"hello 10"


@pytest.mark.parametrize("announced", ["11", "104857600", "9" * 5000])
async def test_a_body_announced_too_large_is_not_read(announced: str) -> None:
    client = Client()  # sends nothing at all
    headers = {"content-length": announced}
    async with asyncio.timeout(PATIENCE):
        await BodyLimit(unreached, limit=10)(scope(headers=headers), client.receive, client.send)
    assert client.status == 413
    assert client.complete
    assert client.headers["connection"] == "close"
    assert client.json["error"]["code"] == "request_too_large"
    assert client.json["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("announced", ["-1", "+5", "5.0", "0x5", "", "five", "5, 5", "\xb2", "1 0"])
async def test_an_announcement_that_is_no_number_is_a_400(announced: str) -> None:
    client = await ask(BodyLimit(unreached), "POST", "/", {"content-length": announced})
    assert client.status == 400


async def test_two_announcements_must_agree() -> None:
    two: Headers = [("content-length", "1"), ("content-length", "2")]
    assert (await ask(BodyLimit(unreached), "POST", "/", two)).status == 400
    two = [("content-length", "1"), ("content-length", "1")]
    assert (await ask(BodyLimit(hello), "POST", "/", two, b"1")).status == 200


async def swallowing(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that takes any exception for its own."""
    try:
        await hello(scope, receive, send)
    except Exception as error:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"oops"})
        raise RuntimeError("the application's own") from error


async def starlette(scope: Scope, receive: Receive, send: Send) -> None:
    async def endpoint(request: Request) -> Response:
        return PlainTextResponse(f"hello {len(await request.body())}")

    app = Starlette(routes=[Route("/{path:path}", endpoint, methods=["POST"])])
    await app(scope, receive, send)


@pytest.mark.parametrize("app", [hello, starlette])
async def test_a_body_is_counted_while_it_comes(app: object) -> None:
    assert callable(app)
    guarded = BodyLimit(app, limit=10)
    client = await ask(guarded, "POST", "/v1/messages", {}, b"12345", b"67890", b"")
    assert client.body == b"hello 10"
    client = await ask(guarded, "POST", "/v1/messages", {}, b"12345", b"678901", b"234")
    assert client.status == 413
    assert client.complete
    assert client.json["error"]["type"] == "request_too_large"


async def test_the_refusal_is_right_whatever_the_application_makes_of_it() -> None:
    client = Client(b"12345", b"678901")
    with pytest.raises(RuntimeError):
        await BodyLimit(swallowing, limit=10)(scope(), client.receive, client.send)
    assert client.status == 413
    assert client.complete
    assert b"oops" not in client.body


async def test_the_rest_of_a_refused_body_is_thrown_away_for_a_while() -> None:
    client = Client(b"123456", *[b"x" * 10] * 50)
    async with asyncio.timeout(PATIENCE):
        await BodyLimit(hello, limit=5)(scope(), client.receive, client.send)
    assert client.read == 506  # else the connection would be reset before the client reads why
    assert client.status == 413
    endless = Client(b"123456", ended=False)
    async with asyncio.timeout(PATIENCE):
        await BodyLimit(hello, limit=5)(scope(), endless.receive, endless.send)
    assert endless.complete


async def test_a_body_that_does_not_come_is_a_408() -> None:
    client = Client(b"1", ended=False)
    async with asyncio.timeout(PATIENCE):
        await BodyLimit(hello, seconds=0.05)(scope(), client.receive, client.send)
    assert client.status == 408
    assert client.complete
    assert client.json["error"]["code"] == "request_timeout"


async def test_dribbling_does_not_stretch_the_time() -> None:
    client = Client(b"1", ended=False)

    async def dribble() -> None:
        while True:
            await asyncio.sleep(0.02)
            client.say({"type": "http.request", "body": b"1", "more_body": True})

    task = asyncio.create_task(dribble())
    async with asyncio.timeout(PATIENCE):
        await BodyLimit(hello, seconds=0.1)(scope(), client.receive, client.send)
    task.cancel()
    assert client.status == 408


async def test_the_answer_may_take_as_long_as_it_likes() -> None:
    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        await hello(scope, receive, send)
        assert (await receive())["type"] == "http.disconnect"  # a watch, as streams keep it

    client = Client(b"1")
    asyncio.get_running_loop().call_later(0.15, client.hang_up)
    await BodyLimit(patient, seconds=0.05)(scope(), client.receive, client.send)
    assert client.body == b"hello 1"


async def test_a_client_that_hangs_up_is_passed_on() -> None:
    client = Client(b"1", ended=False)
    client.hang_up()
    await BodyLimit(hello)(scope(), client.receive, client.send)
    assert client.body == b"hello 1"


async def test_an_answer_under_way_is_not_answered_again() -> None:
    async def eager(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()

    client = Client(b"123456")
    with pytest.raises(ApiError):
        await BodyLimit(eager, limit=5)(scope(), client.receive, client.send)
    assert [message["type"] for message in client.sent] == ["http.response.start"]


async def test_the_applications_own_errors_pass() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise bad_request("no")

    with pytest.raises(ApiError, match="no"):
        await ask(BodyLimit(failing))


async def test_other_scopes_pass() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    client = Client()
    await BodyLimit(app)({"type": "lifespan"}, client.receive, client.send)
    assert seen == ["lifespan"]
