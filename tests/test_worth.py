"""What drafts are worth: against trying every combination."""

from __future__ import annotations

from itertools import accumulate, product
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.decoding.costs import CostCurve, LiveCosts
from edgespec.decoding.worth import SOBER, Worth

chances = st.lists(st.floats(0.05, 1.0), max_size=5)


def costs(steps: list[float]) -> LiveCosts:
    """T(1) = 1 s, then each row adds the next of `steps`."""
    seconds = {n: 1.0 + sum(steps[: n - 1]) for n in range(1, len(steps) + 2)}
    return LiveCosts(CostCurve(0, seconds, {}))


def survival(some: list[float]) -> list[float]:
    return list(accumulate(some, mul))


@given(
    drafts=st.lists(chances, min_size=1, max_size=3),
    steps=st.lists(st.floats(0.0, 2.0), min_size=20, max_size=20),
    rate=st.floats(0.1, 2.0),
    widths=st.none() | st.frozensets(st.integers(1, 12)),
)
def test_the_lengths_are_the_best_of_all_combinations(
    drafts: list[list[float]], steps: list[float], rate: float, widths: frozenset[int] | None
) -> None:
    """Catches a greedy choice that stops at a step of the cost curve, one that forgets that all
    sequences share the pass, and a width that is not allowed."""
    curve, base = costs(steps), len(drafts)
    worth = Worth(curve, rate, width=base, depth=0.0, widths=widths)
    survivals = {slot: survival(some) for slot, some in enumerate(drafts)}
    lengths, gain = worth.share(survivals)

    def value(choice: tuple[int, ...]) -> float:
        rows = base + sum(choice)
        if widths and base in widths and rows not in widths:
            return -1.0
        tokens = sum(sum(survivals[slot][:v]) for slot, v in enumerate(choice))
        return SOBER * tokens - rate * (curve.at(rows, 0.0) - curve.at(base, 0.0))

    best = max(map(value, product(*(range(len(some) + 1) for some in drafts))))
    assert gain == pytest.approx(max(best, 0.0), abs=1e-9)
    assert value(tuple(lengths.values())) == pytest.approx(gain, abs=1e-9)


def test_a_draft_may_have_to_cross_a_step_to_pay() -> None:
    """One more row costs nearly a pass, the next two nothing: one token loses, three win."""
    worth = Worth(costs([0.95, 0.0, 0.0, 5.0]), 1.0, width=1, depth=0.0)
    length, gain = worth.best([0.9, 0.81, 0.73])
    assert (length, round(gain, 6)) == (3, round(SOBER * 2.44 - 0.95, 6))
    assert worth.best([0.9]) == (0, 0.0)


def test_a_changed_width_has_to_earn_its_rebuild() -> None:
    """Catches jitter: the same draft is verified where its width was in use, and not where the
    graph would have to be rebuilt for it."""
    curve = costs([0.5] * 8)
    stays = Worth(curve, 1.0, width=1, depth=0.0, last_width=2, rebuild=0.2)
    comes = Worth(curve, 1.0, width=1, depth=0.0, last_width=1, rebuild=0.2)
    assert stays.best([0.6])[0] == 1
    assert comes.best([0.6])[0] == 0


def test_a_pass_too_wide_to_be_exact_anyway_takes_any_draft() -> None:
    """With a prompt of another sequence in the pass no width is among the identical ones."""
    worth = Worth(costs([0.1] * 30), 1.0, width=20, depth=0.0, widths=frozenset({1, 2, 3}))
    assert worth.best([0.9, 0.8])[0] == 2
