"""Adding up Steps: by hand, in two parts, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.stats import collect, merge, to_dict
from edgespec.types import TARGET, Stats, Step

# Sums of eighths are exact, so equality can be asked of seconds too.
SECONDS = st.integers(0, 1000).map(lambda n: n / 8)


def step(
    drafter: str = "",
    drafted: int = 0,
    accepted: int = 0,
    *,
    prefilled: int = 0,
    emits: int | None = None,
    seconds: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
) -> Step:
    tokens = tuple(range(accepted + 1 if emits is None else emits))
    draft_s, verify_s, sample_s, other_s = seconds
    return Step(
        sequence=0,
        request=0,
        position=10,
        cached=0,
        k=drafted,
        drafter=drafter,
        drafted=drafted,
        accepted=accepted,
        tokens=tokens,
        sources=(TARGET,) * len(tokens),
        prefilled=prefilled,
        rows=prefilled or drafted + 1,
        pass_rows=prefilled or drafted + 1,
        sequences=1,
        draft_s=draft_s,
        verify_s=verify_s,
        sample_s=sample_s,
        other_s=other_s,
        reason="test",
    )


@st.composite
def steps(draw: st.DrawFn) -> Step:
    seconds = draw(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS))
    if draw(st.booleans()):
        emits = draw(st.integers(0, 1))
        return step(prefilled=draw(st.integers(1, 256)), emits=emits, seconds=seconds)
    drafter = draw(st.sampled_from(["", "model", "n-gram"]))
    drafted = draw(st.integers(1, 6)) if drafter else 0
    return step(drafter, drafted, draw(st.integers(0, drafted)), seconds=seconds)


LISTS = st.lists(steps(), max_size=12)

EXAMPLE = [
    step(prefilled=256, emits=0, seconds=(0.0, 2.0, 0.0, 0.25)),
    step(prefilled=44, emits=1, seconds=(0.0, 0.5, 0.125, 0.125)),
    step("model", 4, 4, seconds=(1.0, 2.0, 0.25, 0.5)),
    step("model", 4, 1, seconds=(1.0, 2.0, 0.25, 0.5)),
    step("n-gram", 2, 0, seconds=(0.0, 1.0, 0.25, 0.25)),
    step(seconds=(0.0, 1.0, 0.125, 0.125)),
    step("corpus", 0, 0),  # trimmed to nothing
]


def test_an_example_by_hand() -> None:
    """Catches prompt passes counted as decoding steps, their time in the speed, and the token
    that ends the prefill counted as decoded (it would flatter tokens per second)."""
    stats = collect(EXAMPLE)
    assert stats == Stats(
        steps=5,
        drafted=10,
        accepted=5,
        emitted=11,
        emitted_while_decoding=10,
        prefilled=300,
        prefill_s=3.0,
        draft_s=2.0,
        verify_s=6.0,
        sample_s=0.875,
        other_s=1.375,
        by_drafter={"model": (8, 5), "n-gram": (2, 0)},
        lengths={0: 2, 2: 1, 4: 2},
    )
    assert stats.decode_s == 10.25
    assert stats.acceptance_rate == 0.5
    assert stats.mean_acceptance_length == 2.0
    assert stats.tokens_per_second == pytest.approx(10 / 10.25)
    assert list(stats.lengths) == [0, 2, 4]


@pytest.mark.parametrize(
    "some", [[], [step(prefilled=5, emits=1)], [step()]], ids=["nothing", "prompt", "no time"]
)
def test_no_figure_divides_by_zero(some: list[Step]) -> None:
    """Catches ZeroDivisionError before the first step, without drafts, or on a coarse clock."""
    stats = collect(some)
    assert stats.acceptance_rate is None
    assert stats.tokens_per_second is None
    assert stats.mean_acceptance_length == (1.0 if stats.steps else None)
    assert json.loads(json.dumps(to_dict(stats)))["tokens_per_second"] is None


@given(LISTS, LISTS)
@settings(max_examples=150, deadline=None)
def test_merging_sums_is_summing_everything(first: list[Step], second: list[Step]) -> None:
    """Catches a counter that merge forgets, overwrites, or changes in its arguments."""
    one, two = collect(first), collect(second)
    merged = merge(one, two)
    assert merged == collect(first + second)
    assert list(merged.lengths) == sorted(merged.lengths)
    assert (one, two) == (collect(first), collect(second))
    assert merge(one, Stats()) == one == merge(Stats(), one)


@given(LISTS)
@settings(max_examples=60, deadline=None)
def test_any_sum_is_json(some: list[Step]) -> None:
    """Catches values JSON cannot hold (mappings of tuples, numpy numbers, NaN)."""
    stats = collect(some)
    values = to_dict(stats)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["accepted"] == sum(one.accepted for one in some)
    assert set(values["by_drafter"]) == {one.drafter for one in some if one.drafted}


def test_the_dictionary_has_every_counter_and_derived_figure() -> None:
    """Catches a renamed key: scripts read these from `--json`."""
    expected: dict[str, Any] = {
        "steps": 5,
        "drafted": 10,
        "accepted": 5,
        "emitted": 11,
        "emitted_while_decoding": 10,
        "prefilled": 300,
        "prefill_s": 3.0,
        "draft_s": 2.0,
        "verify_s": 6.0,
        "sample_s": 0.875,
        "other_s": 1.375,
        "by_drafter": {
            "model": {"drafted": 8, "accepted": 5},
            "n-gram": {"drafted": 2, "accepted": 0},
        },
        "lengths": {"0": 2, "2": 1, "4": 2},
        "acceptance_rate": 0.5,
        "mean_acceptance_length": 2.0,
        "tokens_per_second": 10 / 10.25,
    }
    assert to_dict(collect(EXAMPLE)) == expected


def test_a_sum_cannot_be_changed_afterwards() -> None:
    """Catches a mapping shared with whoever made the Stats."""
    stats = collect(EXAMPLE)
    with pytest.raises(TypeError):
        stats.by_drafter["model"] = (0, 0)  # type: ignore[index]
    assert replace(stats, steps=6).by_drafter == stats.by_drafter
