"""The prediction drafter: all of a right prediction stands, a wrong one changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.drafters.prediction import PredictionDrafter
from edgespec.protocols import Drafter
from edgespec.types import Draft, SamplingParams, Step
from tests.fakes import ErraticPolicy, FakeModel, Ticks, hashed_logits
from tests.test_scheduler import (
    ALL_PARAMS,
    END,
    WARM,
    V,
    drafters,
    emitted,
    plain,
    request,
    run,
)

PARAMS = SamplingParams(seed=0)
LOGITS = hashed_logits(V, seed=6)
TEXT = list(range(100, 160))  # every token once: only one place is right

tokens = st.lists(st.integers(0, 2), max_size=40)
limits = st.integers(1, 12)


def predicting(prediction: Sequence[int], *said: int) -> PredictionDrafter:
    drafter = PredictionDrafter()
    drafter.begin(0, [7, 8, 9], PARAMS, prediction)
    drafter.observe(0, said)
    return drafter


def propose(drafter: PredictionDrafter, limit: int, sequence: int = 0) -> Draft | None:
    return drafter.propose({sequence: limit}).get(sequence)


def proposed(drafter: PredictionDrafter, limit: int) -> tuple[int, ...]:
    draft = propose(drafter, limit)
    return draft.tokens if draft else ()


# What it proposes.


def reference_place(prediction: list[int], said: list[int]) -> tuple[int | None, int]:
    """(where in the prediction the answer is, for how many tokens they agree), token by token
    and by looking at every place."""
    at: int | None = 0
    agreed, left = 8, 0
    for count, token in enumerate(said, 1):
        if at is not None and prediction[at : at + 1] == [token]:
            at, agreed = at + 1, agreed + 1
            continue
        left = left if at is None else at
        run = said[:count][-3:]
        ends = [e for e in range(3, len(prediction) + 1) if prediction[e - 3 : e] == run]
        at = min(ends, key=lambda end: (abs(end - left), end)) if ends else None
        agreed = 3
    return at, agreed


@given(tokens, tokens, limits)
def test_equals_the_brute_force_reference(
    prediction: list[int], said: list[int], limit: int
) -> None:
    draft = propose(predicting(prediction, *said), limit)
    at, agreed = reference_place(prediction, said)
    following = [] if at is None else prediction[at : at + limit]
    if not following:
        assert draft is None
    else:
        confidence = (1.0,) * len(following)
        assert draft == Draft(tuple(following), "prediction", confidence, agreed, 1)


@given(tokens, tokens, tokens, limits)
def test_what_follows_a_tail_is_as_if_it_had_been_emitted(
    prediction: list[int], said: list[int], tail: list[int], limit: int
) -> None:
    drafter = predicting(prediction, *said)
    before = propose(drafter, limit)
    assert drafter.after(0, tail, limit) == propose(predicting(prediction, *said, *tail), limit)
    assert propose(drafter, limit) == before, "asking leaves no trace"


@given(tokens, tokens, st.lists(st.integers(0, 40), max_size=5), limits)
def test_growing_in_pieces_equals_growing_at_once(
    prediction: list[int], said: list[int], cuts: list[int], limit: int
) -> None:
    drafter = predicting(prediction)
    start = 0
    for end in [*sorted(cuts), len(said)]:
        drafter.observe(0, said[start:end])
        start = max(start, end)
    assert propose(drafter, limit) == propose(predicting(prediction, *said), limit)


def test_the_first_token_is_trusted() -> None:
    draft = propose(predicting([1, 2, 3]), 2)
    assert draft == Draft((1, 2), "prediction", (1.0, 1.0), 8, 1)


def test_where_the_prediction_ends_the_drafting_ends() -> None:
    drafter = predicting(TEXT, *TEXT[:-2])
    assert proposed(drafter, 8) == tuple(TEXT[-2:])
    drafter.observe(0, TEXT[-2:])
    assert propose(drafter, 8) is None
    drafter.observe(0, [1, 2, 3, 4])
    assert propose(drafter, 8) is None


EDITS = {
    "insertion": ([1, 2, 3, 4, 5], 0),
    "long insertion": (list(range(50)), 0),
    "deletion": ([], 7),
    "long deletion": ([], 30),
    "replacement": ([1, 2], 2),
    "shorter": ([1], 9),
}


@pytest.mark.parametrize(("new", "gone"), EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("at", [0, 1, 20])
def test_after_an_edit_it_is_followed_again_from_the_third_token_on(
    new: list[int], gone: int, at: int
) -> None:
    answer = [*TEXT[:at], *new, *TEXT[at + gone :]]
    drafter = predicting(TEXT, *answer[: at + len(new) + 2])
    assert propose(drafter, 4) is None
    drafter.observe(0, answer[at + len(new) + 2 :][:1])
    draft = propose(drafter, 4)
    assert draft is not None
    assert draft.tokens == tuple(answer[at + len(new) + 3 :][:4])
    assert draft.match_length == 3


@pytest.mark.parametrize(("left", "follows"), [(8, 11), (15, 12), (18, 13), (22, 13), (24, 14)])
def test_of_several_places_the_one_next_to_where_it_was_left_is_taken(
    left: int, follows: int
) -> None:
    line = [5, 6, 7]
    prediction = [*line, 10, *line, 11, 50, 51, 52, *line, 12, 60, 61, 62, *line, 13, *line, 14]
    drafter = predicting(prediction, *prediction[:left], 99, *line)
    assert proposed(drafter, 1) == (follows,)


def test_an_earlier_place_is_found_as_well() -> None:
    """The answer may have the parts in another order."""
    drafter = predicting(TEXT, *TEXT[:20], *TEXT[30:40], *TEXT[20:23])
    assert proposed(drafter, 3) == tuple(TEXT[23:26])


def test_sequences_are_independent_and_end() -> None:
    drafter = predicting([1, 2, 3, 4])
    drafter.begin(5, [7], PARAMS, [6, 7, 8, 9])
    drafter.begin(6, [7], PARAMS)
    drafter.observe(5, [6])
    drafter.observe(6, [6])
    drafts = drafter.propose({0: 2, 5: 2, 6: 2})
    assert {slot: draft.tokens for slot, draft in drafts.items()} == {0: (1, 2), 5: (7, 8)}
    assert drafter.after(6, [1], 2) is None
    drafter.forget()
    assert drafter.propose({5: 1}).keys() == {5}, "only what is kept for others is forgotten"
    drafter.end(5)
    drafter.end(6)
    assert drafter.propose({0: 2, 5: 2}).keys() == {0}


def test_a_slot_knows_nothing_of_the_request_before() -> None:
    """Even if nobody said that it is over."""
    drafter = predicting([1, 2, 3, 4])
    drafter.begin(0, [7], PARAMS)
    assert propose(drafter, 3) is None


def test_it_need_not_read_anything() -> None:
    drafter: Drafter = predicting([1, 2])
    assert (drafter.name, drafter.copies) == ("prediction", True)
    assert (drafter.unread(0), drafter.knows_all(0)) == (0, True)


def calls_to_find_back(length: int) -> int:
    """Functions called to find the way back in a monotonous prediction."""
    drafter = predicting([0] * length, 0, 0, 0, 0, 1)
    called = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal called
        called += frame.f_code.co_filename == PredictionDrafter.observe.__code__.co_filename

    sys.setprofile(count)
    try:
        drafter.observe(0, [0, 0, 0])
    finally:
        sys.setprofile(None)
    assert propose(drafter, 1) is not None
    return called


def test_finding_the_way_back_does_not_take_longer_in_a_long_text() -> None:
    assert calls_to_find_back(5000) == calls_to_find_back(50)


# In the loop.


def answer_to(
    prompt: Sequence[int], params: SamplingParams, limit: int, prediction: Sequence[int], k: int = 6
) -> list[Step]:
    """The Steps of an answer with this prediction, which does not change the answer."""
    scheduler = Scheduler(
        FakeModel(LOGITS, V), {"prediction": PredictionDrafter()}, Fixed(k, "prediction"), Ticks()
    )
    asked = request(prompt, params, limit, end=-1)
    steps = run(scheduler, replace(asked, prediction=tuple(prediction)))[0]
    assert emitted(steps) == plain(LOGITS, prompt, params, limit, end=-1)
    return steps


@pytest.mark.parametrize("params", ALL_PARAMS, ids=["greedy", "warm", "penalised"])
@pytest.mark.parametrize("k", [1, 4, 32])
def test_a_right_prediction_is_accepted_but_for_the_bonus_tokens(
    k: int, params: SamplingParams
) -> None:
    right = plain(LOGITS, [1, 2, 3], params, 34, end=-1)
    steps = answer_to([1, 2, 3], params, 34, right, k)
    assert all(step.accepted == step.drafted for step in steps)
    # The prompt gives one token, every pass up to k and one more.
    assert len(steps) == 1 + -(-33 // (k + 1))
    assert all(step.sources == ("prediction",) * step.drafted + ("target",) for step in steps)


def test_a_wrong_prediction_is_tried_once() -> None:
    right = plain(LOGITS, [1, 2, 3], WARM, 30, end=-1)
    steps = answer_to([1, 2, 3], WARM, 30, [(token + 1) % V for token in right])
    assert sum(step.accepted for step in steps) == 0
    assert sum(step.drafted > 0 for step in steps) <= 1


@pytest.mark.parametrize(
    ("start", "stop", "new"), [(10, 10, [0, 1, 2]), (10, 14, []), (9, 12, [0])]
)
def test_after_an_edit_all_but_a_few_tokens_stand(start: int, stop: int, new: list[int]) -> None:
    right = plain(LOGITS, [1, 2, 3], WARM, 60, end=-1)
    steps = answer_to([1, 2, 3], WARM, 60, [*right[:start], *new, *right[stop:]], k=4)
    assert sum(step.accepted for step in steps) >= 60 - 60 // 5 - (stop - start) - 10
    assert sum(step.drafted - step.accepted for step in steps) <= 8


@given(
    noise=st.lists(
        st.tuples(
            st.integers(0, 45), st.integers(0, 6), st.lists(st.integers(0, V - 1), max_size=4)
        ),
        max_size=5,
    ),
    seed=st.integers(0, 1000),
    which=st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_any_prediction_and_schedule_give_the_plain_stream(
    noise: list[tuple[int, int, list[int]]], seed: int, which: int
) -> None:
    """The right answer with some of it cut, replaced and added, beside other drafters."""
    prompt, params = [seed % 31, 2, 3], ALL_PARAMS[which]
    right = plain(LOGITS, prompt, params, 40, end=END)
    prediction = list(right)
    for at, gone, new in noise:
        prediction[at : at + gone] = new
    everyone: dict[str, Drafter] = {"prediction": PredictionDrafter(), **drafters(LOGITS)}
    policy = ErraticPolicy(["prediction", "prediction", "half", "wrong"], seed)
    scheduler = Scheduler(FakeModel(LOGITS, V), everyone, policy, Ticks())
    one = replace(request(prompt, params, 40), prediction=tuple(prediction))
    assert emitted(run(scheduler, one)[0]) == right
