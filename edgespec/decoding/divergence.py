"""Where two answers part, and whether the target itself was undecided there (DESIGN section 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.decoding.sampling import LogitRow, Sampler
from edgespec.protocols import Row, TokenModel

_LARGEST_GAP = 16.0
_PRECISION = 1e-4


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """The first index at which they differ or one has ended; None when they are equal."""
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return at
    shorter = min(len(first), len(second))
    return shorter if len(first) != len(second) else None


def least_change(
    logits: LogitRow, sampler: Sampler, history: Sequence[int], own: int, other: int
) -> float:
    """By how much one logit would have to change for `other` to be chosen instead of `own`.

    The logit is raised that is `other`'s, or lowered that is `own`'s, whichever takes less: at
    temperature 0 that is the distance of the two, else of their noisy scores, or to the edge of
    top-p or min-p. inf beyond 16.
    """

    def enough(token: int, change: float) -> bool:
        row = logits.copy()
        row[token] += change
        return sampler.sample(row, history) == other

    rise = _least(lambda change: enough(other, change))
    fall = _least(lambda change: enough(own, -change))
    return min(rise, fall)


def _least(enough: Callable[[float], bool]) -> float:
    if not enough(_LARGEST_GAP):
        return math.inf
    low, high = 0.0, _LARGEST_GAP
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def gap_changes(model: TokenModel, text: Sequence[int], widths: Sequence[int]) -> list[float]:
    """How much the gap of the two best logits changes from passes of one token to wider ones.

    One value per token of `text` and width. Their 99.9th percentile is tau: an answer that
    parts at a smaller gap parted at a near-tie. Uses sequence 0 and leaves it empty.
    """
    reference = _gaps(model, text, 1)
    changes: list[float] = []
    for width in widths:
        changes += np.abs(_gaps(model, text, width) - reference).tolist()
    model.drop(0)
    return changes


def _gaps(model: TokenModel, text: Sequence[int], width: int) -> NDArray[np.float32]:
    model.drop(0)
    gaps = []
    for start in range(0, len(text), width):
        piece = text[start : start + width]
        rows = [Row(0, start + i, token, True) for i, token in enumerate(piece)]
        best = np.sort(np.partition(model.decode(rows), -2, axis=1)[:, -2:], axis=1)
        gaps.append(best[:, 1] - best[:, 0])
    return np.concatenate(gaps)
