"""The whole application on the fake engine, and a client in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp

from edgespec.server.app import create_app
from edgespec.server.settings import Settings
from tests.fake_engine import Loaded
from tests.server.asgi import PATIENCE

SETTINGS: dict[str, Any] = {"model": "fake", "max_tokens": 8}


@asynccontextmanager
async def inside(
    loaded: Loaded | None = None, *, card: Any = None, embedder: Any = "none", **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with these settings. A failure of the server is a 500 to it."""
    loaded = loaded or Loaded(max_sequences=5)
    with loaded.engine:
        app = create_app(loaded.engine, Settings(**{**SETTINGS, **settings}), card, embedder)
        async with talking_to(app) as client:
            yield client


@asynccontextmanager
async def talking_to(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    """A client of this application."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=PATIENCE
    ) as client:
        yield client
