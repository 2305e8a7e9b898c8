"""The loop on the fake model: equal to plain sampling, whatever drafts, k and company do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.policy import Fixed
from edgespec.decoding.sampling import Sampler
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request, common_prefix
from edgespec.errors import BackendError, ContextFullError, DecodeAbortedError
from edgespec.protocols import DraftPolicy
from edgespec.types import SamplingParams, Step
from tests.fakes import ErraticPolicy, FakeDrafter, FakeModel, Table, Ticks, hashed_logits

V = 32
END = 31
GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
PENALISED = SamplingParams(
    temperature=0.9,
    top_k=12,
    top_p=0.9,
    min_p=0.02,
    typical_p=0.95,
    repeat_penalty=1.3,
    frequency_penalty=0.2,
    presence_penalty=0.1,
    penalty_last_n=16,
    logit_bias={3: 1.5, END: -1.0},
    seed=11,
)
ALL_PARAMS = [GREEDY, WARM, PENALISED]


def plain(
    logits: Table, prompt: Sequence[int], params: SamplingParams, limit: int, end: int = END
) -> list[int]:
    """The reference: no memory, no scheduler, one token after the other."""
    sampler = Sampler(params)
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit:
        tokens.append(sampler.sample(logits(tokens), tokens))
        if tokens[-1] == end:
            break
    return tokens[len(prompt) :]


def drafters(logits: Table) -> dict[str, FakeDrafter]:
    """Perfect, always wrong, random, silent, half-right and the end token in the middle."""

    def perfect(tokens: list[int], params: SamplingParams) -> int:
        return Sampler(params).sample(logits(tokens), tokens)

    def wrong(tokens: list[int], params: SamplingParams) -> int:
        return (perfect(tokens, params) + 1) % V

    def half(tokens: list[int], params: SamplingParams) -> int:
        return perfect(tokens, params) if len(tokens) % 2 else wrong(tokens, params)

    guesses = {
        "perfect": perfect,
        "wrong": wrong,
        "half": half,
        "random": lambda tokens, params: hash(tuple(tokens[-3:])) % V,
        "silent": lambda tokens, params: None,
        "eager-end": lambda tokens, params: END,
    }
    return {name: FakeDrafter(name, guess) for name, guess in guesses.items()}


def request(
    prompt: Sequence[int],
    params: SamplingParams,
    limit: int = 40,
    id: int = 0,
    end: int = END,
) -> Request:
    return Request(
        id=id,
        prompt=tuple(prompt),
        params=params,
        max_tokens=limit,
        ends=lambda token: token == end,
    )


def run(scheduler: Scheduler, *requests: Request) -> dict[int, list[Step]]:
    for one in requests:
        scheduler.submit(one)
    steps: dict[int, list[Step]] = {one.id: [] for one in requests}
    while scheduler.busy:
        for step in scheduler.step():
            steps[step.request].append(step)
    return steps


def emitted(steps: Sequence[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def make(logits: Table, policy: DraftPolicy, **options: int) -> tuple[Scheduler, FakeModel]:
    model = FakeModel(logits, V, **options)
    return Scheduler(model, drafters(logits), policy, Ticks(), prefill_chunk=5), model


@pytest.mark.parametrize("params", ALL_PARAMS, ids=["greedy", "warm", "penalised"])
@pytest.mark.parametrize("name", ["perfect", "wrong", "half", "random", "silent", "eager-end"])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 8])
def test_every_drafter_and_k_gives_the_plain_stream(
    name: str, k: int, params: SamplingParams
) -> None:
    logits = hashed_logits(V, seed=k)
    scheduler, model = make(logits, Fixed(k, name))
    for seed in range(6):
        prompt = [seed, 4, 2, 9, 1, 1, seed]
        steps = run(scheduler, request(prompt, params))[0]
        assert emitted(steps) == plain(logits, prompt, params, 40)
        assert model.memory[steps[-1].sequence] == [*prompt, *emitted(steps)][:-1]


@given(
    prompts=st.lists(
        st.lists(st.integers(0, V - 2), min_size=1, max_size=17), min_size=1, max_size=6
    ),
    seed=st.integers(0, 10_000),
    limit=st.integers(1, 30),
)
@settings(max_examples=150, deadline=None)
def test_erratic_schedules_in_company_change_nothing(
    prompts: list[list[int]], seed: int, limit: int
) -> None:
    logits = hashed_logits(V, seed=seed % 7)
    policy = ErraticPolicy(list(drafters(logits)), seed)
    scheduler, _ = make(logits, policy, max_sequences=3, n_ctx=40)
    requests = [request(prompt, ALL_PARAMS[i % 3], limit, id=i) for i, prompt in enumerate(prompts)]
    steps = run(scheduler, *requests)
    for one in requests:
        most = min(limit, 40 - len(one.prompt))
        assert emitted(steps[one.id]) == plain(logits, one.prompt, one.params, most)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("k", [0, 3])
def test_concurrent_sequences_give_the_tokens_of_solo_runs(count: int, k: int) -> None:
    logits = hashed_logits(V, seed=3)
    prompts = [[i, 2 * i, 7] * (i + 1) for i in range(count)]
    together, model = make(logits, Fixed(k, "half"), max_sequences=4)
    shared = run(together, *(request(p, WARM, id=i) for i, p in enumerate(prompts)))
    for i, prompt in enumerate(prompts):
        alone, _ = make(logits, Fixed(k, "half"), max_sequences=1)
        solo = run(alone, request(prompt, WARM, id=i))
        assert emitted(shared[i]) == emitted(solo[i])
    assert max(step.sequences for steps in shared.values() for step in steps) == count
    assert model.passes < sum(len(steps) for steps in shared.values())


def test_a_perfect_draft_is_kept_whole_and_a_wrong_one_not_at_all() -> None:
    logits = hashed_logits(V)
    for name, accepted in (("perfect", 4), ("wrong", 0)):
        scheduler, model = make(logits, Fixed(4, name))
        steps = run(scheduler, request([1, 2], GREEDY, 31, end=-1))[0]
        decoding = [step for step in steps if not step.prefilled]
        assert {step.accepted for step in decoding} == {accepted}
        assert all(len(step.tokens) == accepted + 1 for step in decoding)
        assert model.passes == 1 + 30 / (accepted + 1)
        for step in decoding:
            assert step.sources == (name,) * accepted + ("target",)


def test_the_end_inside_a_draft_ends_the_answer_there() -> None:
    logits = hashed_logits(V)
    wanted = plain(logits, [1, 2], GREEDY, 12, end=-1)
    end = wanted[6]
    expected = wanted[: wanted.index(end) + 1]
    scheduler, model = make(logits, Fixed(8, "perfect"))
    steps = run(scheduler, request([1, 2], GREEDY, 30, end=end))[0]
    assert emitted(steps) == expected
    assert steps[-1].finish_reason == "stop"
    assert model.memory[steps[-1].sequence] == [1, 2, *expected][:-1]


@pytest.mark.parametrize("limit", range(1, 12))
def test_max_tokens_inside_a_draft(limit: int) -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(4, "perfect"))
    steps = run(scheduler, request([1, 2, 3], GREEDY, limit, end=-1))[0]
    assert len(emitted(steps)) == limit
    assert steps[-1].finish_reason == "length"
    assert all(step.drafted <= step.k for step in steps)


@pytest.mark.parametrize("n_ctx", range(8, 16))
def test_the_context_end_inside_a_draft(n_ctx: int) -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(5, "perfect"), n_ctx=n_ctx)
    steps = run(scheduler, request([1, 2, 3], GREEDY, 100, end=-1))[0]
    assert len(emitted(steps)) == n_ctx - 3
    assert steps[-1].finish_reason == "context"


def test_a_prompt_that_leaves_no_room_is_refused_with_the_numbers() -> None:
    scheduler, _ = make(hashed_logits(V), Fixed(0, ""), n_ctx=10)
    with pytest.raises(ContextFullError, match=r"10 tokens but the context holds 10"):
        scheduler.submit(request(range(10), GREEDY))
    assert not scheduler.busy


def test_prompts_are_read_in_chunks_while_others_decode() -> None:
    scheduler, _ = make(hashed_logits(V), Fixed(0, ""))
    scheduler.submit(request([9, 8, 7], GREEDY, 30, id=1, end=-1))
    scheduler.step()
    scheduler.submit(request(range(1, 13), GREEDY, 30, id=2, end=-1))
    for prefilled in (5, 5, 2):
        one, two = sorted(scheduler.step(), key=lambda step: step.request)
        assert len(one.tokens) == 1
        assert two.prefilled == prefilled
        assert len(two.tokens) == (prefilled == 2)


def test_the_next_turn_reads_only_what_is_new() -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(3, "perfect"))
    first = [1, 2, 3, 4, 5, 6]
    answer = emitted(run(scheduler, request(first, GREEDY, 10, end=-1))[0])
    second = [*first, *answer, 9, 8]
    steps = run(scheduler, request(second, GREEDY, 5, end=-1))[0]
    assert steps[0].cached == len(first) + len(answer) - 1
    assert sum(step.prefilled for step in steps) == 3
    assert emitted(steps) == plain(logits, second, GREEDY, 5, end=-1)


def test_a_repeated_prompt_decodes_its_last_token_again() -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(0, ""))
    first = emitted(run(scheduler, request([5, 6, 7], GREEDY, 4, end=-1))[0])
    steps = run(scheduler, request([5, 6, 7], GREEDY, 4, end=-1))[0]
    assert emitted(steps) == first
    assert steps[0].cached == 2


def test_cancel_between_steps_leaves_a_clean_slot() -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(4, "half"), max_sequences=1)
    scheduler.submit(request([1, 2, 3], WARM, 100, id=1, end=-1))
    scheduler.submit(request([4], WARM, 100, id=2, end=-1))
    for _ in range(5):
        scheduler.step()
    scheduler.cancel(2)
    scheduler.cancel(1)
    scheduler.cancel(99)
    assert not scheduler.busy
    steps = run(scheduler, request([1, 2, 3], WARM, 20))[0]
    assert emitted(steps) == plain(logits, [1, 2, 3], WARM, 20)


@pytest.mark.parametrize("error", [DecodeAbortedError("stop"), BackendError("broken")])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_failed_pass_leaves_memory_as_before(error: Exception, after: int) -> None:
    logits = hashed_logits(V)
    scheduler, model = make(logits, Fixed(4, "half"), max_sequences=2)
    requests = [request([1, 2, 3, 4, 5, 6, 7], WARM, 30, id=1), request([8, 9], WARM, 30, id=2)]
    for one in requests:
        scheduler.submit(one)
    got: dict[int, list[int]] = {1: [], 2: []}
    passes = 0
    while scheduler.busy:
        if passes == after:
            model.fail_next = error
            with pytest.raises(type(error)):
                scheduler.step()
        for step in scheduler.step():
            got[step.request].extend(step.tokens)
        passes += 1
    for one in requests:
        assert got[one.id] == plain(logits, one.prompt, WARM, 30)


def test_a_model_that_cannot_rewind_is_never_given_a_draft() -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(4, "perfect"), rewind_depth=0)
    for prompt in ([1, 2, 3], [1, 2, 4], [1, 2, 3]):
        steps = run(scheduler, request(prompt, GREEDY, 12))[0]
        assert emitted(steps) == plain(logits, prompt, GREEDY, 12)
        assert all(step.drafted == 0 for step in steps)


def test_a_bounded_rewind_bounds_the_draft() -> None:
    logits = hashed_logits(V)
    scheduler, _ = make(logits, Fixed(6, "wrong"), rewind_depth=2)
    steps = run(scheduler, request([1, 2, 3], GREEDY, 12))[0]
    assert emitted(steps) == plain(logits, [1, 2, 3], GREEDY, 12)
    assert max(step.drafted for step in steps) == 2


def test_seconds_add_up_over_shared_passes() -> None:
    logits = hashed_logits(V)
    model = FakeModel(logits, V)
    clock = Ticks()
    scheduler = Scheduler(model, drafters(logits), Fixed(2, "half"), clock)
    steps = run(scheduler, *(request([i, 1, 2], GREEDY, 12, id=i, end=-1) for i in range(3)))
    flat = [step for some in steps.values() for step in some]
    total = sum(s.draft_s + s.verify_s + s.sample_s + s.other_s for s in flat)
    # Six looks at the clock in every pass, so five ticks from the first to the last.
    assert total == pytest.approx(5 * model.passes)


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_common_prefix(first: list[int], second: list[int]) -> None:
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    longer = length + 1
    assert min(len(first), len(second)) == length or first[:longer] != second[:longer]


def test_logits_are_not_kept_over_a_pass() -> None:
    """The fake spoils old logits; this guards the guard."""
    model = FakeModel(hashed_logits(V), V)
    from edgespec.protocols import Row

    first = model.decode([Row(0, 0, 1, True)])
    model.decode([Row(0, 1, 1, True)])
    assert np.isnan(first).all()
