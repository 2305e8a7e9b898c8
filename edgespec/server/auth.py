"""Keys: who may use the server."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server.errors import ApiError, error_response

OPEN = ("/health", "/v1/health")
"""Paths that need no key."""


class Auth:
    """Asks for one of the keys, on every path but /health. Without keys everything is open.

    A key may come as `Authorization: Bearer`, `x-api-key` or `api-key`.
    """

    def __init__(self, app: ASGIApp, *, keys: Iterable[str] = ()) -> None:
        self._app = app
        self._keys = [_checked(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_open(scope):
            await self._app(scope, receive, send)
            return
        given = list(_given(Headers(scope=scope)))
        # All are compared, one after another, so that the time taken does not tell which fits.
        right = sum([hmac.compare_digest(one, key) for one in given for key in self._keys])
        if right:
            await self._app(scope, receive, send)
            return
        await error_response(_refusal(given), scope["path"])(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return not self._keys or scope["method"] == "OPTIONS" or scope["path"] in OPEN


def _given(headers: Headers) -> Iterator[bytes]:
    """Every key that the request brings."""
    for value in headers.getlist("authorization"):
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip().encode("latin-1")
    for name in ("x-api-key", "api-key"):
        for value in headers.getlist(name):
            yield value.strip().encode("latin-1")


def _refusal(given: list[bytes]) -> ApiError:
    problem = "The API key is not one of this server's" if given else "An API key is needed"
    return ApiError(
        401,
        f"{problem}; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def _checked(key: str) -> bytes:
    # Neither is told apart from other keys once it has gone through a header.
    if not key or key != key.strip() or not key.isprintable():
        raise OptionError(
            "An API key is empty, or has blanks around it or control characters; give another one."
        )
    return key.encode()
