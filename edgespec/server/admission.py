"""Whose turn it is: few answers at a time, the rest wait, and nobody takes it all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

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

    def refuse(self, error: ApiError) -> None:
        if not self.called.done():  # it may have been cancelled, without its task knowing yet
            self.called.set_exception(error)


class Admission:
    """Lets `slots` long answers run at a time; with the short lane one answer more, so that a
    short one finds a place.

    Among those who wait, the client that has the fewest answers running goes first, of its
    requests the short ones, and then who came first. For one event loop.
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
        self._places = slots + short_lane
        self._clock = clock
        self._waiting: list[_Ticket] = []
        self._running: list[_Ticket] = []
        self._usual_s = _USUAL_S
        self._count = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Answers in the making."""
        return len(self._running)

    def check(self, client: str, *, short: bool = False, replaceable: bool = False) -> None:
        """Raise ApiError when such a request would have to wait and no more may.

        The last quarter of the queue is for clients of whom nobody waits yet.
        """
        if self._closed:
            raise _closed()
        if self._has_place(short):
            return
        ahead = [one for one in self._waiting if not (replaceable and _replaces(client, one))]
        mine = any(one.client == client for one in ahead)
        if len(ahead) >= self._queue - mine * (self._queue // 4):
            turns = len(ahead) / self._slots + 1
            seconds = int(min(max(turns * self._usual_s, 1), _LONGEST_WAIT_S))
            raise unavailable(
                f"{len(ahead)} requests wait already; try again in {seconds} s.",
                retry_after=seconds,
            )

    @asynccontextmanager
    async def turn(
        self, client: str, *, short: bool = False, replaceable: bool = False
    ) -> AsyncIterator[Callable[[], None]]:
        """Wait for one's turn, and have it: to the end of the block, or until what it yields is
        called. How many wait is not looked at, see `check`.

        replaceable: a newer request of the client makes this one pointless while it waits.
        Raises ApiError when it waits no more.
        """
        if self._closed:
            raise _closed()
        if replaceable:
            self._replace(client)
        self._count += 1
        ticket = _Ticket(client, short, replaceable, self._count)
        self._waiting.append(ticket)
        self._call()
        try:
            await ticket.called
            end = partial(self._end, ticket, self._clock())
            yield end
            end()
        finally:
            self._leave(ticket)

    def close(self) -> None:
        """No turns any more; answers in the making go on."""
        self._closed = True
        for ticket in self._waiting:
            ticket.refuse(_closed())
        self._waiting.clear()

    def _end(self, ticket: _Ticket, began: float) -> None:
        """An answer is complete."""
        if ticket in self._running:
            self._usual_s += 0.1 * (self._clock() - began - self._usual_s)
            self._leave(ticket)

    def _leave(self, ticket: _Ticket) -> None:
        for tickets in (self._waiting, self._running):
            if ticket in tickets:
                tickets.remove(ticket)
        self._call()

    def _replace(self, client: str) -> None:
        for ticket in list(self._waiting):
            if _replaces(client, ticket):
                self._waiting.remove(ticket)
                ticket.refuse(_replaced())

    def _call(self) -> None:
        """Give the free places away."""
        while (ticket := self._next()) is not None:
            self._waiting.remove(ticket)
            self._running.append(ticket)
            if not ticket.called.done():
                ticket.called.set_result(None)

    def _next(self) -> _Ticket | None:
        places = {short: self._has_place(short) for short in (False, True)}
        able = [one for one in self._waiting if places[one.short]]
        busy = Counter(ticket.client for ticket in self._running)
        return min(
            able, key=lambda one: (busy[one.client], not one.short, one.number), default=None
        )

    def _has_place(self, short: bool) -> bool:
        """Whether an answer could begin now. Long ones are counted apart: short ones that take
        turns in all places would leave them none for ever."""
        if len(self._running) >= self._places:
            return False
        return short or sum(not one.short for one in self._running) < self._slots


def _replaces(client: str, ticket: _Ticket) -> bool:
    """Whether a replaceable request of the client takes the place of this one."""
    return ticket.replaceable and ticket.client == client


def _replaced() -> ApiError:
    error = unavailable("A newer request of this client took the place of this one.")
    error.headers["x-should-retry"] = "false"  # it would take the place of the newer one
    return error


def _closed() -> ApiError:
    return unavailable("The server is shutting down.", retry_after=5)
