"""Measures what passes of a model cost: thoroughly for benchmarks, in a moment before a chat."""

from __future__ import annotations

import math
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
_DEPTH, _SHALLOW = 320, 8
_TURNS = 5
_COMPARED = (1, 4)  # measured at both depths, to tell what attention costs


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
        self.depth = max(0, min(depth, model.n_ctx - max(self._widths)))
        if model.rewind_depth < max(self._widths):
            self.depth = 0  # a state that cannot be cut can still be dropped
        needed = self.depth + max(self._widths)
        if len(tokens) < needed:
            raise ValueError(f"{needed} tokens are needed, not {len(tokens)}")
        self._tokens = list(tokens[:needed])
        self._clock = clock
        self._samples: dict[int, list[float]] = {n: [] for n in self._widths}

    def rounds(self, count: int) -> Iterator[int]:
        """Yields after each of `count` rounds how many are done; stop early as you like."""
        self._fill()
        try:
            self._pass(self._widths[0])  # wakes threads and fills caches
            for done in range(1, count + 1):
                # Every other round backwards, so that no width always follows the same one.
                self._widths = self._widths[::-1]
                for n in self._widths:
                    self._sample(n)
                yield done
        finally:
            self._model.drop(0)

    def ratios(self) -> tuple[float, dict[int, float], float]:
        """Instead of rounds: (T(1), T(n) / T(1) by n, rebuild), from a few passes of each width
        between passes of one token."""
        self._fill()
        try:
            self._pass(1)  # wakes threads and fills caches
            ones, found, firsts = [self._fastest(1)[0]], {1: 1.0}, []
            for n in self._widths:
                if n > 1:
                    seconds, first = self._fastest(n)
                    ones.append(self._fastest(1)[0])
                    found[n] = 2 * seconds / (ones[-2] + ones[-1])
                    firsts.append(first - seconds)
        finally:
            self._model.drop(0)
        return median(ones), found, max(0.0, median(firsts or [0.0]))

    def _fastest(self, width: int) -> tuple[float, float]:
        """The fastest of some passes, and the first, for which llama.cpp rebuilds its graph."""
        first, *others = [self._pass(width) for _ in range(3 if width <= 8 else 2)]
        return min(others), first

    def _sample(self, width: int) -> None:
        # llama.cpp rebuilds its graph when the width changes. Narrow passes are what most
        # decisions hang on, and cheap to repeat.
        self._pass(width)
        self._samples[width] += [self._pass(width) for _ in range(max(2, 8 // width))]

    def curve(self) -> CostCurve:
        """What the rounds so far amount to; at least one must be done."""
        quartiles = {n: np.percentile(times, (25, 50, 75)) for n, times in self._samples.items()}
        return CostCurve(
            self.depth,
            {n: float(q[1]) for n, q in quartiles.items()},
            {n: float(q[2] - q[0]) for n, q in quartiles.items()},
        )

    def _fill(self) -> None:
        at = 0
        while at < self.depth:
            end = min(self.depth, at + self._model.max_rows)
            self._decode(at, end)
            at = end

    def _pass(self, width: int) -> float:
        began = self._clock()
        self._decode(self.depth, self.depth + width)
        seconds = self._clock() - began
        if self.depth:
            self._model.rewind(0, self.depth)
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
    progress: Callable[[float], None] = lambda done: None,
) -> Costs:
    """Time every width twice, between passes of one token, so that a machine which is busy for a
    moment makes both slower and their ratio stays.

    tokens: what to decode, real text; repeated as needed. Uses sequence 0, which must be empty,
    and leaves it so. progress: called with the share done.
    """
    needed = _DEPTH + max(widths)
    enough = (list(tokens) * (needed // len(tokens) + 1))[:needed]
    wide = Measurement(model, enough, depth=_DEPTH, widths=sorted({1, *widths}), clock=clock)
    early = Measurement(model, enough, depth=_SHALLOW, widths=_COMPARED, clock=clock)
    # Before and after, so that a machine that gets slower does not look like attention.
    one_before, before, _ = early.ratios()
    progress(0.1)
    one, ratios, rebuild = wide.ratios()
    progress(0.9)
    one_after, after, _ = early.ratios()
    growths = [0.0]
    if further := wide.depth - early.depth:
        growths = [
            (ratios[n] * one - (before[n] * one_before + after[n] * one_after) / 2) / (n * further)
            for n in before
            if n in ratios
        ]
    growth = min(max(0.0, sum(growths) / len(growths)), one / max(wide.depth, 1))
    curve = CostCurve(wide.depth, {n: ratio * one for n, ratio in ratios.items()}, {})
    return Costs(curve, growth, rebuild)


def adjust(
    models: Sequence[tuple[TokenModel, LiveCosts]], token: int, clock: Callable[[], float]
) -> None:
    """Set how fast the machine is now, for models whose costs were measured at other moments.

    They take turns, so that what their costs are to each other is right. Uses sequence 0 of
    each, which must be empty, and leaves it so.
    """
    fastest = [math.inf] * len(models)
    for turn in range(_TURNS):
        for i, (model, _) in enumerate(models):
            began = clock()
            model.decode([Row(0, 0, token, True)])
            if turn:  # the first wakes threads and builds the graph
                fastest[i] = min(fastest[i], clock() - began)
            model.drop(0)
    for seconds, (_, costs) in zip(fastest, models, strict=True):
        if seconds > 0.0:
            costs.factor *= seconds / costs.at(1, 0.0)
