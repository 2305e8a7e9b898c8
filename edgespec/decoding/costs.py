"""What a pass costs: the cost curve T(n), measured on the machine at hand (DESIGN section 5)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgespec.protocols import Row, TokenModel
from edgespec.types import MAX_DRAFT_TOKENS

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32)
"""Where T(n) is measured: it has steps, the well-known ones at multiples of 4 and at 8 to 9."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of one pass over n tokens of one sequence: medians and interquartile ranges.

    depth: tokens in memory before each pass.
    """

    depth: int
    seconds: Mapping[int, float]
    spread: Mapping[int, float]

    def at(self, width: int) -> float:
        """T(width): linear between the widths measured, in proportion beyond the last."""
        widths = sorted(self.seconds)
        after = bisect_left(widths, width)
        if after == len(widths):
            return self.seconds[widths[-1]] * width / widths[-1]
        above = widths[after]
        if above == width or after == 0:
            return self.seconds[above]
        below = widths[after - 1]
        share = (width - below) / (above - below)
        return self.seconds[below] * (1 - share) + self.seconds[above] * share


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

    def rounds(self, count: int) -> Iterator[int]:
        """Yields after each of `count` rounds how many are done; stop early as you like."""
        self._fill()
        try:
            for done in range(count + 1):
                # Every other round backwards, so that no width always follows the same one.
                for n in self._widths if done % 2 else self._widths[::-1]:
                    self._pass(n)  # llama.cpp rebuilds its graph when the width changes
                    seconds = [self._pass(n), self._pass(n)]
                    if done:
                        self._samples[n] += seconds
                if done:
                    yield done
        finally:
            self._model.drop(0)

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
        self._model.rewind(0, self._depth)
        return seconds

    def _decode(self, start: int, end: int) -> None:
        wanted = start if end - start <= MAX_DRAFT_TOKENS + 1 else end - 1
        self._model.decode([Row(0, i, self._tokens[i], i >= wanted) for i in range(start, end)])
