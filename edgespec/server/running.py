"""Runs the application on a port until it is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from edgespec.errors import OptionError
from edgespec.server.app import Application
from edgespec.server.protocol import Protocol

_KEEP_ALIVE_S = 75  # agents come back after longer than uvicorn's 5 s
_GRACE_S = 5  # for answers in the making, once it is told to stop
_LAST_WORDS_S = 2  # to tell their clients that they were ended
_LONGEST_HEAD = 64 * 1024


class Server(uvicorn.Server):
    """uvicorn's, which tells when it can be reached, and ends answers before it ends."""

    def __init__(
        self, app: Application, host: str, port: int, ready: Callable[[str], None]
    ) -> None:
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
            timeout_graceful_shutdown=_GRACE_S + _LAST_WORDS_S,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        super().__init__(config)
        self._app = app
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready(self._address())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and wait for those there are."""
        self._app.stop(_GRACE_S)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal. uvicorn sends itself every one again in the end; but whoever ends by SIGTERM
        tidies nothing up."""
        if sig == signal.SIGINT:
            super().handle_exit(sig, frame)
        else:
            self.should_exit = True

    def _address(self) -> str:
        bound: Any = self.servers[0].sockets[0].getsockname()
        host = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        return f"http://{host}:{bound[1]}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OptionError when that is not possible."""
    try:
        if not 0 <= port <= 65535:
            raise OSError("there is no such port")
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(
            f"{host}:{port} cannot be listened on: {reason}. Choose another --port or --host."
        ) from None


def serve(app: Application, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Listen until SIGINT or SIGTERM; answers in the making get a few seconds to end.

    ready: called with the address once it can be reached. Raises OptionError for an address that
    cannot be had, and KeyboardInterrupt in the end after SIGINT.
    """
    _log_to_ours()
    with listen(host, port) as bound:
        Server(app, host, port, ready).run(sockets=[bound])


def _log_to_ours() -> None:
    """What uvicorn has to say goes where edgespec's own messages go, not to the terminal."""
    theirs = logging.getLogger("uvicorn")
    theirs.handlers = list(logging.getLogger("edgespec").handlers)
    theirs.propagate = not theirs.handlers
    theirs.setLevel(logging.WARNING)
