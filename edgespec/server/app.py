"""The application: routes (the table is in routes.py), guards, errors."""

from __future__ import annotations

from functools import cache, partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from edgespec.engine import Engine
from edgespec.errors import EdgespecError
from edgespec.server.backend import Backend
from edgespec.server.card import Card
from edgespec.server.embedding import Embedder
from edgespec.server.errors import ApiError, handle
from edgespec.server.openapi import document
from edgespec.server.routes import endpoints
from edgespec.server.security import secured
from edgespec.server.settings import Settings


class Application:
    """The whole server, to be run by uvicorn on one event loop."""

    def __init__(self, guarded: ASGIApp, backend: Backend) -> None:
        self._guarded = guarded
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    def stop(self, grace: float) -> None:
        """Begin no more answers, and end those in the making after so many seconds. On the event
        loop."""
        self._backend.stop(grace)


def create_app(
    engine: Engine,
    settings: Settings,
    card: Card | None = None,
    embedder: Embedder | str = "this server was started without.",
) -> Application:
    """Put it together. embedder: or why there is none."""
    table = endpoints(like_ollama=settings.ollama)
    routes = [
        Route(path, endpoint.handler, methods=[endpoint.method])
        for endpoint in table
        for path in endpoint.paths
    ]
    kinds = (ApiError, EdgespecError, HTTPException, ClientDisconnect, Exception)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, handle))
    app.router.redirect_slashes = False  # a redirect does not say in words what is wrong
    backend = app.state.backend = Backend(engine, settings, card or Card(), embedder)
    app.state.document = cache(partial(document, table, needs_key=bool(settings.keys)))
    guarded = secured(
        app,
        bind=settings.host,
        hosts=settings.hosts,
        origins=settings.origins,
        keys=settings.keys,
        max_body=settings.max_body,
    )
    return Application(guarded, backend)
