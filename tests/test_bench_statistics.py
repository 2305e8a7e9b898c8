"""Intervals: by hand, on simulated machines of known speed-up, and what changes nothing."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.bench.judging.statistics import (
    geometric_mean,
    geometric_speedup,
    mean_difference,
    median,
    percentile,
    variation,
    verdict_of,
)
from edgespec.bench.records import Interval, Verdict

STANDARD = (9, 9, 9, 9, 8, 8)
QUICK = (2, 2, 2, 2, 2, 2)

RATIOS = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.lists(st.floats(0.25, 4.0), max_size=5),
    min_size=1,
    max_size=4,
)


def simulated(sizes: Sequence[int], generator: random.Random) -> tuple[dict[str, list[float]], int]:
    """Measured ratios of prompts in categories of 0.8x to 1.8x, and 1 if the interval holds.

    Prompts vary by 20 % within a category, and each of two measurements by 4 %.
    """
    means = [math.log(0.8 + 0.2 * place) for place in range(len(sizes))]
    truth = math.exp(sum(m * n for m, n in zip(means, sizes, strict=True)) / sum(sizes))
    ratios = {
        f"category-{place}": [
            math.exp(
                generator.gauss(mean, 0.2) + generator.gauss(0, 0.04) - generator.gauss(0, 0.04)
            )
            for _ in range(count)
        ]
        for place, (mean, count) in enumerate(zip(means, sizes, strict=True))
    }
    found = geometric_speedup(ratios)
    assert found is not None
    return ratios, int(found.low <= truth <= found.high)


@pytest.mark.parametrize("sizes", [STANDARD, QUICK, (12,)], ids=["standard", "quick", "one"])
def test_the_interval_holds_the_truth_about_95_times_in_100(sizes: Sequence[int]) -> None:
    """Seeded. Were the coverage 95 %, 92 to 98 % of 300 would be missed by 1 seed in 60."""
    generator = random.Random(5)
    hits = [simulated(sizes, generator)[1] for _ in range(300)]
    assert 0.92 <= statistics.fmean(hits) <= 0.98


def test_categories_far_apart_do_not_widen_the_interval() -> None:
    """That is what the strata are for: the categories were chosen, not drawn."""
    generator = random.Random(1)
    ratios = {
        "slow": [math.exp(generator.gauss(-0.5, 0.02)) for _ in range(10)],
        "fast": [math.exp(generator.gauss(0.5, 0.02)) for _ in range(10)],
    }
    apart = geometric_speedup(ratios)
    together = geometric_speedup({"all": ratios["slow"] + ratios["fast"]})
    assert apart is not None
    assert together is not None
    assert apart.value == pytest.approx(together.value)
    assert apart.high / apart.low < 1.05 < 1.3 < together.high / together.low


def test_values_by_hand() -> None:
    found = geometric_speedup({"chat": [1.0, 4.0], "code": [2.0]})
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert found.low < 1 < 4 < found.high  # three prompts: hardly anything is known
    saved = mean_difference({"chat": [1.0, 2.0], "code": [-3.0, 4.0]})
    assert saved is not None
    assert saved.value == pytest.approx(1.0)


def test_the_interval_of_many_prompts_is_that_of_the_textbook() -> None:
    generator = random.Random(3)
    values = [generator.gauss(10, 2) for _ in range(200)]
    found = mean_difference({"all": values})
    assert found is not None
    half = 1.972 * statistics.stdev(values) / math.sqrt(200)
    assert found.low == pytest.approx(found.value - half, abs=0.01)
    assert found.high == pytest.approx(found.value + half, abs=0.01)


def test_equal_prompts_have_no_spread() -> None:
    assert mean_difference({"all": [0.5] * 6}) == Interval(value=0.5, low=0.5, high=0.5)
    found = geometric_speedup({"a": [1.25, 1.25], "b": [1.25]})
    assert found is not None
    assert found.low == pytest.approx(found.high) == pytest.approx(1.25)


@pytest.mark.parametrize("ratios", [{}, {"chat": []}, {"chat": [1.5]}, {"chat": [], "a": [1.0]}])
def test_fewer_than_two_prompts_have_no_interval(ratios: dict[str, list[float]]) -> None:
    assert geometric_speedup(ratios) is None
    assert mean_difference(ratios) is None


def test_categories_of_one_prompt_each_are_not_taken_for_certain() -> None:
    """Resampled within itself, a single prompt would never vary."""
    found = geometric_speedup({"a": [1.0], "b": [1.5], "c": [2.0]})
    assert found is not None
    assert found.low < 1.1
    assert found.high > 1.9
    found = geometric_speedup({"a": [1.0], "b": [2.0, 2.0]})
    assert found is not None
    assert found.low < found.value < found.high


@settings(max_examples=30, deadline=None)
@given(RATIOS, st.randoms(use_true_random=False))
def test_order_changes_nothing(ratios: dict[str, list[float]], generator: random.Random) -> None:
    shuffled = [(name, generator.sample(group, len(group))) for name, group in ratios.items()]
    generator.shuffle(shuffled)
    first, second = geometric_speedup(ratios), geometric_speedup(dict(shuffled))
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert second.model_dump() == pytest.approx(first.model_dump())
        assert first.low <= first.value * (1 + 1e-12)
        assert first.value <= first.high * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(RATIOS, st.floats(0.5, 2.0))
def test_a_factor_on_every_ratio_is_one_on_the_interval(
    ratios: dict[str, list[float]], factor: float
) -> None:
    first = geometric_speedup(ratios)
    scaled = geometric_speedup(
        {name: [r * factor for r in group] for name, group in ratios.items()}
    )
    assert (first is None) == (scaled is None)
    if first is not None and scaled is not None:
        for name in ("value", "low", "high"):
            assert getattr(scaled, name) == pytest.approx(getattr(first, name) * factor)


def test_the_same_figures_have_the_same_interval() -> None:
    ratios = {"a": [1.0, 1.3, 0.9], "b": [2.0, 1.7]}
    assert geometric_speedup(ratios) == geometric_speedup(ratios)


def test_resampling_in_parts_is_resampling() -> None:
    """1,300 prompts (GSM8K) are resampled in parts, as ten thousand at once would take 200 MB."""
    values = [0.001 * n for n in range(1300)]
    found = mean_difference({"maths": values})
    assert found is not None
    half = 1.962 * statistics.stdev(values) / math.sqrt(1300)
    assert found.low == pytest.approx(found.value - half, abs=0.002)
    assert found.high == pytest.approx(found.value + half, abs=0.002)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.0301, 2.0, "faster"),
        (1.03, 2.0, "not enough data"),
        (0.5, 0.9699, "slower"),
        (0.5, 0.97, "not enough data"),
        (0.97, 1.03, "same"),
        (0.9699, 1.0, "not enough data"),
        (1.0, 1.0301, "not enough data"),
        (0.8, 1.4, "not enough data"),
        (1.0, 1.0, "same"),
    ],
)
def test_verdict_words_at_their_edges(low: float, high: float, word: Verdict) -> None:
    found = Interval(value=(low + high) / 2, low=low, high=high)
    assert verdict_of(found, 5) == word
    assert verdict_of(found, 4) == "not enough data"


def test_no_interval_is_not_enough_data() -> None:
    assert verdict_of(None, 0) == verdict_of(None, 50) == "not enough data"


def test_a_mode_against_itself_is_never_called_faster_or_slower_by_noise() -> None:
    """Issue 3 (e). Noise of 1.5 % on 12 prompts: same nearly always, and never a false claim."""
    generator = random.Random(7)
    words = []
    for _ in range(40):
        ratios = {name: [math.exp(generator.gauss(0, 0.02)) for _ in range(2)] for name in "abcdef"}
        words.append(verdict_of(geometric_speedup(ratios), 12))
    assert set(words) <= {"same", "not enough data"}
    assert words.count("same") >= 36


def test_small_figures_by_hand() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert median([]) is None
    assert median(iter([3, 1])) == 2.0
    assert median([5, 1, 2]) == 2.0
    assert variation([2.0]) is None
    assert variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)


def test_percentiles_need_twenty_values() -> None:
    assert percentile(list(range(19)), 90) is None
    assert percentile(list(range(21)), 90) == 18.0
    assert percentile(list(range(21)), 10) == 2.0
