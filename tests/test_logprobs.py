"""Log-probabilities are the model's own, for every token, however it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.logprobs import logprob
from edgespec.decoding.policy import Fixed
from edgespec.decoding.sampling import LogitRow
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request
from edgespec.errors import BackendError
from edgespec.types import Step, TokenLogprob
from tests.fakes import ErraticPolicy, FakeModel, Ticks, hashed_logits
from tests.test_scheduler import (
    ALL_PARAMS,
    GREEDY,
    WARM,
    V,
    drafters,
    emitted,
    make,
    plain,
    request,
    run,
)

LOGITS = hashed_logits(V, seed=4)

rows = st.lists(
    st.one_of(st.floats(-60, 60, width=32), st.sampled_from([0.0, 1.0, -1e4, 3e4])),
    min_size=1,
    max_size=40,
).map(lambda values: np.array(values, np.float32))


def reference(logits: LogitRow, token: int) -> float:
    """Minus the log of how often the others are as likely, summed in pairs."""
    differences = logits.astype(np.float64) - float(logits[token])
    return -float(np.logaddexp.reduce(differences))


@given(rows)
def test_a_logprob_is_the_log_of_the_softmax(logits: LogitRow) -> None:
    for token in range(len(logits)):
        found = logprob(logits, token, 0)
        assert found.token == token
        assert found.logprob == pytest.approx(reference(logits, token), abs=1e-9, rel=1e-9)
        assert found.top == ()


@given(rows)
def test_the_probabilities_of_all_tokens_are_one(logits: LogitRow) -> None:
    each = [np.exp(logprob(logits, token, 0).logprob) for token in range(len(logits))]
    assert sum(each) == pytest.approx(1.0)


@given(rows, st.integers(0, 50))
def test_the_best_come_first_and_of_equal_ones_the_lower_id(logits: LogitRow, top: int) -> None:
    best = sorted(range(len(logits)), key=lambda token: (-float(logits[token]), token))[:top]
    found = logprob(logits, 0, top).top
    assert [token for token, _ in found] == best
    assert [value for _, value in found] == [logprob(logits, token, 0).logprob for token in best]


def test_a_banned_token_is_impossible_and_not_among_the_best() -> None:
    logits = np.array([1.0, -np.inf, 0.0], np.float32)
    assert logprob(logits, 1, 0).logprob == -np.inf
    assert [token for token, _ in logprob(logits, 0, 3).top] == [0, 2]


def test_logits_are_left_as_they_are() -> None:
    logits = LOGITS([1, 2, 3]).copy()
    logprob(logits, 3, 5)
    assert np.array_equal(logits, LOGITS([1, 2, 3]))


def test_logits_that_are_no_numbers_have_no_best() -> None:
    with pytest.raises(BackendError, match="best logit is nan"):
        logprob(np.full(4, np.nan, np.float32), 0, 2)


# Of what is generated.


def assert_those_of(
    found: Sequence[TokenLogprob], text: Sequence[int], start: int, top: int
) -> None:
    """`found` are those of text[start:]."""
    assert [one.token for one in found] == list(text[start:])
    for at, one in enumerate(found, start):
        wanted = logprob(LOGITS(text[:at]), text[at], top)
        assert one.logprob == pytest.approx(reference(LOGITS(text[:at]), text[at]))
        assert one.top == wanted.top
        assert len(one.top) == top


def of_answer(steps: Sequence[Step]) -> list[TokenLogprob]:
    return [one for step in steps for one in step.logprobs]


def of_prompt(steps: Sequence[Step]) -> list[TokenLogprob]:
    return [one for step in steps for one in step.prompt_logprobs]


@pytest.mark.parametrize("seed", range(5))
def test_every_emitted_token_has_one_whoever_drafted_it(seed: int) -> None:
    """By the model's distribution alone: no penalty, temperature or truncation shows in it."""
    policy = ErraticPolicy(list(drafters(LOGITS)), seed)
    scheduler, _ = make(LOGITS, policy, max_sequences=3)
    asked = [
        replace(request([i, 5, 6, 7, 8, 9], ALL_PARAMS[i % 3], 30, id=i), logprobs=i)
        for i in range(5)
    ]
    steps = run(scheduler, *asked)
    for one in asked:
        text = [*one.prompt, *emitted(steps[one.id])]
        assert_those_of(of_answer(steps[one.id]), text, len(one.prompt), one.id)
        for step in steps[one.id]:
            assert len(step.logprobs) == len(step.tokens)
            assert step.prompt_logprobs == ()


def test_who_does_not_ask_gets_none() -> None:
    scheduler, _ = make(LOGITS, Fixed(3, "half"))
    steps = run(scheduler, request([1, 2, 3], WARM, 10))[0]
    assert of_answer(steps) == of_prompt(steps) == []


# Of the prompt.


def scoring(prompt: Sequence[int], limit: int = 1, id: int = 0, top: int | None = 2) -> Request:
    """A request for the log-probabilities of its prompt."""
    asked = request(prompt, WARM, limit, id=id, end=-1)
    return replace(asked, prompt_logprobs=True, logprobs=top)


def reader(chunk: int, **options: int) -> tuple[Scheduler, FakeModel]:
    model = FakeModel(LOGITS, V, **options)
    policy = ErraticPolicy(list(drafters(LOGITS)), chunk)
    return Scheduler(model, drafters(LOGITS), policy, Ticks(), prefill_chunk=chunk), model


@given(
    prompt=st.lists(st.integers(0, 2), min_size=1, max_size=80),
    chunk=st.integers(1, 90),
    before=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=80), max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_every_token_of_a_prompt_but_the_first_has_one_whatever_was_cached(
    prompt: list[int], chunk: int, before: list[list[int]]
) -> None:
    scheduler, _ = reader(chunk, max_sequences=2)
    run(scheduler, *(request(text, GREEDY, 2, id=i, end=-1) for i, text in enumerate(before)))
    steps = run(scheduler, scoring(prompt, 5, id=9))[9]
    assert steps[0].cached == 0
    assert_those_of(of_prompt(steps), prompt, 1, 2)
    assert emitted(steps) == plain(LOGITS, prompt, WARM, 5, end=-1)
    assert_those_of(of_answer(steps), [*prompt, *emitted(steps)], len(prompt), 2)


def test_without_a_number_those_of_the_prompt_come_alone() -> None:
    scheduler, _ = reader(10)
    steps = run(scheduler, scoring([1, 2, 3, 4], 3, top=None))[0]
    assert_those_of(of_prompt(steps), [1, 2, 3, 4], 1, 0)
    assert of_answer(steps) == []


def test_a_pass_never_wants_more_logits_than_a_model_gives() -> None:
    scheduler, model = reader(256)
    run(scheduler, scoring([i % 30 for i in range(100)]))
    assert model.rows_seen[:4] == [33, 33, 33, 1]


def parked(chunk: int, limit: int, *, before: int, other: Request) -> tuple[Request, list[Step]]:
    """A request for the log-probabilities of its prompt that comes `before` steps after another
    one, and waits for that one's end; and its Steps."""
    model = FakeModel(LOGITS, V, n_ctx=60, cells=60)
    scheduler = Scheduler(model, drafters(LOGITS), Fixed(0, ""), Ticks(), prefill_chunk=chunk)
    scheduler.submit(other)
    for _ in range(before):
        scheduler.step()
    asked = scoring([i % 30 for i in range(35)], limit, id=2)
    scheduler.submit(asked)
    passes: list[list[Step]] = []
    while scheduler.busy:
        passes.append([step for step in scheduler.step() if step.request == 2])
    steps = [step for its in passes for step in its]
    assert passes[0]
    assert passes[-1]
    assert not all(passes), "it waited in between"
    assert emitted(steps) == plain(LOGITS, asked.prompt, WARM, limit, end=-1)
    return asked, steps


@pytest.mark.parametrize(
    ("chunk", "limit", "before"), [(1, 1, 12), (1, 20, 12), (4, 20, 3), (33, 15, 3), (4, 5, 12)]
)
def test_what_is_read_again_after_being_parked_is_not_told_again(
    chunk: int, limit: int, before: int
) -> None:
    """Parked when half of the prompt was read, or a part of the answer was there. The other one
    leaves a beginning of the prompt behind, which ends where no chunk did."""
    other = request(range(10), GREEDY, 45, id=1, end=-1)
    asked, steps = parked(chunk, limit, before=before, other=other)
    assert sum(step.prefilled for step in steps) > 35
    assert_those_of(of_prompt(steps), asked.prompt, 1, 2)
    assert_those_of(of_answer(steps), [*asked.prompt, *emitted(steps)], 35, 2)
    assert {step.cached for step in steps} == {0}


def test_what_memory_still_has_is_not_read_again_for_that() -> None:
    """The other one ends before it needs the room of the one that was parked."""
    other = request([31] * 10, GREEDY, 19, id=1, end=-1)
    asked, steps = parked(4, 5, before=12, other=other)
    assert sum(step.prefilled for step in steps) == 35
    assert_those_of(of_prompt(steps), asked.prompt, 1, 2)


def test_a_pass_that_fails_is_not_told_twice() -> None:
    scheduler, model = reader(4)
    scheduler.submit(asked := scoring(range(1, 12)))
    steps = scheduler.step()
    model.fail_next = BackendError("broken")
    with pytest.raises(BackendError):
        scheduler.step()
    while scheduler.busy:
        steps += scheduler.step()
    assert_those_of(of_prompt(steps), asked.prompt, 1, 2)


@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=5),
    chunk=st.integers(1, 40),
    limit=st.integers(1, 12),
)
@settings(max_examples=100, deadline=None)
def test_company_changes_nothing(prompts: list[list[int]], chunk: int, limit: int) -> None:
    scheduler, _ = reader(chunk, n_ctx=45, cells=50, max_sequences=3)
    asked = [scoring(prompt, limit, id=i, top=i) for i, prompt in enumerate(prompts)]
    steps = run(scheduler, *asked)
    for one in asked:
        text = [*one.prompt, *emitted(steps[one.id])]
        assert_those_of(of_prompt(steps[one.id]), one.prompt, 1, one.id)
        assert_those_of(of_answer(steps[one.id]), text, len(one.prompt), one.id)
