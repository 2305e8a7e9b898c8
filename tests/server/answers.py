"""A backend on the fake engine, and what becomes of its answers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from edgespec.server.backend import Answer, Backend
from edgespec.server.card import Card
from edgespec.server.settings import Settings
from edgespec.types import Chunk
from tests.fake_engine import WARM, Loaded
from tests.server.asgi import PATIENCE

ASKED = {"max_tokens": 12, **WARM}


def backend_of(loaded: Loaded, **settings: Any) -> Backend:
    chosen = {"model": "fake", "parallel": 1, "short_lane": False, **settings}
    return Backend(loaded.engine, Settings(**chosen), Card(), "none")


async def prepared(backend: Backend, prompt: str = "abc", **options: Any) -> Answer:
    return await backend.prepare(prompt, {**ASKED, **options}, client="a")


async def all_of(answer: Answer) -> list[Chunk]:
    async with asyncio.timeout(PATIENCE), aclosing(answer.chunks()) as chunks:
        return [chunk async for chunk in chunks]


async def text_of(answer: Answer) -> str:
    return "".join([chunk.text for chunk in await all_of(answer)])


async def until_running(backend: Backend, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while backend.admission.running != count:
            await asyncio.sleep(0.001)


def is_free(loaded: Loaded) -> bool:
    """Whether the engine does nothing; it must not be held in a pass."""
    return not loaded.engine.between(lambda: loaded.engine._scheduler.busy).result(PATIENCE)


def holds_nothing(backend: Backend) -> bool:
    return not backend.answers and backend.admission.running == backend.admission.waiting == 0


def counted(backend: Backend) -> dict[str, float]:
    """How many answers were counted, by how they ended."""
    found = {}
    for line in backend.metrics.text().decode().splitlines():
        name, _, rest = line.partition('edgespec_answers_total{finish_reason="')
        if not name and rest:
            reason, _, value = rest.partition('"} ')
            found[reason] = float(value)
    return found
