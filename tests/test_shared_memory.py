"""One memory for all sequences: old prefixes go, the latest comers wait, and nobody notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request, Running
from edgespec.drafters.prediction import PredictionDrafter
from edgespec.errors import BackendError, NoRoomError
from edgespec.protocols import DraftPolicy
from edgespec.types import Step
from tests.fakes import ErraticPolicy, FakeModel, Ticks, hashed_logits
from tests.test_scheduler import (
    ALL_PARAMS,
    GREEDY,
    WARM,
    V,
    drafters,
    emitted,
    plain,
    request,
    run,
)

LOGITS = hashed_logits(V, seed=2)
PLAIN = Fixed(0, "")


class Watched:
    """A scheduler that is looked at after every step, and what came of its requests.

    steps: by request. parkings: the requests that were parked, in order.
    """

    def __init__(
        self, policy: DraftPolicy = PLAIN, *, prefill_chunk: int = 5, **options: int | None
    ) -> None:
        self.model = FakeModel(LOGITS, V, **options)  # type: ignore[arg-type]
        self.drafters = drafters(LOGITS)
        self.scheduler = Scheduler(
            self.model, self.drafters, policy, Ticks(), prefill_chunk=prefill_chunk
        )
        self.steps: dict[int, list[Step]] = {}
        self.passes: list[list[Step]] = []
        self.parkings: list[int] = []
        self._park = self.scheduler._park
        setattr(self.scheduler, "_park", self._noted)  # noqa: B010  a method of the instance

    def _noted(self, shares: list) -> bool:
        before = {one.request.id for one in self.scheduler._parked}
        parked = self._park(shares)
        self.parkings += [
            r.request.id for r in self.scheduler._parked if r.request.id not in before
        ]
        return parked

    def submit(self, *requests: Request) -> None:
        for one in requests:
            self.steps[one.id] = []
            self.scheduler.submit(one)

    def step(self) -> list[Step]:
        steps = self.scheduler.step()
        for step in steps:
            self.steps[step.request].append(step)
        self.passes.append(steps)
        self.check()
        return steps

    def run(self, *requests: Request) -> None:
        """To the end of all, which must come."""
        self.submit(*requests)
        for _ in range(2000):
            if not self.scheduler.busy:
                return
            self.step()
        raise AssertionError("somebody starves")

    def check(self) -> None:
        """What is believed of memory is true, and nobody waits for nobody."""
        scheduler = self.scheduler
        believed = {slot: one.tokens[: one.kept] for slot, one in scheduler._running.items()}
        assert not believed.keys() & scheduler.slots.held.keys()
        assert {**believed, **scheduler.slots.held} == self.model.memory
        assert scheduler._running or not scheduler._parked
        begun = set(believed)
        assert all(set(one.tokens) == begun for one in self.drafters.values())

    def text(self, id: int) -> list[int]:
        return emitted(self.steps[id])

    @property
    def held(self) -> int:
        """Cells in use."""
        return sum(map(len, self.model.memory.values()))

    @property
    def running(self) -> dict[int, Running]:
        """By request."""
        return {one.request.id: one for one in self.scheduler._running.values()}

    def assert_idle(self) -> None:
        assert not self.scheduler.busy
        assert len(self.scheduler.slots.held) == self.model.max_sequences
        self.check()


def assert_adds_up(watched: Watched, one: Request) -> None:
    """A request's Steps follow one another, and account for every token of its prompt."""
    steps = watched.steps[one.id]
    length = len(one.prompt)
    for step in steps:
        assert step.position == length
        length += len(step.tokens)
        assert step.rows == (step.prefilled or step.drafted + 1)
        assert step.pass_rows <= watched.model.max_rows
    cached = steps[0].cached
    assert {step.cached for step in steps} == {cached}
    assert cached < len(one.prompt)
    if one.id not in watched.parkings:
        # The prompt's last token may be decoded like any other.
        read = cached + sum(step.prefilled for step in steps)
        assert read in (len(one.prompt), len(one.prompt) - 1)
    reasons = [step.finish_reason for step in steps]
    assert all(reason is None for reason in reasons[:-1])
    assert reasons[-1] is not None


# Two that do not fit.


def test_the_latest_comer_waits_and_goes_on_where_it_was() -> None:
    watched = Watched(n_ctx=40, cells=40)
    first, second = (request([i, 3, 4], WARM, 30, id=i, end=-1) for i in (1, 2))
    watched.run(first, second)
    assert watched.parkings == [2]
    for one in (first, second):
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, 30, end=-1)
        assert_adds_up(watched, one)
    assert all(1 in {step.request for step in steps} for steps in watched.passes[:30])
    watched.assert_idle()


def test_what_memory_has_lost_meanwhile_is_read_again() -> None:
    watched = Watched(n_ctx=40, cells=40)
    watched.run(*(request([i, 3, 4], WARM, 30, id=i, end=-1) for i in (1, 2)))
    again = [step for step in watched.steps[2] if step.prefilled and step.position > 3]
    assert sum(step.prefilled for step in again) == again[0].position == 20
    assert sum(step.prefilled for step in watched.steps[1]) == 3


def test_the_one_that_is_parked_keeps_its_memory_while_there_is_room() -> None:
    watched = Watched(n_ctx=40, cells=40)
    long = request([2, 3, 4], WARM, 37, id=2, end=-1)
    # When memory is full, the first one needs but one cell more.
    watched.run(request([1, 3, 4], WARM, 19, id=1, end=-1), long)
    assert watched.parkings == [2]
    assert sum(step.prefilled for step in watched.steps[2]) == 3
    assert watched.text(2) == plain(LOGITS, long.prompt, WARM, 37, end=-1)


def test_old_prefixes_go_before_anybody_waits() -> None:
    watched = Watched(n_ctx=60, cells=60, max_sequences=4)
    for i in (1, 2):
        watched.run(request([i] * 10, GREEDY, 6, id=i, end=-1))
    assert sum(map(bool, watched.model.memory.values())) == 2
    new = [request([i, 3, 4], WARM, 20, id=i, end=-1) for i in (5, 6)]
    watched.run(*new)
    assert watched.parkings == []
    for one in new:
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, 20, end=-1)
    # 22 + 22 of the new ones, and of the old ones the one used last.
    assert sorted(len(held) for held in watched.model.memory.values()) == [0, 15, 22, 22]
    watched.run(request([2] * 11, GREEDY, 1, id=7, end=-1))
    assert watched.steps[7][0].cached == 10


def test_nobody_comes_in_before_those_who_were_parked() -> None:
    watched = Watched(n_ctx=40, cells=40, max_sequences=3)
    requests = [request([i, 3, 4], WARM, 30, id=i, end=-1) for i in range(1, 7)]
    watched.run(*requests)
    assert {2, 3} <= set(watched.parkings)
    ends = [step.request for steps in watched.passes for step in steps if step.finish_reason]
    assert ends == sorted(ends)
    for one in requests:
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, 30, end=-1)


def test_several_are_parked_for_one_pass_and_come_back_in_order() -> None:
    watched = Watched(n_ctx=64, cells=64, max_sequences=4, prefill_chunk=50)
    small = [request([i, 3], WARM, 60, id=i, end=-1) for i in (3, 4, 5)]
    watched.submit(*small)
    for _ in range(6):
        watched.step()
    watched.submit(long := request([1] * 40, WARM, 20, id=1, end=-1))
    while len(watched.parkings) < 3 and watched.scheduler.busy:
        watched.step()
    assert watched.parkings == [5, 4, 3]
    watched.run()
    for one in (*small, long):
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, one.max_tokens, end=-1)
        assert_adds_up(watched, one)
    watched.assert_idle()


def test_a_request_alone_that_cannot_fit_is_an_error_and_no_trap() -> None:
    watched = Watched(n_ctx=40, cells=12)
    watched.submit(request([1, 2, 3], GREEDY, 30, id=1, end=-1), request([4, 5], GREEDY, 8, id=2))
    while len(watched.text(1)) < 10:
        watched.step()
    assert watched.parkings == [2]
    with pytest.raises(NoRoomError):
        watched.step()
    watched.check()
    watched.scheduler.cancel(1)
    watched.run()
    assert watched.text(2) == plain(LOGITS, [4, 5], GREEDY, 8)
    watched.assert_idle()


# Parked in the middle of a prompt.


def crowded() -> tuple[Watched, Request, Request]:
    """A long prompt, half read, and a short one that has most of its own from before."""
    watched = Watched(n_ctx=50, cells=50, max_sequences=3)
    common = [1 + i % 7 for i in range(16)]
    watched.run(request(common, GREEDY, 1, id=0, end=-1))
    long = request([9] * 47, WARM, 3, id=1, end=-1)
    watched.submit(long)
    for _ in range(6):
        watched.step()
    assert len(watched.model.memory[watched.running[1].slot]) == 30
    short = request([*common, 8, 8, 8, 8, 8], WARM, 4, id=2, end=-1)
    return watched, long, short


def test_one_who_was_the_only_one_to_read_is_parked() -> None:
    """The other one reads a longer prompt, and has its turn in the next pass."""
    watched, long, short = crowded()
    watched.run(short)
    assert watched.parkings == [2]
    for one in (long, short):
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, one.max_tokens, end=-1)
        assert_adds_up(watched, one)
    watched.assert_idle()


def half_read() -> Watched:
    """One that decodes, and one that was parked when half of its prompt was read."""
    watched = Watched(n_ctx=40, cells=40)
    watched.submit(request([1, 3, 4], WARM, 30, id=1, end=-1))
    for _ in range(14):
        watched.step()
    watched.submit(request([5] * 36, WARM, 4, id=2, end=-1))
    while not watched.parkings:
        watched.step()
    assert watched.steps[2]
    assert not watched.text(2)
    return watched


def test_a_prompt_is_parked_half_read() -> None:
    watched = half_read()
    watched.run()
    assert watched.text(1) == plain(LOGITS, [1, 3, 4], WARM, 30, end=-1)
    assert watched.text(2) == plain(LOGITS, [5] * 36, WARM, 4, end=-1)
    steps = watched.steps[2]
    assert {step.cached for step in steps} == {0}, "what it read itself was not there before"
    assert sum(step.prefilled for step in steps) > 36
    watched.assert_idle()


def test_what_was_lost_before_the_first_pass_was_not_cached() -> None:
    watched = Watched(n_ctx=40, cells=40)
    watched.run(request([7] * 10, GREEDY, 1, id=0, end=-1))
    watched.submit(request([1, 3, 4], WARM, 33, id=1, end=-1))
    while watched.held < 39:
        watched.step()
    again = request([*[7] * 10, 6, 6], WARM, 3, id=2, end=-1)
    watched.run(again)
    assert watched.parkings == [2]
    assert watched.steps[2][0].cached == 0
    assert sum(step.prefilled for step in watched.steps[2]) == 12
    assert watched.text(2) == plain(LOGITS, again.prompt, WARM, 3, end=-1)


def test_nobody_else_comes_in_while_somebody_is_parked() -> None:
    watched = half_read()
    watched.submit(request([6, 6], WARM, 4, id=3))
    while not watched.steps[3]:
        assert 3 not in watched.running or 2 in watched.running
        watched.step()
    assert watched.steps[1][-1].finish_reason
    watched.run()
    assert watched.text(3) == plain(LOGITS, [6, 6], WARM, 4)


# Cancelling.


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (2, 1, 3)])
def test_cancelling_in_any_state_leaves_all_slots_free(order: Sequence[int]) -> None:
    watched = half_read()
    watched.submit(request([6, 6], WARM, 4, id=3))
    for id in order:
        watched.scheduler.cancel(id)
        watched.check()
    watched.assert_idle()
    assert all(not one.tokens for one in watched.drafters.values())
    watched.run(request([5] * 36, WARM, 4, id=4, end=-1))
    assert watched.text(4) == plain(LOGITS, [5] * 36, WARM, 4, end=-1)


def test_who_is_parked_comes_back_when_the_one_that_runs_is_cancelled() -> None:
    watched = half_read()
    watched.scheduler.cancel(1)
    watched.step()
    assert watched.running.keys() == {2}
    watched.run()
    assert watched.text(2) == plain(LOGITS, [5] * 36, WARM, 4, end=-1)


def test_a_parked_request_that_is_cancelled_leaves_the_other_alone() -> None:
    watched = half_read()
    watched.scheduler.cancel(2)
    watched.run()
    assert watched.text(1) == plain(LOGITS, [1, 3, 4], WARM, 30, end=-1)
    assert watched.text(2) == []


def test_memory_is_not_emptied_while_somebody_is_parked() -> None:
    watched = half_read()
    with pytest.raises(AssertionError):
        watched.scheduler.forget()
    assert any(watched.model.memory.values())
    watched.run()
    watched.scheduler.forget()
    assert not any(watched.model.memory.values())


def test_a_pass_that_fails_after_somebody_was_parked_for_it() -> None:
    watched = Watched(n_ctx=40, cells=40)
    requests = [request([i, 3, 4], WARM, 30, id=i, end=-1) for i in (1, 2)]
    watched.submit(*requests)
    while watched.held < 39:
        watched.step()
    watched.model.fail_next = BackendError("broken")
    with pytest.raises(BackendError, match="broken"):
        watched.step()
    assert watched.parkings == [2]
    watched.check()
    watched.run()
    for one in requests:
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, 30, end=-1)


# Passes that are too wide.


def test_more_rows_than_a_pass_takes_make_the_latest_wait() -> None:
    watched = Watched(Fixed(4, "half"), max_rows=12, max_sequences=4)
    requests = [request([i, 3, 4], WARM, 20, id=i, end=-1) for i in range(1, 5)]
    watched.run(*requests)
    assert watched.parkings
    assert 1 not in watched.parkings
    assert max(watched.model.rows_seen) <= 12
    for one in requests:
        assert watched.text(one.id) == plain(LOGITS, one.prompt, WARM, 20, end=-1)
        assert_adds_up(watched, one)


# Whose prompt is read.


def test_the_shortest_prompt_is_read_first() -> None:
    watched = Watched(max_sequences=3)
    watched.submit(request([1] * 60, GREEDY, 1, id=1))
    watched.step()
    watched.submit(request([2] * 8, GREEDY, 1, id=2), request([3] * 4, GREEDY, 1, id=3))
    reading = [watched.step()[0].request for _ in range(3)]
    assert reading == [3, 2, 1]  # every fourth pass is for the oldest
    assert [watched.step()[0].request for _ in range(2)] == [2, 1]


def test_short_prompts_put_off_a_long_one_for_a_while_only() -> None:
    watched = Watched(max_sequences=2, n_ctx=200)
    watched.submit(request([1] * 60, GREEDY, 1, id=1))
    for id in range(2, 200):
        watched.submit(request([id % 31, 4, 4], GREEDY, 1, id=id))
        watched.step()
        if any(step.finish_reason for step in watched.steps[1]):
            break
    assert id <= 4 * 60 // 5 + 2
    assert sum(len(steps) > 0 for steps in watched.steps.values()) > 20, "the others went on"


# A prediction.


def test_a_prediction_is_followed_on_after_being_parked() -> None:
    model = FakeModel(LOGITS, V, n_ctx=40, cells=40)
    scheduler = Scheduler(
        model, {"prediction": PredictionDrafter()}, Fixed(3, "prediction"), Ticks()
    )
    requests = []
    for id in (1, 2):
        answer = plain(LOGITS, [id, 3, 4], WARM, 30, end=-1)
        requests.append(
            replace(request([id, 3, 4], WARM, 30, id=id, end=-1), prediction=tuple(answer))
        )
    steps = run(scheduler, *requests)
    for one in requests:
        assert tuple(emitted(steps[one.id])) == one.prediction
        assert all(step.accepted == step.drafted for step in steps[one.id])
    first, again = [i for i, step in enumerate(steps[2]) if step.prefilled]
    assert first == 0
    assert again > 1, "it was parked under way"
    assert all(step.drafted == 3 for step in steps[2][again + 1 : -1])


# Anything.


class Arrival(NamedTuple):
    prompt: list[int]
    limit: int
    at: int  # step
    cancelled: int | None  # step


arrivals = st.lists(
    st.builds(
        Arrival,
        # Few different tokens, so that prompts begin alike.
        st.lists(st.integers(0, 1), min_size=1, max_size=24),
        st.integers(1, 30),
        st.integers(0, 25),
        st.one_of(st.none(), st.none(), st.integers(0, 40)),
    ),
    min_size=1,
    max_size=6,
)


def play(watched: Watched, requests: Sequence[Request], arrivals: Sequence[Arrival]) -> set[int]:
    """Let them come and be cancelled; returns those who were cancelled in time."""
    cancelled = set()
    for at in range(3000):
        for one, arrival in zip(requests, arrivals, strict=True):
            if arrival.at == at:
                watched.submit(one)
            if arrival.cancelled == at and one.id in watched.steps:
                done = any(step.finish_reason for step in watched.steps[one.id])
                watched.scheduler.cancel(one.id)
                watched.check()
                cancelled |= set() if done else {one.id}
        if at > 40 and not watched.scheduler.busy:
            return cancelled
        watched.step()
    raise AssertionError("somebody starves")


@given(
    arrivals=arrivals,
    seed=st.integers(0, 10_000),
    sequences=st.integers(1, 4),
    more=st.integers(0, 30),
    chunk=st.integers(1, 9),
)
@settings(max_examples=200, deadline=None)
def test_whatever_room_and_company_everyone_gets_the_plain_stream(
    arrivals: list[Arrival], seed: int, sequences: int, more: int, chunk: int
) -> None:
    policy = ErraticPolicy(list(drafters(LOGITS)), seed)
    options = {"n_ctx": 40, "cells": 40 + more, "max_rows": 16, "max_sequences": sequences}
    watched = Watched(policy, prefill_chunk=chunk, **options)
    requests = [
        request(arrival.prompt, ALL_PARAMS[i % 3], arrival.limit, id=i)
        for i, arrival in enumerate(arrivals)
    ]
    cancelled = play(watched, requests, arrivals)
    watched.assert_idle()
    for one in requests:
        most = min(one.max_tokens, 40 - len(one.prompt))
        wanted = plain(LOGITS, one.prompt, one.params, most)
        if one.id in cancelled:
            assert watched.text(one.id) == wanted[: len(watched.text(one.id))]
        else:
            assert watched.text(one.id) == wanted
            assert_adds_up(watched, one)
