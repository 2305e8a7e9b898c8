"""Runs the application on a port until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from edgespec.errors import OptionError
from edgespec.server.protocol import Protocol

_KEEP_ALIVE_S = 75  # agents come back after longer than uvicorn's 5 s
_GRACE_S = 5  # for answers in the making, once it is told to stop
_LONGEST_HEAD = 64 * 1024


class Server(uvicorn.Server):
    """uvicorn's, which tells when it can be reached."""

    def __init__(self, app: ASGIApp, host: str, port: int, ready: Callable[[str], None]) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready(self._address())

    def _address(self) -> str:
        bound: Any = self.servers[0].sockets[0].getsockname()
        host = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        return f"http://{host}:{bound[1]}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OptionError when that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(
            f"{host}:{port} cannot be listened on: {reason}. Choose another --port or --host."
        ) from None


def serve(app: ASGIApp, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Listen until SIGINT or SIGTERM; answers in the making get a few seconds to end.

    ready: called with the address once it can be reached. Raises OptionError for an address that
    cannot be had.
    """
    with listen(host, port) as bound:
        Server(app, host, port, ready).run(sockets=[bound])
