"""A backend on the fake engine, whose passes can be held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from edgespec.server.backend import Backend
from tests.fake_engine import Loaded
from tests.server.answers import backend_of


@pytest.fixture
async def loaded() -> AsyncIterator[Loaded]:
    loaded = Loaded()
    yield loaded
    loaded.model.release()
    await asyncio.to_thread(loaded.engine.close)


@pytest.fixture
def backend(loaded: Loaded) -> Backend:
    return backend_of(loaded)
