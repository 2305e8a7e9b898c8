"""Finds answers that got stuck repeating themselves: they are easy to draft, and worthless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_PERIOD = 32
MIN_PERIODS = 3
MIN_TOKENS = 16
"""Shorter repetitions, such as a ruled line or a row of zeros, are ordinary text."""


def loop_share(tokens: Sequence[int]) -> float:
    """The share of `tokens` in the longest stretch that repeats a piece of up to 32 tokens.

    The piece must be there three times or more; the stretch must be 16 tokens long. 0..1.
    """
    held = np.asarray(tokens, dtype=np.int64)
    longest = 0
    for period in range(1, min(MAX_PERIOD, len(held) // MIN_PERIODS) + 1):
        # A run of r tokens that equal those a period earlier is a stretch of r + period.
        stretch = _longest_run(held[period:] == held[:-period]) + period
        if stretch >= max(MIN_TOKENS, MIN_PERIODS * period):
            longest = max(longest, stretch)
    return longest / len(held) if longest else 0.0


def _longest_run(flags: NDArray[np.bool_]) -> int:
    """Of True."""
    ends = np.concatenate(([-1], np.flatnonzero(~flags), [len(flags)]))
    return int(np.diff(ends).max()) - 1
