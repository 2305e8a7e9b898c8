"""The guards around the application, in the order that makes each of them safe."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp

from edgespec.server.auth import Auth
from edgespec.server.cors import Cors
from edgespec.server.hosts import HostCheck
from edgespec.server.limits import MAX_BODY, READ_TIMEOUT, BodyLimit

__all__ = ["Auth", "BodyLimit", "Cors", "HostCheck", "secured"]


def secured(
    app: ASGIApp,
    *,
    bind: str = "127.0.0.1",
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    keys: Iterable[str] = (),
    max_body: int = MAX_BODY,
    read_timeout: float = READ_TIMEOUT,
) -> ASGIApp:
    """The application behind its guards.

    Wrap the whole of it, not its routes: then browsers can read its 500s, too.
    """
    # Keys are asked for last, so that a browser can read the refusal.
    guarded: ASGIApp = Auth(app, keys=keys)
    guarded = BodyLimit(guarded, limit=max_body, seconds=read_timeout)
    guarded = Cors(guarded, origins=origins)
    return HostCheck(guarded, bind=bind, names=hosts)
