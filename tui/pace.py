"""How often the screen is painted while an answer comes."""

from __future__ import annotations

import time
from collections.abc import Callable

_SHORTEST_S, _LONGEST_S = 0.1, 0.5
_SHARE = 0.2  # of a core, at most; the engine needs the cores more
_LATELY = 0.3


class Pace:
    """Ten times a second, and less often where a paint takes the processor for long.

    clock: seconds of processor time that the painting thread has used.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._last = clock()
        self._cost = 0.0

    def wait_s(self) -> float:
        """Seconds until the next paint; to be asked once for every paint."""
        now = self._clock()
        self._cost += _LATELY * (now - self._last - self._cost)
        self._last = now
        return min(max(self._cost / _SHARE, _SHORTEST_S), _LONGEST_S)
