"""An admission and those who come to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from edgespec.server.admission import Admission, Kind
from edgespec.server.errors import ApiError
from tests.server.asgi import PATIENCE


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Caller:
    """A request that has its turn until it is told to leave."""

    def __init__(self, admission: Admission, client: str, **kind: bool) -> None:
        self.began = asyncio.Event()
        self.leave = asyncio.Event()
        self.end: Callable[[], None] | None = None
        self.task = asyncio.create_task(self._run(admission, client, kind))

    async def _run(self, admission: Admission, client: str, kind: dict[str, bool]) -> None:
        async with admission.turn(Kind(client, **kind)) as self.end:
            self.began.set()
            await self.leave.wait()

    @property
    def runs(self) -> bool:
        return self.began.is_set() and not self.task.done()

    async def done(self) -> None:
        self.leave.set()
        await self.end_of_task()

    async def end_of_task(self) -> None:
        """Raises what it was refused with."""
        async with asyncio.timeout(PATIENCE):
            await self.task


async def settle() -> None:
    """Let everybody do what they can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Room:
    """An admission and who comes to it, by name; "a1" is the first one of the client "a"."""

    def __init__(self, slots: int = 2, queue: int = 16, *, lane: bool = False) -> None:
        self.clock = Clock()
        self.admission = Admission(slots, queue, short_lane=lane, clock=self.clock)
        self.callers: dict[str, Caller] = {}

    async def come(self, *names: str, **kind: bool) -> None:
        for name in names:
            self.callers[name] = Caller(self.admission, name[0], **kind)
        await settle()

    async def leave(self, *names: str) -> None:
        for name in names:
            await self.callers.pop(name).done()
        await settle()

    def __getitem__(self, name: str) -> Caller:
        return self.callers[name]

    @property
    def running(self) -> str:
        return " ".join(name for name, caller in self.callers.items() if caller.runs)

    def is_empty(self) -> bool:
        return self.admission.running == self.admission.waiting == 0


@contextmanager
def refused(after: int | None = None) -> Iterator[list[ApiError]]:
    errors: list[ApiError] = []
    with pytest.raises(ApiError) as caught:
        yield errors
    errors.append(caught.value)
    assert caught.value.status == 503
    if after is not None:
        assert caught.value.headers["retry-after"] == str(after)
