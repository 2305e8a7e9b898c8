"""The draft model on the fake: shared noise, memory kept and cut, sequences batched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.drafters.model import ModelDrafter
from edgespec.protocols import Drafter, DraftPolicy
from edgespec.types import SamplingParams
from tests.fakes import ErraticPolicy, FakeDrafter, FakeModel, Table, Ticks, hashed_logits
from tests.test_scheduler import ALL_PARAMS, GREEDY, WARM, V, emitted, plain, request, run


def blurred(logits: Table, seed: int, noise: float) -> Table:
    """A draft model that resembles the target."""
    other = hashed_logits(V, seed=seed)
    return lambda tokens: logits(tokens) + noise * other(tokens)


def best_token(table: Table) -> Callable[[list[int], SamplingParams], int]:
    return lambda tokens, params: int(table(tokens).argmax())


def pair(
    noise: float, policy: DraftPolicy, sequences: int = 2, **draft: int
) -> tuple[Scheduler, FakeModel, Table]:
    logits = hashed_logits(V, seed=1)
    small = FakeModel(blurred(logits, 5, noise), V, max_sequences=sequences, **draft)
    target = FakeModel(logits, V, max_sequences=sequences)
    drafters: dict[str, Drafter] = {
        "model": ModelDrafter(small, V),
        "noise": FakeDrafter("noise", lambda tokens, params: sum(tokens) % V),
    }
    return Scheduler(target, drafters, policy, Ticks(), prefill_chunk=8), small, logits


@pytest.mark.parametrize("params", ALL_PARAMS, ids=["greedy", "warm", "penalised"])
def test_the_target_as_its_own_draft_is_always_right(params: SamplingParams) -> None:
    scheduler, small, logits = pair(0.0, Fixed(4, "model"))
    steps = run(scheduler, request([1, 2, 3], params, 31, end=-1))[0]
    assert emitted(steps) == plain(logits, [1, 2, 3], params, 31, end=-1)
    decoding = [step for step in steps if not step.prefilled]
    assert all(step.accepted == step.drafted for step in decoding)
    # Four passes a draft, never a pass over what it has read: the first reads two tokens, the
    # last drafted one and the bonus token.
    assert small.rows_seen[4:8] == [2, 1, 1, 1]


@pytest.mark.parametrize("noise", [0.2, 0.7, 3.0])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_any_draft_model_gives_the_plain_stream(noise: float, k: int) -> None:
    scheduler, _, logits = pair(noise, Fixed(k, "model"))
    for i in range(4):
        for params in ALL_PARAMS:
            steps = run(scheduler, request([i, 3, 2], params, 40))[0]
            assert emitted(steps) == plain(logits, [i, 3, 2], params, 40)


def test_shared_noise_agrees_more_often_than_the_drafts_favourite() -> None:
    rates = {}
    for name in ("model", "favourite"):
        scheduler, _, logits = pair(0.35, Fixed(1, name))
        favourite = FakeDrafter("favourite", best_token(blurred(logits, 5, 0.35)))
        scheduler._drafters = {**scheduler._drafters, "favourite": favourite}
        steps = run(scheduler, request([1, 2, 3], WARM, 400, end=-1))[0]
        decoding = [step for step in steps if step.drafted]
        rates[name] = sum(s.accepted for s in decoding) / sum(s.drafted for s in decoding)
    assert rates["model"] > rates["favourite"] + 0.1


def test_sequences_share_the_drafts_passes() -> None:
    scheduler, small, logits = pair(0.3, Fixed(3, "model"), sequences=4)
    requests = [request([i, 7, 7], WARM, 30, id=i, end=-1) for i in range(4)]
    steps = run(scheduler, *requests)
    for one in requests:
        assert emitted(steps[one.id]) == plain(logits, one.prompt, WARM, 30, end=-1)
    drafting = sum(1 for some in steps.values() for step in some if step.drafted)
    assert small.passes < 3 * drafting / 2


def test_a_long_prompt_is_read_in_pieces_before_the_first_draft() -> None:
    scheduler, small, logits = pair(0.0, Fixed(2, "model"), max_rows=16)
    prompt = [i % 30 for i in range(60)]
    steps = run(scheduler, request(prompt, GREEDY, 20, end=-1))[0]
    assert emitted(steps) == plain(logits, prompt, GREEDY, 20, end=-1)
    decoding = [step for step in steps if not step.prefilled]
    assert [step.drafted for step in decoding[:5]] == [0, 0, 0, 2, 2]
    assert max(small.rows_seen) == 16


def test_a_draft_context_that_is_full_only_ends_the_drafting() -> None:
    scheduler, _, logits = pair(0.0, Fixed(3, "model"), n_ctx=20)
    steps = run(scheduler, request([1, 2, 3], GREEDY, 60, end=-1))[0]
    assert emitted(steps) == plain(logits, [1, 2, 3], GREEDY, 60, end=-1)
    assert steps[1].drafted == 3
    assert steps[-2].drafted == 0


def test_a_draft_model_that_cannot_rewind_reads_again() -> None:
    scheduler, _, logits = pair(0.5, Fixed(3, "model"), rewind_depth=0)
    steps = run(scheduler, request([1, 2, 3], WARM, 30, end=-1))[0]
    assert emitted(steps) == plain(logits, [1, 2, 3], WARM, 30, end=-1)


@pytest.mark.parametrize("seed", range(8))
def test_switching_drafters_at_random_keeps_memory_right(seed: int) -> None:
    policy = ErraticPolicy(["model", "noise"], seed, largest=5)
    scheduler, _, logits = pair(0.3, policy)
    requests = [request([i, 4], ALL_PARAMS[i % 3], 50, id=i) for i in range(6)]
    steps = run(scheduler, *requests)
    for one in requests:
        assert emitted(steps[one.id]) == plain(logits, one.prompt, one.params, 50)


@pytest.mark.parametrize("params", ALL_PARAMS, ids=["greedy", "warm", "penalised"])
def test_a_token_the_draft_model_lacks_ends_the_drafting(params: SamplingParams) -> None:
    logits = hashed_logits(V, seed=1)
    small = FakeModel(hashed_logits(V - 8, seed=1), V - 8)
    drafters: dict[str, Drafter] = {"model": ModelDrafter(small, V)}
    scheduler = Scheduler(FakeModel(logits, V), drafters, Fixed(3, "model"), Ticks())
    steps = run(scheduler, request([1, 2, 3], params, 60, end=-1))[0]
    assert emitted(steps) == plain(logits, [1, 2, 3], params, 60, end=-1)
    first = next(i for i, step in enumerate(steps) if max(step.tokens) >= V - 8)
    assert any(step.drafted for step in steps[: first + 1])
    assert not any(step.drafted for step in steps[first + 1 :])
    again = run(scheduler, request([1, 2, 3], params, 10, end=-1))[0]
    assert any(step.drafted for step in again)


def test_tokens_beyond_the_targets_vocabulary_are_never_proposed() -> None:
    small = FakeModel(lambda tokens: hashed_logits(V + 8, scale=1.0)(tokens), V + 8)
    drafter = ModelDrafter(small, V)
    drafter.begin(0, [1, 2], SamplingParams(temperature=5.0, top_k=0, top_p=1, min_p=0, seed=1))
    draft = drafter.propose({0: 30})[0]
    assert len(draft) == 30
    assert max(draft.tokens) < V
    assert all(0.0 < value <= 1.0 for value in draft.confidence)


def test_what_is_forgotten_is_read_again() -> None:
    scheduler, small, logits = pair(0.2, Fixed(3, "model"))
    prompt = [1, 2, 3, 4, 5]
    first = run(scheduler, request(prompt, GREEDY, 12))[0]
    scheduler.forget()
    assert all(not held for held in small.memory.values())
    before = len(small.rows_seen)
    again = run(scheduler, request(prompt, GREEDY, 12))[0]
    assert emitted(again) == emitted(first) == plain(logits, prompt, GREEDY, 12)
    assert again[0].cached == 0
    assert small.rows_seen[before] == len(prompt) + 1


# A memory that all sequences share.


@pytest.mark.parametrize("cells", [12, 30, 60])
@pytest.mark.parametrize("params", ALL_PARAMS, ids=["greedy", "warm", "penalised"])
def test_a_full_draft_memory_costs_drafts_and_no_more(cells: int, params: SamplingParams) -> None:
    logits = hashed_logits(V, seed=1)
    small = FakeModel(blurred(logits, 5, 0.2), V, max_sequences=3, n_ctx=60, cells=cells)
    drafters: dict[str, Drafter] = {"model": ModelDrafter(small, V)}
    target = FakeModel(logits, V, max_sequences=3)
    scheduler = Scheduler(target, drafters, Fixed(3, "model"), Ticks())
    requests = [request([i, 4, 9, 9], params, 50, id=i, end=-1) for i in range(5)]
    steps = run(scheduler, *requests)
    for one in requests:
        assert emitted(steps[one.id]) == plain(logits, one.prompt, params, 50, end=-1)
        # 12 cells hold no more than the beginning of one text.
        assert cells == 12 or any(step.accepted for step in steps[one.id])


def shared(cells: int) -> tuple[ModelDrafter, FakeModel]:
    model = FakeModel(hashed_logits(V, seed=1), V, max_sequences=2, n_ctx=60, cells=cells)
    drafter = ModelDrafter(model, V)
    for slot in range(2):
        drafter.begin(slot, [slot, 1, 2, 3, 4, 5], WARM)
    return drafter, model


def test_where_memory_is_full_in_the_middle_of_a_draft_what_there_is_stands() -> None:
    """And memory is empty, so that the next draft has room again."""
    drafter, model = shared(cells=15)
    whole, _ = shared(cells=100)
    drafts = drafter.propose({0: 5, 1: 5})
    assert not any(model.memory.values())
    expected = whole.propose({0: 2, 1: 2})
    # Two prompts and one drafted token of each fit.
    assert {slot: draft.tokens for slot, draft in drafts.items()} == {
        slot: draft.tokens for slot, draft in expected.items()
    }
    assert {draft.passes for draft in drafts.values()} == {(6, 1)}
    drafter.observe(0, [*drafts[0].tokens, 7])
    assert drafter.propose({0: 1})[0].tokens


def test_prompts_that_do_not_fit_together_are_drafted_for_one_at_a_time() -> None:
    drafter, model = shared(cells=11)
    assert {slot: len(draft) for slot, draft in drafter.propose({0: 2, 1: 2}).items()} == {
        0: 0,
        1: 0,
    }
    assert not any(model.memory.values())
    for slot in (0, 1, 0):
        alone = drafter.propose({slot: 2})[slot]
        assert len(alone) == 2
        assert alone.passes == (6, 1)
        drafter.forget()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_room_the_draft_model_has_the_stream_is_the_plain_one(seed: int) -> None:
    """Targets that are parked, and a draft memory that fills up, under any schedule."""
    logits = hashed_logits(V, seed=1)
    room = 20 + 7 * seed
    small = FakeModel(blurred(logits, 5, 0.3), V, max_sequences=3, n_ctx=60, cells=room)
    drafters: dict[str, Drafter] = {
        "model": ModelDrafter(small, V, window=(0, 8)[seed % 2]),
        "noise": FakeDrafter("noise", lambda tokens, params: sum(tokens) % V),
    }
    target = FakeModel(logits, V, max_sequences=3, n_ctx=60, cells=70)
    policy = ErraticPolicy(["model", "noise"], seed, largest=5)
    scheduler = Scheduler(target, drafters, policy, Ticks(), prefill_chunk=8)
    requests = [request([i, 4, 4], ALL_PARAMS[i % 3], 50, id=i) for i in range(6)]
    steps = run(scheduler, *requests)
    for one in requests:
        assert emitted(steps[one.id]) == plain(logits, one.prompt, one.params, 50)


# Long prompts, and drafts that are told to stop.

LONG = [i % 29 for i in range(200)]


def reading(window: int, prompt: Sequence[int] = LONG) -> tuple[ModelDrafter, FakeModel]:
    model = FakeModel(hashed_logits(V, seed=1), V, max_sequences=1)
    drafter = ModelDrafter(model, V, window=window)
    drafter.begin(0, prompt, GREEDY)
    return drafter, model


def test_of_a_long_prompt_only_the_end_is_read() -> None:
    drafter, model = reading(window=16)
    assert drafter.unread(0) == 15
    draft = drafter.propose({0: 3})[0]
    assert model.memory[0] == [*LONG[-16:], *draft.tokens[:-1]]
    assert draft.passes == (16, 1, 1)
    whole, _ = reading(window=0)
    # The fake's logits depend on the last three tokens only, and the noise on the position in
    # the whole text.
    assert whole.propose({0: 3})[0].tokens == draft.tokens


def test_a_prompt_that_is_not_long_is_read_whole() -> None:
    drafter, model = reading(window=100)
    assert drafter.unread(0) == len(LONG) - 1
    drafter.propose({0: 1})
    assert model.memory[0] == LONG


def test_after_a_long_pause_it_begins_again_near_the_end() -> None:
    """Catches positions that no longer fit the memory: the fake asserts them."""
    drafter, model = reading(window=16)
    tokens = list(LONG)
    for _ in range(3):
        drafter.propose({0: 4})
        emitted = [7 + len(tokens) % 20] * 40
        drafter.observe(0, emitted)
        tokens += emitted
        drafter.propose({0: 2})
        assert model.memory[0][:16] == tokens[-16:]


@pytest.mark.parametrize("params", [GREEDY, WARM])
def test_a_window_changes_no_output(params: SamplingParams) -> None:
    logits = hashed_logits(V, seed=1)
    small = FakeModel(blurred(logits, 5, 0.3), V, max_sequences=2, n_ctx=40)
    drafters: dict[str, Drafter] = {"model": ModelDrafter(small, V, window=8)}
    target = FakeModel(logits, V, max_sequences=2)
    scheduler = Scheduler(target, drafters, Fixed(3, "model"), Ticks())
    for start in ([1, 2, 3], LONG[:90], LONG[:30], LONG[:91]):
        steps = run(scheduler, request(start, params, 60, end=-1))[0]
        assert emitted(steps) == plain(logits, start, params, 60, end=-1)
        # A full context only means to begin again with the end of the text.
        assert sum(step.drafted > 0 for step in steps) > 10


def test_a_new_prompt_after_a_windowed_one_is_read_from_where_it_begins() -> None:
    drafter, model = reading(window=16)
    drafter.propose({0: 2})
    drafter.end(0)
    drafter.begin(0, [5, 6, 7], GREEDY)
    drafter.propose({0: 1})
    assert model.memory[0] == [5, 6, 7]
    drafter.end(0)
    drafter.forget()
    assert model.memory[0] == []


def test_a_draft_ends_where_it_is_told_to_and_not_later() -> None:
    """Each sequence of a batch by itself; what was decided is not asked again."""
    model = FakeModel(hashed_logits(V, seed=1), V, max_sequences=3)
    drafter = ModelDrafter(model, V)
    for slot in range(3):
        drafter.begin(slot, [slot, 1, 2], GREEDY)
    asked: list[tuple[int, int]] = []

    def more(slot: int, tokens: Sequence[int], confidence: Sequence[float]) -> bool:
        assert len(tokens) == len(confidence)
        asked.append((slot, len(tokens)))
        return len(tokens) != slot

    drafts = drafter.propose({0: 4, 1: 4, 2: 4}, more)
    assert {slot: len(draft) for slot, draft in drafts.items()} == {0: 4, 1: 1, 2: 2}
    assert asked == [(0, 1), (1, 1), (2, 1), (0, 2), (2, 2), (0, 3)]
    assert drafts[1].passes == (3,)


def test_a_pass_that_only_reads_is_reported() -> None:
    model = FakeModel(hashed_logits(V, seed=1), V, max_sequences=1, max_rows=64)
    drafter = ModelDrafter(model, V)
    drafter.begin(0, LONG, GREEDY)
    draft = drafter.propose({0: 2})[0]
    assert (draft.tokens, draft.passes) == ((), (64,))
