"""Which web pages may use the server, and what a browser must be told for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server.errors import error_response, forbidden
from edgespec.server.hosts import LOOPBACK, host_name

DEFAULT_ORIGINS = ("vscode-webview://*", "app://obsidian.md")

_METHODS = "GET, HEAD, POST, OPTIONS"
_MAX_AGE = "7200"  # seconds; no browser keeps an answer for longer
_HARMLESS = ("GET", "HEAD", "OPTIONS")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://(?:\*|[^\s/*]+?(?::\*)?)")

_Pairs = list[tuple[bytes, bytes]]


class Cors:
    """Cross-origin requests: from pages on this machine, some editors, and what the user allows.

    origins: more of them, such as "https://chat.example", "tauri://*", "http://box:*"; "*" allows
        every one.

    No cookies are involved: what a page may do, it may do without credentials. A page that is
    not allowed can still cause a request, so one that changes something is refused here.
    """

    def __init__(self, app: ASGIApp, *, origins: Iterable[str] = ()) -> None:
        self._app = app
        patterns = [_checked(origin) for origin in (*DEFAULT_ORIGINS, *origins)]
        self._exact = {pattern for pattern in patterns if not pattern.endswith("*")}
        self._prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        origins = Headers(scope=scope).getlist("origin")
        foreign = next((origin for origin in origins if not self._allows(origin)), None)
        if len(origins) > 1:
            foreign = ", ".join(origins)
        app = self._app
        if foreign is not None and _needs_permission(scope):
            app = _refusal(foreign, scope)
        elif scope["method"] == "OPTIONS":
            app = _options(scope)
        granted = origins[0] if origins and foreign is None else None
        await app(scope, receive, _announcing(granted, send))

    def _allows(self, origin: str) -> bool:
        origin = origin.lower()
        return origin in self._exact or origin.startswith(self._prefixes) or _is_loopback(origin)


def _announcing(granted: str | None, send: Send) -> Send:
    """A `send` that tells the browser whether the page may read the answer."""
    headers: _Pairs = [(b"vary", b"Origin")]
    if granted is not None:
        headers.append((b"access-control-allow-origin", granted.encode("latin-1")))
        headers.append((b"access-control-expose-headers", b"*"))

    async def announce(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return announce


def _options(scope: Scope) -> Response:
    """The answer to OPTIONS. It needs no key: browsers send none when they ask beforehand."""
    asked = Headers(scope=scope)
    response = Response(status_code=204, headers={"allow": _METHODS})
    if not _is_preflight(asked):
        return response
    response.headers["access-control-allow-methods"] = _METHODS
    response.headers["access-control-max-age"] = _MAX_AGE
    # Named one by one: "*" does not stand for Authorization, and SDKs send many of their own.
    names = ",".join(asked.getlist("access-control-request-headers")).split(",")
    names = [name.strip() for name in names if _TOKEN.fullmatch(name.strip())]
    if names:
        response.headers["access-control-allow-headers"] = ", ".join(names)
    if asked.get("access-control-request-private-network") == "true":
        response.headers["access-control-allow-private-network"] = "true"
    return response


def _refusal(origin: str, scope: Scope) -> Response:
    message = (
        f"Pages from {origin[:100]} may not use this server; allow the origin when you start it."
    )
    return error_response(forbidden(message, code="origin_not_allowed"), scope["path"])


def _needs_permission(scope: Scope) -> bool:
    return scope["method"] not in _HARMLESS or (
        scope["method"] == "OPTIONS" and _is_preflight(Headers(scope=scope))
    )


def _is_preflight(headers: Headers) -> bool:
    return "origin" in headers and "access-control-request-method" in headers


def _is_loopback(origin: str) -> bool:
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and host_name(authority) in LOOPBACK


def _checked(origin: str) -> str:
    # An origin ends without a slash, but is often copied with one.
    pattern = origin.strip().lower()
    pattern = pattern if pattern.endswith("://") else pattern.removesuffix("/")
    if not _ORIGIN.fullmatch(pattern):
        raise OptionError(
            f"{origin!r} is not an origin; give scheme://host or scheme://host:port, with * for"
            " the whole host or the port, or * alone."
        )
    return pattern
