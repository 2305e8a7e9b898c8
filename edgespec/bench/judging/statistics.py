"""Estimates with 95 % confidence intervals over prompts, and the words for them.

The unit is the prompt: its figure is the same machine's with and without speculation, so what
is left to vary is the text. Categories are strata: they were chosen, only the prompts within
them are a sample, so the bootstrap resamples within each. A bootstrap of few prompts is too
narrow (n prompts vary by (n - 1) / n of what they should, and their spread is itself a guess);
both are corrected here, as in T. Hesterberg, "What Teachers Should Know About the Bootstrap",
The American Statistician 69 (2015) ("expanded percentile").
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.bench.records import Interval, Verdict

RESAMPLES = 10_000
SEED = 20_240_229
"""Of the resampling: the same figures always have the same interval."""

MARGIN = 0.03
"""Speed-ups this close to 1 make no difference."""
FASTER = 1 + MARGIN
SLOWER = 1 - MARGIN
MIN_PROMPTS = 5
"""Fewer prompts are given no verdict, however narrow their interval."""
MIN_FOR_PERCENTILES = 20

_NORMAL = 1.959964
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764)  # of 1, 2, 3 and 4 degrees of freedom
_BLOCK = 1_000_000  # random numbers held at once

Strata = Mapping[str, Sequence[float]]


def geometric_speedup(ratios: Strata) -> Interval | None:
    """The geometric mean of `ratios` (all above 0) by category.

    None below two: a single prompt says nothing about others, so it has no interval.
    """
    logs = {name: [math.log(ratio) for ratio in group] for name, group in ratios.items()}
    mean = mean_difference(logs)
    if mean is None:
        return None
    return Interval(value=math.exp(mean.value), low=math.exp(mean.low), high=math.exp(mean.high))


def mean_difference(differences: Strata) -> Interval | None:
    """The mean of `differences` by category, in their unit. None below two."""
    strata = _strata(differences)
    count = sum(len(stratum) for stratum in strata)
    if count < 2:
        return None
    sums = np.zeros(RESAMPLES)
    generator = np.random.default_rng(SEED)
    for stratum in strata:
        sums += _deviations(stratum, generator)
    widening = _student(count - len(strata)) / _NORMAL
    low, high = np.percentile(sums / count, (2.5, 97.5)) * widening
    value = sum(float(stratum.sum()) for stratum in strata) / count
    return Interval(value=value, low=value + float(low), high=value + float(high))


def verdict_of(interval: Interval | None, prompts: int) -> Verdict:
    """The word for a speed-up measured on `prompts` prompts."""
    if interval is None or prompts < MIN_PROMPTS:
        return "not enough data"
    if interval.low > FASTER:
        return "faster"
    if interval.high < SLOWER:
        return "slower"
    if interval.low >= SLOWER and interval.high <= FASTER:
        return "same"
    return "not enough data"


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """Of ratios above 0; None without any."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logs)) if logs else None


def median(values: Iterable[float]) -> float | None:
    """None without any."""
    held = list(values)
    return float(statistics.median(held)) if held else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Interpolated; None below 20 values, where the tails are single values."""
    if len(values) < MIN_FOR_PERCENTILES:
        return None
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation / mean, of two or more values above 0."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) / statistics.fmean(values)


def _strata(groups: Strata) -> list[NDArray[np.float64]]:
    """Sorted, so that neither the order of prompts nor of categories changes the interval.

    A category of one prompt cannot show how prompts vary within it. Such are resampled together;
    if there is only one, together with the smallest other category.
    """
    arrays = [np.sort(np.asarray(groups[name], dtype=np.float64)) for name in sorted(groups)]
    single = [array for array in arrays if len(array) == 1]
    several = sorted((array for array in arrays if len(array) > 1), key=len)
    if len(single) == 1 and several:
        single.append(several.pop(0))
    return several + ([np.concatenate(single)] if single else [])


def _deviations(
    stratum: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float64]:
    """How far the sums of resamples are from the stratum's own, as much as fresh prompts' were."""
    count = len(stratum)
    centred = (stratum - stratum.mean()) * math.sqrt(count / max(1, count - 1))
    rows = max(1, _BLOCK // count)
    sums = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, rows):
        part = sums[start : start + rows]
        part[:] = centred[generator.integers(0, count, (len(part), count))].sum(axis=1)
    return sums


def _student(freedom: int) -> float:
    """The 97.5th percentile of Student's t distribution, to three digits."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    # Cornish-Fisher: Abramowitz and Stegun, 26.7.5.
    z = _NORMAL
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + first + second + third
