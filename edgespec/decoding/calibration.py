"""Measures what passes of a model cost: thoroughly for benchmarks, in a moment before a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from edgespec.decoding.costs import CostCurve, LiveCosts
from edgespec.protocols import Row, TokenModel
from edgespec.types import MAX_DRAFT_TOKENS

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32)
"""Where T(n) is measured: it has steps, the well-known ones at multiples of 4 and at 8 to 9."""

TARGET_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32)
DRAFT_WIDTHS = (1, 2, 4, 8, 32)
_DEPTH, _SHALLOW = 128, 8
# Measured at both depths, to tell what attention costs: wide, for the difference to show.
_COMPARED = 8


class Measurement:
    """Measures the cost curve of a model by turns, so that drift hits all widths alike.

    Iterate over `rounds()`, as long as there is time. Uses sequence 0, which must be empty, and
    leaves it so. `tokens` is what to decode, real text: at least `depth` + the largest width of
    it. Up to the longest draft + 1 all rows want logits, as in verification; beyond that only
    the last one, as in reading a prompt.
    """

    def __init__(
        self,
        model: TokenModel,
        tokens: Sequence[int],
        *,
        depth: int,
        widths: Sequence[int] = WIDTHS,
        clock: Callable[[], float],
    ) -> None:
        self._model = model
        self._widths = [n for n in widths if n <= min(model.max_rows, model.n_ctx)]
        self._depth = max(0, min(depth, model.n_ctx - max(self._widths)))
        if model.rewind_depth < max(self._widths):
            self._depth = 0  # a state that cannot be cut can still be dropped
        needed = self._depth + max(self._widths)
        if len(tokens) < needed:
            raise ValueError(f"{needed} tokens are needed, not {len(tokens)}")
        self._tokens = list(tokens[:needed])
        self._clock = clock
        self._samples: dict[int, list[float]] = {n: [] for n in self._widths}
        self._rebuilds: list[float] = []

    def rounds(self, count: int) -> Iterator[int]:
        """Yields after each of `count` rounds how many are done; stop early as you like."""
        self._fill()
        try:
            self._pass(self._widths[0])  # wakes threads and fills caches
            for done in range(1, count + 1):
                # Every other round backwards, so that no width always follows the same one.
                for n in self._widths if done % 2 else self._widths[::-1]:
                    self._sample(n)
                yield done
        finally:
            self._model.drop(0)

    def _sample(self, width: int) -> None:
        # llama.cpp rebuilds its graph when the width changes. Narrow passes are what most
        # decisions hang on, and cheap to repeat.
        first, *seconds = [self._pass(width) for _ in range(1 + max(2, 8 // width))]
        self._samples[width] += seconds
        self._rebuilds.append(first - median(seconds))

    @property
    def rebuild(self) -> float:
        """Seconds that a pass takes longer when the one before had another width."""
        return max(0.0, median(self._rebuilds))

    def curve(self) -> CostCurve:
        """What the rounds so far amount to; at least one must be done."""
        quartiles = {n: np.percentile(times, (25, 50, 75)) for n, times in self._samples.items()}
        return CostCurve(
            self._depth,
            {n: float(q[1]) for n, q in quartiles.items()},
            {n: float(q[2] - q[0]) for n, q in quartiles.items()},
        )

    def _fill(self) -> None:
        at = 0
        while at < self._depth:
            end = min(self._depth, at + self._model.max_rows)
            self._decode(at, end)
            at = end

    def _pass(self, width: int) -> float:
        began = self._clock()
        self._decode(self._depth, self._depth + width)
        seconds = self._clock() - began
        if self._depth:
            self._model.rewind(0, self._depth)
        else:
            self._model.drop(0)
        return seconds

    def _decode(self, start: int, end: int) -> None:
        wanted = start if end - start <= MAX_DRAFT_TOKENS + 1 else end - 1
        self._model.decode([Row(0, i, self._tokens[i], i >= wanted) for i in range(start, end)])


@dataclass(frozen=True, slots=True)
class Costs:
    """What is known of one model before it works. growth: seconds that a row takes longer for
    every token before it. rebuild: seconds that a pass takes longer after one of another width."""

    curve: CostCurve
    growth: float
    rebuild: float

    def live(self) -> LiveCosts:
        """To be corrected by what passes really take."""
        return LiveCosts(self.curve, self.growth)


def calibrate(
    model: TokenModel,
    tokens: Sequence[int],
    widths: Sequence[int],
    *,
    clock: Callable[[], float],
) -> Costs:
    """Time two passes of every width behind 128 tokens, and a few behind hardly any.

    tokens: what to decode, real text; repeated as needed. Uses sequence 0, which must be empty,
    and leaves it so.
    """
    needed = _DEPTH + max(widths)
    enough = (list(tokens) * (needed // len(tokens) + 1))[:needed]

    def measured(depth: int, some: Sequence[int]) -> Measurement:
        measurement = Measurement(model, enough, depth=depth, widths=some, clock=clock)
        for _ in measurement.rounds(1):
            pass
        return measurement

    whole = measured(_DEPTH, widths)
    curve = whole.curve()
    compared = max(n for n in curve.seconds if n <= _COMPARED)
    early = measured(_SHALLOW, (compared,)).curve()
    deeper = curve.depth - early.depth
    growth = 0.0
    if deeper > 0:
        growth = (curve.seconds[compared] - early.seconds[compared]) / (compared * deeper)
    return Costs(curve, max(0.0, growth), whole.rebuild)
