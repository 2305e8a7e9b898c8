"""What is known of a pair: guessed at first, learned, kept, and not believed blindly when read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgespec.decoding.costs import CostCurve, LiveCosts
from edgespec.decoding.knowledge import KINDS, Knowledge, situation


def costs(one: float, more: float) -> LiveCosts:
    return LiveCosts(CostCurve(0, {1: one, 32: one + 31 * more}, {}))


def known(draft_s: float | None = 0.1) -> Knowledge:
    return Knowledge(costs(1.0, 0.2), costs(draft_s, 0.01) if draft_s else None)


def test_the_rate_begins_at_plain_speed_and_never_falls_below() -> None:
    knowledge = known()
    assert knowledge.rate(1, 0) == pytest.approx(1.0)
    for _ in range(300):
        knowledge.passed(3, 1.5, 1, 0)
    assert knowledge.rate(1, 0) == pytest.approx(1.7, abs=0.1)
    for _ in range(900):
        knowledge.passed(1, 5.0, 1, 0)
    assert knowledge.rate(1, 0) == pytest.approx(1.0)


@pytest.mark.parametrize(("draft_s", "pays"), [(0.05, True), (0.3, True), (1.5, False)])
def test_a_cheap_draft_model_is_expected_to_pay_and_a_dear_one_not(
    draft_s: float, pays: bool
) -> None:
    assert known(draft_s).draft_may_pay is pays


def test_experience_overrules_the_guess() -> None:
    knowledge = known(0.05)
    for kind in range(len(KINDS)):
        for _ in range(60):
            knowledge.was_worth(kind, -0.3)
    assert not knowledge.draft_may_pay
    for _ in range(60):
        knowledge.was_worth(2, 0.3)
    assert knowledge.draft_may_pay


def test_without_a_draft_model_none_pays() -> None:
    assert not known(None).draft_may_pay


def test_probing_takes_no_more_than_its_share() -> None:
    knowledge = known()
    assert not knowledge.may_probe(1.0)
    knowledge.passed(1000, 1000.0, 1, 0)
    first = sum(knowledge.may_probe(1.0) for _ in range(100))
    assert 3 <= first <= 15
    assert knowledge.probing_s == first
    for _ in range(30):  # the less it finds, the rarer it gets
        knowledge.passed(1000, 1000.0, 1, 0)
        knowledge.may_probe(1.0)
    assert knowledge.probing_s / knowledge.decoding_s < 0.004
    before = knowledge.probing_s
    knowledge.was_worth(0, 1.0)  # until it finds something
    while knowledge.may_probe(1.0):
        pass
    assert knowledge.probing_s > before + 5


def test_answers_are_expected_to_be_as_long_as_the_last_ones() -> None:
    knowledge = known()
    for _ in range(60):
        knowledge.finished(40)
    assert knowledge.remaining(0, 1000) == pytest.approx(40, abs=2)
    assert knowledge.remaining(30, 1000) == pytest.approx(10, abs=2)
    assert knowledge.remaining(500, 1000) == pytest.approx(10, abs=2)  # longer than usual
    assert knowledge.remaining(0, 5) == 5


def learned() -> Knowledge:
    knowledge = known()
    knowledge.acceptance("n-gram", copies=True)
    knowledge.acceptance("model", copies=False)
    knowledge.was_worth(1, 0.4)
    knowledge.followed(0.99, 0.2)
    knowledge.finished(1000)
    return knowledge


def test_it_survives_a_restart() -> None:
    again = known()
    again.restore(json.loads(json.dumps(learned().state())))
    assert again.state() == learned().state()
    assert [(name, copies) for name, _, copies in again.drafters()] == [
        ("n-gram", True),
        ("model", False),
    ]


@pytest.mark.parametrize(
    "damage",
    [
        {"values": {"1": [1.0]}},
        {"values": {"1": [float("nan"), 3.0]}},
        {"values": {"1": [1.0, -9.0]}},
        {"askings": -1},
        {"values": 3},
        {"following": []},
        {"following": [2.0] * 6},
        {"answer": 0},
        {"answer": "long"},
        {"answer": float("inf")},
        {"acceptance": {"n-gram": {}}},
        {"models": None},
    ],
)
def test_a_damaged_state_is_left_out_as_a_whole(damage: dict[str, Any]) -> None:
    fresh = known()
    fresh.restore(learned().state() | damage)
    assert fresh.state() == known().state()
    fresh.restore({})
    assert fresh.state() == known().state()


def test_what_slows_the_target_slows_the_draft_model() -> None:
    """Catches a draft model that looks cheap because it was not asked since the laptop got hot."""
    knowledge = known(0.1)
    for seconds in [1.0] * 40 + [2.0] * 60:
        knowledge.target.observe(1, 0, seconds)
    assert knowledge.drafting((1,), 0) == pytest.approx(0.2, rel=0.15)
    for _ in range(30):
        knowledge.drafted((1, 1, 1), 0, 0.6)
    assert knowledge.drafting((1,), 0) == pytest.approx(0.2, rel=0.15)


def test_less_is_promised_where_only_the_end_of_a_text_was_read() -> None:
    knowledge = known(0.2)
    whole, end = (knowledge.value(situation(None, knows_all)) for knows_all in (True, False))
    assert end < whole
    for _ in range(20):
        knowledge.was_worth(situation(0.9, False), 2.0)
    assert knowledge.value(situation(0.9, False)) > 1.5
    assert knowledge.value(situation(0.9, True)) < 1.5  # learned of the one, not of the other


def test_every_situation_has_a_name() -> None:
    found = {
        situation(copy, knows_all)
        for copy in (None, 0.1, 0.6, 0.9, 0.99)
        for knows_all in (True, False)
    }
    assert found == set(range(len(KINDS)))
