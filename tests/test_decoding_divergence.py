"""Where answers part, and how close the call was."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from edgespec.decoding.divergence import first_difference, gap_changes, least_change
from edgespec.decoding.sampling import Sampler
from edgespec.protocols import Logits, Row
from edgespec.types import SamplingParams
from tests.fakes import FakeModel, hashed_logits

V = 16


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [
        ([], [], None),
        ([1, 2], [1, 2], None),
        ([1, 2], [1, 3], 1),
        ([1], [1, 3], 1),
        ([1, 3], [1], 1),
        ([2], [], 0),
    ],
)
def test_the_first_difference(first: list[int], second: list[int], at: int | None) -> None:
    assert first_difference(first, second) == at


def test_the_least_change_of_a_greedy_choice_is_the_distance() -> None:
    logits = np.zeros(V, np.float32)
    logits[3], logits[5] = 2.0, 1.75
    sampler = Sampler(SamplingParams(temperature=0.0, seed=0))
    assert least_change(logits, sampler, [1], 3, 5) == pytest.approx(0.25, abs=2e-4)
    assert logits[5] == 1.75  # left as it was


def test_the_least_change_beyond_reach() -> None:
    logits = np.zeros(V, np.float32)
    logits[3], logits[5] = 40.0, 1.0
    sampler = Sampler(SamplingParams(temperature=0.0, seed=0))
    assert least_change(logits, sampler, [1], 3, 5) == math.inf


@pytest.mark.parametrize("seed", range(5))
def test_a_sampled_choice_flips_at_the_least_change_and_not_before(seed: int) -> None:
    logits = hashed_logits(V, seed=seed)([1, 2, 3])
    sampler = Sampler(SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed))
    own = sampler.sample(logits, [1, 2, 3])
    other = (own + 1) % V
    gap = least_change(logits, sampler, [1, 2, 3], own, other)
    assert 0 < gap < 16

    def after(change: float) -> set[int]:
        raised, lowered = logits.copy(), logits.copy()
        raised[other] += change
        lowered[own] -= change
        return {sampler.sample(raised, [1, 2, 3]), sampler.sample(lowered, [1, 2, 3])}

    assert other in after(gap + 1e-3)
    assert other not in after(gap - 1e-3)


class WobblyModel(FakeModel):
    """Wider passes raise the best logit by 0.5."""

    def decode(self, rows: Sequence[Row]) -> Logits:
        logits = super().decode(rows)
        if len(rows) > 1:
            logits[np.arange(len(logits)), logits.argmax(axis=1)] += 0.5
        return logits


def test_gap_changes_are_those_of_wider_passes() -> None:
    steady = FakeModel(hashed_logits(V), V)
    assert gap_changes(steady, [1, 2, 3, 4, 5], [2, 4]) == [0.0] * 10
    wobbly = WobblyModel(hashed_logits(V), V)
    changes = gap_changes(wobbly, [1, 2, 3, 4, 5], [2])
    # The fifth token is alone in the last pass.
    assert changes == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.0], abs=1e-5)
    assert wobbly.memory[0] == []
