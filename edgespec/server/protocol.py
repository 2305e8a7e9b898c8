"""uvicorn's HTTP connection, with a time limit for a request's headers and errors in JSON."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgespec.server.encoding import compact
from edgespec.server.errors import bad_request, openai_body


class Protocol(H11Protocol):
    """For `uvicorn.Config(http=Protocol)`.

    uvicorn itself waits for ever for the rest of a request's headers.
    """

    header_timeout: float = 60.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does so only for sockets it has opened itself; every second packet, so every
        # head's body and every token, would wait 40 ms for the client to confirm the first.
        with suppress(OSError):
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._limit_wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls for something that is not HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = compact(openai_body(bad_request(msg)))
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            self._write(h11.Response(status_code=400, headers=headers, reason=b"Bad Request"))
            self._write(h11.Data(data=body))
            self._write(h11.EndOfMessage())
        self.transport.close()

    def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self.transport.write(self.conn.send(event) or b"")

    def _limit_wait(self) -> None:
        if not self._waits_for_client() or self.transport.is_closing():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.header_timeout, self.transport.close)

    def _waits_for_client(self) -> bool:
        """Whether headers are incomplete, or the rest of a body that nobody reads is."""
        theirs, ours = self.conn.their_state, self.conn.our_state
        return theirs is h11.IDLE or (theirs is h11.SEND_BODY and ours is h11.DONE)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
