"""Which names the server answers to, so that no web page reaches it by a name of its own.

A page may point its own host name at 127.0.0.1 (DNS rebinding). To the browser it then talks to
its own server; only the Host header tells that it does not.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server.errors import ApiError, error_response, forbidden

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{0,5})?")


class HostCheck:
    """Lets a request through when its Host is this machine by a name that is allowed.

    bind: the address that the server listens on. If it stands for all of them, any address is
        allowed, for an address cannot be rebound.
    names: more host names; "*" allows every one.

    Stands outermost, so it also refuses WebSockets, which nothing here speaks.
    """

    def __init__(self, app: ASGIApp, *, bind: str = "127.0.0.1", names: Iterable[str] = ()) -> None:
        names = set(names)
        self._app = app
        self._any_name = "*" in names
        self._any_address = not bind or _is_unspecified(bind)
        bound = [bind] if bind else []
        self._allowed = LOOPBACK | {_given(name) for name in (*bound, *names - {"*"})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        error = self._fault(scope) if scope["type"] == "http" else None
        if error is not None:
            await error_response(error, scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _fault(self, scope: Scope) -> ApiError | None:
        hosts = Headers(scope=scope).getlist("host")
        if not hosts or self._any_name:  # HTTP/1.0 needs none, and browsers always send one
            return None
        name = host_name(hosts[0])
        if len(hosts) > 1 or name is None:
            return forbidden("The Host header is malformed.", code="host_not_allowed")
        if name in self._allowed or (self._any_address and _address(name) is not None):
            return None
        return forbidden(
            f"This server does not answer to the host name {name[:100]}; use localhost, or allow"
            " the name when you start the server.",
            code="host_not_allowed",
        )


def host_name(authority: str) -> str | None:
    """The host of "host:port" in one spelling, or None where it is malformed."""
    match = _AUTHORITY.fullmatch(authority.strip())
    if match is None:
        return None
    if match[1]:
        return _address(match[1])
    name = match[2].lower().removesuffix(".")
    return _address(name) or name or None


def _given(name: str) -> str:
    """A name as the user gives it: an IPv6 address may stand without its brackets."""
    known = _address(name) or host_name(name)
    if known is None:
        raise OptionError(
            f"{name!r} is not a host name; give one like mybox.local, without http:// and path."
        )
    return known


def _address(text: str) -> str | None:
    """The address in one spelling, or None where it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_unspecified(bind: str) -> bool:
    address = _address(bind.strip("[]"))
    return address is not None and ipaddress.ip_address(address).is_unspecified
