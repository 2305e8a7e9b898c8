"""The guards together: their order, and that streams pass through them."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from edgespec.server.security import secured
from tests.server.asgi import PATIENCE, Client, ask, hello, scope

KEY = {"authorization": "Bearer key"}
LOCAL = {"host": "localhost:8080"}
PAGE = {**LOCAL, "origin": "http://localhost:3000"}


async def test_what_passes_all_guards_arrives() -> None:
    app = secured(hello, keys=["key"])
    client = await ask(app, "POST", "/v1/models", {**PAGE, **KEY}, b"12345")
    assert client.body == b"hello 5"


async def test_the_host_is_looked_at_first() -> None:
    app = secured(hello, keys=["key"], max_body=1)
    headers = {"host": "evil.example", "origin": "https://evil.example", "content-length": "9"}
    client = await ask(app, "POST", "/v1/models", headers)
    assert client.json["error"]["code"] == "host_not_allowed"
    assert (await ask(app, "OPTIONS", "/v1/models", headers)).status == 403


async def test_the_origin_comes_before_the_body() -> None:
    app = secured(hello, keys=["key"], max_body=1)
    headers = {**LOCAL, "origin": "https://evil.example", "content-length": "9"}
    client = await ask(app, "POST", "/v1/models", headers)
    assert client.json["error"]["code"] == "origin_not_allowed"


async def test_the_size_comes_before_the_key_and_pages_can_read_it() -> None:
    app = secured(hello, keys=["key"], max_body=1)
    client = await ask(app, "POST", "/v1/models", {**PAGE, "content-length": "9"})
    assert client.status == 413
    assert client.headers["access-control-allow-origin"] == "http://localhost:3000"


async def test_pages_can_read_that_the_key_is_wrong() -> None:
    client = await ask(secured(hello, keys=["key"]), "POST", "/v1/models", PAGE)
    assert client.status == 401
    assert client.headers["access-control-allow-origin"] == "http://localhost:3000"


async def test_a_preflight_needs_no_key() -> None:
    headers = {
        **PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, x-stainless-os",
    }
    client = await ask(secured(hello, keys=["key"]), "OPTIONS", "/v1/chat/completions", headers)
    assert client.status == 204
    assert client.headers["access-control-allow-headers"] == "authorization, x-stainless-os"


async def test_every_option_reaches_its_guard() -> None:
    app = secured(
        hello,
        bind="10.0.0.1",
        hosts=["box"],
        origins=["https://chat.example"],
        max_body=3,
        read_timeout=0.05,
    )
    assert (await ask(app, headers={"host": "10.0.0.1:80"})).status == 200
    headers = {"host": "box", "origin": "https://chat.example"}
    assert (await ask(app, "POST", "/", headers, b"123")).status == 200
    assert (await ask(app, "POST", "/", headers, b"12", b"34")).status == 413
    client = Client(b"1", ended=False)
    async with asyncio.timeout(PATIENCE):
        await app(scope("POST", "/", headers), client.receive, client.send)
    assert client.status == 408


async def test_a_stream_passes_piece_by_piece() -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
        for number in range(3):
            piece = b"%d" % number
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    client = await ask(secured(stream), headers=PAGE)
    assert [message.get("body") for message in client.sent[1:]] == [b"0", b"1", b"2", b""]
    assert client.headers["x"] == "y"


async def test_only_http_and_lifespan_reach_the_application() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    client = Client()
    client.say({"type": "websocket.connect"})
    guarded = secured(app, keys=["key"])
    await guarded({"type": "lifespan"}, client.receive, client.send)
    await guarded({"type": "websocket", "headers": []}, client.receive, client.send)
    assert seen == ["lifespan"]
    assert client.sent == [{"type": "websocket.close", "code": 1008}]


async def test_the_applications_failure_is_its_own() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await ask(secured(failing), headers=LOCAL)
