"""What a pass costs: the cost curve T(n), measured on the machine at hand (DESIGN section 5)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LISTED = 40  # widths that have their own correction
_SURPRISE = 0.3  # the most that one pass counts for, as a logarithm
# Variances of logarithms: of a single pass, of how fast the machine is now, and of a width's
# place on the curve, as measured at first and at best.
_NOISE, _MACHINE, _MEASURED, _SETTLED = 0.05**2, 0.025**2, 0.12**2, 0.01**2
# What is believed of a width is believed of its neighbours, as far as they are uncertain, too.
_NEIGHBOURS = ((1, 0.6), (2, 0.3), (3, 0.15))


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of one pass over n tokens of one sequence: medians and interquartile ranges.

    depth: tokens in memory before each pass. growth: seconds more for every token more in memory;
    empty where that was not measured.
    """

    depth: int
    seconds: Mapping[int, float]
    spread: Mapping[int, float]
    growth: Mapping[int, float] = field(default_factory=dict)

    def at(self, width: int) -> float:
        """T(width): linear between the widths measured, in proportion beyond the last."""
        return _between(self.seconds, width)

    def behind(self, depth: float, width: int) -> float:
        """T(width) behind so many tokens."""
        seconds = self.at(width)
        if self.growth:
            seconds += _between(self.growth, width) * (depth - self.depth)
        # Far from where it was measured, growth may be wrong, but no pass is nearly free.
        return max(seconds, self.at(width) / 4)


class LiveCosts:
    """What passes cost now: a measured curve, corrected by what every pass really took.

    A pass that takes longer than expected does so because the machine is slower now (heat, other
    programs), which makes all widths dearer, or because the curve was mismeasured at its width.
    Both are corrected, each as far as it is uncertain: a Kalman filter in logarithms, without
    the covariances. A single pass changes little, however long it took.
    growth: seconds that a row takes longer for every token before it (attention).
    """

    def __init__(self, curve: CostCurve, growth: float = 0.0) -> None:
        self.curve = curve
        self.growth = growth
        self.factor = 1.0  # how much slower the machine is than when the curve was measured
        measured = [curve.at(n) for n in range(1, LISTED + 1)]
        self._base = [0.0, *monotone(measured)]
        self._shape = [1.0] * (LISTED + 1)
        self._doubt = [_MEASURED] * (LISTED + 1)

    def at(self, width: int, depth: float) -> float:
        """Seconds of a pass over `width` tokens with `depth` tokens before each."""
        listed = width <= LISTED
        base = self._base[width] if listed else self.curve.at(width)
        attention = self.growth * width * (depth - self.curve.depth)
        # However the growth was mismeasured, an empty context does not make a pass free.
        seconds = max(base + attention, base / 4) * self.factor
        return seconds * self._shape[width] if listed else seconds

    def observe(self, width: int, depth: float, seconds: float) -> None:
        """A pass took `seconds`."""
        if seconds <= 0.0:
            return
        surprise = math.log(seconds / self.at(width, depth))
        surprise = max(-_SURPRISE, min(_SURPRISE, surprise))
        doubt = self._doubt[width] if width <= LISTED else _MEASURED
        total = _NOISE + _MACHINE + doubt
        self.factor *= math.exp(_MACHINE / total * surprise)
        if width <= LISTED:
            self._reshape(width, doubt / total * surprise)
            self._doubt[width] = max(doubt * (1.0 - doubt / total), _SETTLED)

    def _reshape(self, width: int, logarithm: float) -> None:
        self._shape[width] *= math.exp(logarithm)
        for away, share in _NEIGHBOURS:
            for other in (width - away, width + away):
                if 1 < other <= LISTED and width > 1:
                    doubt = self._doubt[other] / _MEASURED
                    self._shape[other] *= math.exp(share * doubt * logarithm)


def _between(measured: Mapping[int, float], width: int) -> float:
    widths = sorted(measured)
    after = bisect_left(widths, width)
    if after == len(widths):
        return measured[widths[-1]] * width / widths[-1]
    above = widths[after]
    if above == width or after == 0:
        return measured[above]
    below = widths[after - 1]
    share = (width - below) / (above - below)
    return measured[below] * (1 - share) + measured[above] * share


def monotone(values: Sequence[float]) -> list[float]:
    """The nearest values that never fall: a wider pass cannot be cheaper, only mismeasured.

    Pool adjacent violators.
    """
    blocks: list[tuple[float, int]] = []  # mean, how many
    for value in values:
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean = (before * many + mean * count) / (many + count)
            count += many
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]
