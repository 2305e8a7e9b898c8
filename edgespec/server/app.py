"""The application: routes, guards, errors."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp

from edgespec.engine import Engine
from edgespec.errors import EdgespecError
from edgespec.server.api import chat, models
from edgespec.server.backend import Backend
from edgespec.server.card import Card
from edgespec.server.errors import ApiError, handle
from edgespec.server.security import secured
from edgespec.server.settings import Settings

ROUTES = [
    ("GET", ("/health", "/v1/health"), models.health),
    ("GET", ("/v1/models", "/models"), models.listed),
    ("GET", ("/v1/models/{name:path}",), models.one),
    ("GET", ("/props",), models.props),
    ("GET", ("/slots",), models.slots),
    ("GET", ("/metrics",), models.metrics),
    ("POST", ("/v1/chat/completions", "/chat/completions"), chat.chat_completions),
    ("POST", ("/v1/chat/completions/input_tokens",), chat.input_tokens),
]


def create_app(engine: Engine, settings: Settings, card: Card | None = None) -> ASGIApp:
    """The whole server, to be run by uvicorn on one event loop."""
    routes = [
        Route(path, endpoint, methods=[method])
        for method, paths, endpoint in ROUTES
        for path in paths
    ]
    kinds = (ApiError, EdgespecError, HTTPException, ClientDisconnect, Exception)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, handle))
    app.state.backend = Backend(engine, settings, card or Card())
    return secured(
        app,
        bind=settings.host,
        hosts=settings.hosts,
        origins=settings.origins,
        keys=settings.keys,
        max_body=settings.max_body,
    )
