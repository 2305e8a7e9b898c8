"""Whose turn it is: few answers at a time, the rest wait, and nobody takes it all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from edgespec.server.errors import ApiError, unavailable

_USUAL_S = 5.0  # an answer, before any was measured
_LONGEST_WAIT_S = 60
_REMEMBERED = 256  # clients


class Kind(NamedTuple):
    """What a request is like.

    short: so quick that it may pass long ones by. replaceable: a newer request of the client makes
    it pointless while it waits.
    """

    client: str
    short: bool = False
    replaceable: bool = False

    def replaces(self, other: Kind) -> bool:
        """Whether it makes the other one pointless."""
        return self.replaceable and other.replaceable and self.client == other.client


@dataclass(eq=False, slots=True)
class _Ticket:
    kind: Kind
    number: int
    called: asyncio.Future[None] = field(default_factory=lambda: asyncio.Future())

    def refuse(self, error: ApiError) -> None:
        if not self.called.done():  # it may have been cancelled, without its task knowing yet
            self.called.set_exception(error)


class Admission:
    """Lets `slots` long answers run at a time; with the short lane one answer more, so that a
    short one finds a place.

    Among those who wait, the client that has the fewest answers running goes first, then the one
    whose last turn is longest ago; of its requests the short ones, and then who came first. For one
    event loop.
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
        self._promised: dict[asyncio.Task[Any], Kind] = {}  # will come for their turn
        self._waiting: list[_Ticket] = []
        self._running: list[_Ticket] = []
        self._usual_s = _USUAL_S
        self._count = 0
        self._last: dict[str, int] = {}  # of a client, the number of its last turn; in this order
        self._turns = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Answers in the making."""
        return len(self._running)

    def check(self, kind: Kind) -> None:
        """Raise ApiError when such a request would have to wait and no more may.

        The last quarter of the queue is for clients of whom nobody waits yet.
        """
        if self._closed:
            raise _closed()
        running, ahead = self._expected()
        if self._has_place(kind, running):
            return
        ahead = [one for one in ahead if not kind.replaces(one)]
        mine = any(one.client == kind.client for one in ahead)
        if len(ahead) >= self._queue - mine * (self._queue // 4):
            turns = len(ahead) / self._slots + 1
            seconds = int(min(max(turns * self._usual_s, 1), _LONGEST_WAIT_S))
            raise unavailable(
                f"{len(ahead)} requests wait already; try again in {seconds} s.",
                retry_after=seconds,
            )

    def promise(self, kind: Kind) -> asyncio.Task[Any]:
        """Check, and count the request of this task from now on. It has one promise, however many
        answers it wants, which ends with its first turn, by `forget`, or when the task ends.
        Raises as `check`."""
        task = asyncio.current_task()
        assert task is not None
        if task not in self._promised:
            self.check(kind)
            self._promised[task] = kind
        return task

    def forget(self, task: asyncio.Task[Any] | None) -> None:
        """A promise is not needed any more, if there was one."""
        if task is not None:
            self._promised.pop(task, None)

    @asynccontextmanager
    async def turn(
        self, kind: Kind, promise: asyncio.Task[Any] | None = None
    ) -> AsyncIterator[Callable[[], None]]:
        """Wait for one's turn, and have it: to the end of the block, or until what it yields is
        called. How many wait is not looked at. Raises ApiError when it waits no more.
        """
        self.forget(promise)
        if self._closed:
            raise _closed()
        self._replace(kind)
        self._count += 1
        ticket = _Ticket(kind, self._count)
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

    def _replace(self, kind: Kind) -> None:
        for ticket in list(self._waiting):
            if kind.replaces(ticket.kind):
                self._waiting.remove(ticket)
                ticket.refuse(_replaced())

    def _call(self) -> None:
        """Give the free places away."""
        while (ticket := self._next()) is not None:
            self._waiting.remove(ticket)
            self._running.append(ticket)
            self._remember(ticket.kind.client)
            if not ticket.called.done():
                ticket.called.set_result(None)

    def _next(self) -> _Ticket | None:
        running = [ticket.kind for ticket in self._running]
        places = {short: self._has_place(Kind("", short), running) for short in (False, True)}
        able = [one for one in self._waiting if places[one.kind.short]]
        busy = Counter(kind.client for kind in running)

        def rank(one: _Ticket) -> tuple[int, int, bool, int]:
            client = one.kind.client
            return busy[client], self._last.get(client, 0), not one.kind.short, one.number

        return min(able, key=rank, default=None)

    def _remember(self, client: str) -> None:
        self._turns += 1
        self._last.pop(client, None)
        self._last[client] = self._turns
        if len(self._last) > _REMEMBERED:
            del self._last[next(iter(self._last))]

    def _expected(self) -> tuple[list[Kind], list[Kind]]:
        """Who will run and who will wait once all have come to whom it was promised."""
        running = [ticket.kind for ticket in self._running]
        waiting = [ticket.kind for ticket in self._waiting]
        for task in [task for task in self._promised if task.done()]:
            del self._promised[task]
        for kind in self._promised.values():
            (running if self._has_place(kind, running) else waiting).append(kind)
        return running, waiting

    def _has_place(self, kind: Kind, running: list[Kind]) -> bool:
        """Whether it could begin beside these. Long ones are counted apart: short ones that take
        turns in all places would leave them none for ever."""
        if len(running) >= self._places:
            return False
        return kind.short or sum(not one.short for one in running) < self._slots


def _replaced() -> ApiError:
    error = unavailable("A newer request of this client took the place of this one.")
    error.headers["x-should-retry"] = "false"  # it would take the place of the newer one
    return error


def _closed() -> ApiError:
    return unavailable("The server is shutting down.", retry_after=5)
