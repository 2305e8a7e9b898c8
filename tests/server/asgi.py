"""Requests to an ASGI application by hand: what the client sends, and what it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = dict[str, str] | Sequence[tuple[str, str]]

PATIENCE = 10.0  # seconds after which a test fails instead of hanging


def scope(method: str = "POST", path: str = "/v1/chat/completions", headers: Headers = ()) -> Scope:
    pairs = headers.items() if isinstance(headers, dict) else headers
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
    }


class Client:
    """The other end: says its `chunks` of a body, then nothing until it hangs up."""

    def __init__(self, *chunks: bytes, ended: bool = True) -> None:
        self.sent: list[Message] = []
        self.read = 0
        self.arrived = asyncio.Event()  # something was sent to the client
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        for number, chunk in enumerate(chunks, 1):
            more = number < len(chunks) or not ended
            self.say({"type": "http.request", "body": chunk, "more_body": more})

    def say(self, message: Message) -> None:
        self._messages.put_nowait(message)

    def hang_up(self) -> None:
        self.say({"type": "http.disconnect"})

    async def receive(self) -> Message:
        message = await self._messages.get()
        self.read += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.arrived.set()

    @property
    def status(self) -> int:
        status = self.sent[0]["status"]
        assert isinstance(status, int)
        return status

    @property
    def headers(self) -> dict[str, str]:
        pairs = self.sent[0]["headers"]
        return {name.decode().lower(): value.decode("latin-1") for name, value in pairs}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def complete(self) -> bool:
        last = self.sent[-1]
        return last["type"] == "http.response.body" and not last.get("more_body", False)


async def ask(
    app: ASGIApp,
    method: str = "GET",
    path: str = "/v1/models",
    headers: Headers = (),
    *chunks: bytes,
) -> Client:
    """One whole request."""
    client = Client(*(chunks or (b"",)))
    async with asyncio.timeout(PATIENCE):
        await app(scope(method, path, headers), client.receive, client.send)
    return client


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """The application behind the guards: reads everything, says how many bytes it was."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello %d" % size, "more_body": False})


def request(*chunks: bytes, headers: Headers = ()) -> Request:
    return Request(scope(headers=headers), Client(*chunks).receive)
