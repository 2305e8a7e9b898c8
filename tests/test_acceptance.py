"""Chances of drafted tokens: calibrated, learned from little, robust against what is kept."""

from __future__ import annotations

import json
import random

import pytest

from edgespec.decoding.acceptance import (
    COPIED,
    MODELLED,
    Acceptance,
    Evidence,
    copied,
    kind_of_copy,
    kind_of_model,
    modelled,
)
from edgespec.types import Draft


def copy(tokens: tuple[int, ...] = (1, 2, 3), match: int = 4, confidence: float = 1.0) -> Draft:
    return Draft(tokens, "n-gram", (confidence,) * len(tokens), match, 2)


def chances(evidence: list[Evidence], prior: tuple[float, ...]) -> list[float]:
    acceptance = Acceptance(prior)
    return [acceptance.chance(one) for one in evidence]


def test_longer_matches_and_agreement_stand_more_often() -> None:
    def first(**how: float) -> float:
        return chances(list(copied(copy(**how), 0.5)), COPIED)[0]  # type: ignore[arg-type]

    assert first(match=2) < first(match=6) < first(match=20)
    assert first(confidence=0.4) < first(confidence=1.0)
    assert chances(list(copied(copy(), 0.1)), COPIED)[0] < first()


def test_later_tokens_of_a_copy_are_more_certain_than_the_first() -> None:
    """Once the first tokens stand the match is longer: copies get better along the draft."""
    along = chances(list(copied(copy((1, 2, 3, 4, 5), match=2), 0.5)), COPIED)
    assert along == sorted(along)
    assert along[0] < along[-1]


def test_a_copy_that_agrees_makes_the_model_more_certain_and_one_that_differs_less() -> None:
    tokens, sure = (1, 2), (0.6, 0.6)
    alone = chances(list(modelled(tokens, sure, 0.6)), MODELLED)
    agreed = chances(list(modelled(tokens, sure, 0.6, copy((1, 2)))), MODELLED)
    differs = chances(list(modelled(tokens, sure, 0.6, copy((9, 2)))), MODELLED)
    assert differs[0] < alone[0] < agreed[0]
    assert agreed[1] > alone[1]
    # After the first difference the copy continues another text: it says nothing any more.
    assert differs[1] == alone[1]


@pytest.mark.parametrize("truth", [0.1, 0.5, 0.9])
def test_chances_follow_what_is_observed_within_some_twenty_tokens(truth: float) -> None:
    """Catches learning that never leaves the prior, and one that forgets it after one token."""
    draw = random.Random(1)
    acceptance = Acceptance(COPIED)
    evidence = next(iter(copied(copy(), 0.5)))
    before = acceptance.chance(evidence)
    acceptance.learn(evidence, before < 0.5)
    assert abs(acceptance.chance(evidence) - before) < 0.12
    for _ in range(25):
        acceptance.learn(evidence, draw.random() < truth)
    assert abs(acceptance.chance(evidence) - truth) < 0.25
    for _ in range(150):
        acceptance.learn(evidence, draw.random() < truth)
    assert abs(acceptance.chance(evidence) - truth) < 0.15


def test_what_is_learned_of_one_kind_reaches_others_slowly() -> None:
    """A useless short match must not spoil the long ones at once."""
    acceptance = Acceptance(COPIED)
    short = next(iter(copied(copy(match=2), 0.5)))
    long = next(iter(copied(copy(match=30), 0.5)))
    before = acceptance.chance(long)
    for _ in range(30):
        acceptance.learn(short, False)
    assert acceptance.chance(short) < 0.15
    assert acceptance.chance(long) > before - 0.15


def test_chances_are_calibrated_on_what_the_evidence_says() -> None:
    """Evidence that tells is learned to be told apart; of all tokens given a chance near p, a
    share near p stands."""
    draw = random.Random(3)
    acceptance = Acceptance(MODELLED)
    told: dict[int, list[tuple[float, bool]]] = {}
    for step in range(6000):
        sure = draw.choice((0.2, 0.5, 0.8, 0.97))
        evidence = next(iter(modelled((1,), (sure,), 0.6)))
        stands = draw.random() < sure**2  # overconfident
        if step > 1000:
            chance = acceptance.chance(evidence)
            told.setdefault(round(10 * chance), []).append((chance, stands))
        acceptance.learn(evidence, stands)
    for pairs in told.values():
        if len(pairs) > 100:
            expected = sum(chance for chance, _ in pairs) / len(pairs)
            share = sum(stands for _, stands in pairs) / len(pairs)
            assert abs(expected - share) < 0.08


def test_what_was_learned_survives_a_restart() -> None:
    acceptance = Acceptance(COPIED)
    evidence = next(iter(copied(copy(), 0.5)))
    for i in range(40):
        acceptance.learn(evidence, i % 3 == 0)
    again = Acceptance.restored(json.loads(json.dumps(acceptance.state())))
    assert again.chance(evidence) == acceptance.chance(evidence)
    assert again.table() == acceptance.table()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"weights": [1.0], "counts": {}},
        {"weights": ["a"] * 5, "counts": {}},
        {"weights": [float("nan")] * 5, "counts": {}},
        {"weights": [0.0] * 5, "counts": {"a": [1, 2]}},
        {"weights": [0.0] * 5, "counts": {"1": [1]}},
        {"weights": [0.0] * 5, "counts": {"1": [1.0, float("nan")]}},
        {"weights": [0.0] * 5, "counts": {"1": [5.0, 2.0]}},
    ],
)
def test_anything_else_is_refused(state: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Acceptance.restored(state)


def test_extreme_evidence_gives_a_chance_nonetheless() -> None:
    """Catches a logarithm of 0 and an overflow."""
    wild = Draft((1, 2), "n-gram", (0.0, 1.0), 10**6, 0)
    for one in [*copied(wild, 0.0), *modelled((1, 2), (0.0, 1.0), 1.0, wild)]:
        for prior in (COPIED, MODELLED, (1e6,) * 5, (-1e6,) * 5):
            assert 0.0 < Acceptance(prior).chance(one) < 1.0


def test_kinds_have_names() -> None:
    assert kind_of_copy(next(iter(copied(copy(match=7), 0.5))).kind) == "match of 7, all agree"
    evidence = next(iter(modelled((1,), (0.9,), 0.6, copy((1,)))))
    assert kind_of_model(evidence.kind).endswith("copy agrees")
