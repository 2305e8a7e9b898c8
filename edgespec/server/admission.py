"""Whose turn it is: few answers at a time, the rest wait, and nobody takes it all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from edgespec.server.errors import ApiError, unavailable

_USUAL_S = 5.0  # an answer, before any was measured
_LONGEST_WAIT_S = 60


@dataclass(eq=False, slots=True)
class _Ticket:
    client: str
    short: bool
    replaceable: bool
    number: int
    called: asyncio.Future[None] = field(default_factory=lambda: asyncio.Future())


class Admission:
    """Lets `slots` answers run at a time, and one more if it is short.

    Among those who wait, the client that has the fewest answers running goes first, then who came
    first. For one event loop.
    """

    def __init__(
        self,
        slots: int,
        queue: int,
        *,
        short_lane: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._queue = queue
        self._lane = int(short_lane)
        self._clock = clock
        self._waiting: list[_Ticket] = []
        self._running: list[_Ticket] = []
        self._usual_s = _USUAL_S
        self._count = 0

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Answers in the making."""
        return len(self._running)

    def check(self) -> None:
        """Raise ApiError when no more requests may wait."""
        if len(self._waiting) >= self._queue:
            turns = len(self._waiting) / self._slots + 1
            seconds = int(min(max(turns * self._usual_s, 1), _LONGEST_WAIT_S))
            raise unavailable(
                f"{len(self._waiting)} requests wait already; try again in {seconds} s.",
                retry_after=seconds,
            )

    @asynccontextmanager
    async def turn(
        self, client: str, *, short: bool = False, replaceable: bool = False
    ) -> AsyncIterator[None]:
        """Wait for one's turn, and have it. Raises ApiError as `check`.

        replaceable: a newer request of the client makes this one pointless while it waits.
        """
        self.check()
        if replaceable:
            self._replace(client)
        self._count += 1
        ticket = _Ticket(client, short, replaceable, self._count)
        self._waiting.append(ticket)
        self._call()
        try:
            await ticket.called
            began = self._clock()
            yield
            self._usual_s += 0.1 * (self._clock() - began - self._usual_s)
        finally:
            for tickets in (self._waiting, self._running):
                if ticket in tickets:
                    tickets.remove(ticket)
            self._call()

    def _replace(self, client: str) -> None:
        for ticket in list(self._waiting):
            if ticket.replaceable and ticket.client == client:
                self._waiting.remove(ticket)
                ticket.called.set_exception(_replaced())

    def _call(self) -> None:
        """Give the free places away."""
        while (ticket := self._next()) is not None:
            self._waiting.remove(ticket)
            self._running.append(ticket)
            if not ticket.called.done():
                ticket.called.set_result(None)

    def _next(self) -> _Ticket | None:
        running = len(self._running)
        if running >= self._slots + self._lane:
            return None
        # The lane beside the others is for short answers alone.
        able = [one for one in self._waiting if one.short or running < self._slots]
        busy = Counter(ticket.client for ticket in self._running)
        return min(
            able, key=lambda one: (not one.short, busy[one.client], one.number), default=None
        )


def _replaced() -> ApiError:
    return unavailable("A newer request of this client took the place of this one.")
