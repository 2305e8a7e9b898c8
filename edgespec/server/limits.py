"""How large a request's body may be, and how long it may take to come."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgespec.server.errors import ApiError, bad_request, error_response

MAX_BODY = 32 * 1024 * 1024
READ_TIMEOUT = 60.0

_LINGER = 1.0  # seconds for which the rest of a refused body is thrown away


class BodyLimit:
    """Refuses bodies over `limit` bytes, announced or not, and those slower than `seconds`.

    The time runs from the first read to the end of the body; how long the answer takes does not
    count.
    """

    def __init__(
        self, app: ASGIApp, *, limit: int = MAX_BODY, seconds: float = READ_TIMEOUT
    ) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, send, self._limit, self._seconds)
        try:
            await body.check_announced()
            await self._app(scope, body.receive, body.send)
        except ApiError as error:
            if error is not body.refusal:
                raise


class _Body:
    """One request on its way in."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, limit: int, seconds: float
    ) -> None:
        self.refusal: ApiError | None = None
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = limit
        self._seconds = seconds
        self._deadline: float | None = None
        self._size = 0
        self._complete = False
        self._answering = False

    async def check_announced(self) -> None:
        """Refuse by the Content-Length alone, before anything is read."""
        announced = Headers(scope=self._scope).getlist("content-length")
        if not announced:
            return
        digits = announced[0].strip()
        if len(set(announced)) > 1 or not (digits.isascii() and digits.isdigit()):
            await self._refuse(bad_request("The Content-Length is malformed."))
        digits = digits.lstrip("0")
        # The length first: Python refuses to convert thousands of digits.
        if len(digits) > 18 or int(digits or "0") > self._limit:
            await self._refuse(self._too_large())

    async def receive(self) -> Message:
        """The next message; the body's are counted and timed."""
        if self._complete:
            return await self._receive()
        message = await self._in_time()
        if message["type"] != "http.request":
            return message
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._size > self._limit:
            await self._refuse(self._too_large())
        return message

    async def send(self, message: Message) -> None:
        """Pass on what the application says, unless it has been answered for already."""
        self._answering = True
        if self.refusal is None:
            await self._send(message)

    async def _in_time(self) -> Message:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            message = f"The request did not arrive within {self._seconds:g} seconds."
            await self._refuse(ApiError(408, message, code="request_timeout"))

    async def _refuse(self, error: ApiError) -> NoReturn:
        """Answer here, then raise: whatever the application makes of it, the answer is right."""
        if not self._answering:
            self.refusal = error
            # What is left of the body would be taken for the next request.
            error.headers["connection"] = "close"
            response = error_response(error, self._scope["path"])
            await response(self._scope, self._receive, self._lingering)
        raise error

    async def _lingering(self, message: Message) -> None:
        """Hold back the end of the answer while the client is still sending.

        Closing at once would reset the connection, and many clients would then not see why.
        """
        if message["type"] != "http.response.body" or self._complete:
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER):
                while (await self._receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _too_large(self) -> ApiError:
        message = f"The body is larger than {self._limit} bytes; send less in one request."
        return ApiError(413, message, code="request_too_large")
