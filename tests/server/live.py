"""A real server in a thread, and raw connections to it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from edgespec.errors import EdgespecError
from edgespec.server.bodies import read
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import ApiError, handle
from edgespec.server.protocol import Protocol
from edgespec.server.security import secured
from edgespec.server.sse import DONE, EventStream, data, unless_disconnected
from tests.server.asgi import PATIENCE

KEY = "secret"
LIMIT = 1024 * 1024


class Impatient(Protocol):
    """Waits for headers as long as tests have patience for."""

    header_timeout = 0.3


class Echo(BaseModel):
    text: str


class Watched:
    """What the application's work tells the test."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()

    def reset(self) -> None:
        self.began.clear()
        self.ended.clear()

    async def events(self, *items: bytes) -> AsyncIterator[bytes]:
        try:
            self.began.set()
            for item in items:
                yield item
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def work(self) -> None:
        async for _ in self.events():
            pass


watched = Watched()


async def echo(request: Request) -> Response:
    return JsonResponse((await read(request, Echo)).model_dump())


async def stream(request: Request) -> Response:
    await request.body()
    return EventStream(watched.events(data(1), data(2)), heartbeat=0.05)


async def silent(request: Request) -> Response:
    return EventStream(watched.events(), heartbeat=60)


async def short(request: Request) -> Response:
    async def events() -> AsyncIterator[bytes]:
        yield data("é\u2028")
        yield DONE

    return EventStream(events())


async def work(request: Request) -> Response:
    await request.body()
    await unless_disconnected(request, watched.work())
    return PlainTextResponse("never")


async def health(request: Request) -> Response:
    return PlainTextResponse("ok")


def application() -> ASGIApp:
    routes = [
        Route("/health", health),
        Route("/v1/messages", echo, methods=["POST"]),
        Route("/echo", echo, methods=["POST"]),
        Route("/stream", stream, methods=["GET", "POST"]),
        Route("/silent", silent),
        Route("/short", short),
        Route("/work", work, methods=["POST"]),
    ]
    kinds = (ApiError, EdgespecError, HTTPException, ClientDisconnect)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, handle))
    return secured(app, keys=[KEY], max_body=LIMIT, read_timeout=0.4)


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    """The port of a server that runs as `edgespec serve` does."""
    config = uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()


class Connection:
    """One connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._read = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def send(self, raw: bytes) -> None:
        self._socket.sendall(raw)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """A whole request with the key and a Host, and the whole answer."""
        self.send(head(method, path, content_length=str(len(body)), **headers) + body)
        return self.answer()

    def until(self, end: bytes) -> bytes:
        """Everything up to and with `end`."""
        while end not in self._read:
            more = self._socket.recv(65536)
            assert more, f"closed after {self._read!r}"
            self._read += more
        found, _, self._read = self._read.partition(end)
        return found + end

    def rest(self) -> bytes:
        """Everything until the server closes."""
        rest, self._read = self._read, b""
        while more := self._socket.recv(65536):
            rest += more
        return rest

    def answer(self) -> Answer:
        """One whole answer that has a Content-Length."""
        answer = Answer(self.until(b"\r\n\r\n"))
        size = int(answer.headers.get("content-length", "0"))
        while len(self._read) < size:
            more = self._socket.recv(65536)
            assert more
            self._read += more
        answer.body, self._read = self._read[:size], self._read[size:]
        return answer


class Answer:
    def __init__(self, raw: bytes) -> None:
        first, *lines = raw.decode("latin-1").strip().split("\r\n")
        self.status = int(first.split()[1])
        split = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in split}
        self.body = b""


def head(method: str, path: str, **headers: str) -> bytes:
    """The head of a request; a header given as "" is left out."""
    every = {"host": "localhost", "authorization": f"Bearer {KEY}", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in every.items() if value]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1")
