"""Answers that take long: streams of events, and work that ends when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgespec.server.encoding import compact, utf8

DONE = b"data: [DONE]\n\n"
"""The last event of a stream of OpenAI's API."""

T = TypeVar("T")


class ClientGone(ClientDisconnect):
    """The client went away before it had its answer."""


def data(value: object) -> bytes:
    """One event."""
    return b"data: " + compact(value) + b"\n\n"


def event(name: str, value: object) -> bytes:
    """One event that has a name."""
    return b"event: " + name.encode() + b"\n" + data(value)


class EventStream(Response):
    """Sends ready-made events as they come, and a comment whenever none came for a while.

    The iterator is run and closed in one task, whatever ends the stream: its end, the client's
    going away (even before the first event), or cancellation. It runs up to its first wait before
    anything is sent, so a generator's `finally` always counts. What it raises ends the
    connection: errors that the client should read must come as events.

    heartbeat: seconds of silence before the comment. comment: None sends none, as in NDJSON,
    which has no comments.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes | str],
        *,
        heartbeat: float = 10.0,
        comment: bytes | None = b": waiting\n\n",
        media_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # Not Response.__init__: it wants a body, and announces its length.
        self.status_code = 200
        self.background = None
        self.media_type = media_type or self.media_type
        # Proxies must neither keep the events nor collect them.
        kept = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        self.init_headers({**kept, **(headers or {})})
        self._events = events
        self._heartbeat = heartbeat
        self._comment = comment
        self._last = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.Lock()
        opened = asyncio.Event()
        # The first step of every task is taken before this one goes on, even if it is cancelled.
        tasks = (
            asyncio.create_task(self._relay(send, sender, opened)),
            asyncio.create_task(self._keep_alive(send, sender, opened)),
            asyncio.create_task(_disconnect(receive)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _stop(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _relay(self, send: Send, sender: asyncio.Lock, opened: asyncio.Event) -> None:
        try:
            async for one in self._events:
                await opened.wait()
                await self._put(send, sender, one)
            await opened.wait()
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()
        async with sender:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send, sender: asyncio.Lock, opened: asyncio.Event) -> None:
        """Send the headers, and then something before the client or a proxy loses patience."""
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        clock = asyncio.get_running_loop().time
        self._last = clock()
        opened.set()
        while self._comment is not None:
            await asyncio.sleep(max(0.0, self._last + self._heartbeat - clock()))
            if clock() >= self._last + self._heartbeat:
                await self._put(send, sender, self._comment)
        await asyncio.Event().wait()  # until it is cancelled

    async def _put(self, send: Send, sender: asyncio.Lock, one: bytes | str) -> None:
        body = one if isinstance(one, bytes) else utf8(one)
        async with sender:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            self._last = asyncio.get_running_loop().time()


async def unless_disconnected(request: Request, awaitable: Awaitable[T]) -> T:
    """The result, unless the client goes away: then what makes it is cancelled.

    The request's body must have been read. Raises ClientGone.
    """
    work = asyncio.ensure_future(awaitable)
    watch = asyncio.create_task(_disconnect(request.receive))
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        watch.result()
        raise ClientGone
    finally:
        await _stop(work, watch)


async def _disconnect(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel, and wait until all have cleaned up."""
    for task in tasks:
        task.cancel()
    # Shielded: whoever is cancelled twice must not interrupt the cleaning up.
    await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))
