"""The figures, worked out by hand from a few Steps. Seconds are eighths, whose sums are exact."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.tui.speed.draw import ASCII
from edgespec.tui.speed.stats import AnswerStats, StatsModel, StatsView
from edgespec.tui.speed.tally import POSITIONS
from edgespec.types import TARGET, Completion, FinishReason, Stats, Step, Usage

N_CTX = 4096
EIGHTHS = st.integers(1, 64).map(lambda n: n / 8)


def step(
    drafted: int = 0,
    accepted: int = 0,
    *,
    seconds: float = 0.125,
    draft_s: float = 0.0,
    sample_s: float = 0.0,
    other_s: float = 0.0,
    drafter: str = "model",
    position: int = 10,
    cached: int = 0,
    reason: str = "",
    k: int | None = None,
) -> Step:
    """One that decodes. seconds: of verifying."""
    sources = (drafter,) * accepted + (TARGET,)
    return Step(
        sequence=0,
        request=0,
        position=position,
        cached=cached,
        k=drafted if k is None else k,
        drafter=drafter if drafted else "",
        drafted=drafted,
        accepted=accepted,
        tokens=tuple(range(len(sources))),
        sources=sources,
        prefilled=0,
        rows=drafted + 1,
        pass_rows=drafted + 1,
        sequences=1,
        draft_s=draft_s,
        verify_s=seconds,
        sample_s=sample_s,
        other_s=other_s,
        reason=reason,
    )


def prompt(
    prefilled: int,
    *,
    seconds: float = 0.125,
    last: bool = True,
    position: int = 10,
    cached: int = 0,
) -> Step:
    """A piece of the prompt; the last one emits a token."""
    one = step(seconds=seconds, position=position, cached=cached)
    if not last:
        one = replace(one, tokens=(), sources=())
    return replace(one, prefilled=prefilled, rows=prefilled)


def completion(
    tokens: int = 5,
    *,
    ttft_s: float = 0.5,
    prompt_tokens: int = 10,
    cached: int = 0,
    reason: FinishReason = "stop",
) -> Completion:
    return Completion(
        text="text",
        tokens=tuple(range(tokens)),
        finish_reason=reason,
        usage=Usage(prompt_tokens=prompt_tokens, cached_tokens=cached, completion_tokens=tokens),
        stats=Stats(),
        seed=7,
        claim="identical",
        time_to_first_token_s=ttft_s,
        total_s=9.0,
    )


def fed(*steps: Step, model: StatsModel | None = None) -> StatsModel:
    """A model in the middle of an answer of these."""
    model = model or StatsModel(N_CTX)
    model.begin()
    for one in steps:
        model.add(one)
    return model


def view(*steps: Step) -> StatsView:
    return fed(*steps).view()


def known(plain_s: float, *steps: Step) -> StatsModel:
    """The same, by an engine that knows what a plain token costs."""
    model = StatsModel(N_CTX)
    model.expect_plain(plain_s)
    return fed(*steps, model=model)


def told(seen: StatsView) -> dict[str, Any]:
    """What differs from a view of nothing."""
    empty = StatsView()
    return {
        field.name: getattr(seen, field.name)
        for field in fields(StatsView)
        if getattr(seen, field.name) != getattr(empty, field.name)
    }


# Before there is something to tell.


def test_a_new_model_knows_its_context_and_nothing_else() -> None:
    seen = StatsModel(N_CTX).view()
    assert told(seen) == {"n_ctx": N_CTX}
    assert seen.speedup is None
    assert seen.rate is None
    assert seen.positions == ((0, 0),) * POSITIONS


def test_an_answer_begins_with_its_prompt() -> None:
    model = StatsModel(N_CTX)
    model.begin(100)
    assert told(model.view()) == {
        "generating": True,
        "n_ctx": N_CTX,
        "prompt_tokens": 100,
        "context_used": 100,
    }
    assert model.view().reading


# The prompt.


def test_reading_shows_how_far_it_is() -> None:
    model = StatsModel(N_CTX)
    model.begin(100)
    model.add(prompt(48, last=False, position=100, cached=4, seconds=0.25))
    seen = model.view()
    assert seen.reading
    assert (seen.cached, seen.prefilled, seen.prompt_tokens) == (4, 48, 100)
    assert seen.prefill_rate == 48 / 0.25
    assert seen.ttft_s is None
    assert (seen.steps, seen.tokens, seen.rate) == (0, 0, None)


def test_the_first_token_ends_the_reading() -> None:
    seen = view(prompt(64, last=False, seconds=0.25), prompt(32, seconds=0.5))
    assert not seen.reading
    assert seen.ttft_s == 0.75
    assert seen.prefilled == 96
    assert seen.prefill_rate == 96 / 0.75
    assert seen.tokens == 1
    assert seen.steps == 0


def test_time_to_the_first_token_stays_when_more_come() -> None:
    assert view(prompt(64, seconds=0.5), step(), step()).ttft_s == 0.5


def test_a_prompt_that_was_all_in_memory_has_its_first_token_from_a_plain_step() -> None:
    seen = view(step(seconds=0.25, position=80, cached=79), step(position=81, cached=79))
    assert seen.ttft_s == 0.25
    assert seen.prefill_rate is None
    assert (seen.prompt_tokens, seen.cached, seen.prefilled) == (80, 79, 0)


def test_the_first_step_tells_how_long_the_prompt_is() -> None:
    steps = (prompt(64, last=False, position=90), prompt(26, position=90), step(position=91))
    assert view(*steps).prompt_tokens == 90


def test_a_length_of_the_prompt_that_was_told_is_believed() -> None:
    model = StatsModel(N_CTX)
    model.begin(100)
    model.add(prompt(64, position=90))
    assert model.view().prompt_tokens == 100


# Speed.


def test_the_rate_is_that_of_the_last_second_and_a_half() -> None:
    # The first two of these eight quarters of a second are over.
    steps = [step(seconds=0.25)] * 2 + [step(3, 3, seconds=0.25)] + [step(seconds=0.25)] * 5
    seen = view(*steps)
    assert seen.rate == 9 / 1.5
    assert seen.mean_rate == 11 / 2.0


def test_the_rate_begins_with_the_time_there_is() -> None:
    assert view(step(3, 2, seconds=0.25)).rate == 12


def test_a_step_that_takes_longer_is_its_own_rate() -> None:
    assert view(*[step(seconds=0.125)] * 3, step(3, 3, seconds=2.0)).rate == 2


def test_the_prompt_and_its_token_do_not_count_as_speed() -> None:
    seen = view(prompt(1000, seconds=8.0), step(seconds=0.25), step(seconds=0.25))
    assert seen.rate == seen.mean_rate == 4
    assert seen.tokens == 3


def test_all_seconds_of_a_step_count() -> None:
    one = step(seconds=0.5, draft_s=0.25, sample_s=0.125, other_s=0.125)
    assert view(one).mean_rate == 1


def test_clocks_that_go_backwards_do_not_make_negative_time() -> None:
    seen = view(step(seconds=0.0, other_s=-0.5), step(seconds=0.5))
    assert seen.mean_rate == 4


def test_steps_without_time_have_no_rate() -> None:
    seen = fed(*[step(seconds=0.0)] * 20).view()
    assert seen.rate is seen.mean_rate is seen.peak_rate is seen.speedup is None
    assert seen.tokens == 20


def test_cells_hold_half_a_second_each() -> None:
    seen = view(step(seconds=0.25), step(2, 2, seconds=0.25), step(seconds=0.25))
    assert seen.rates == (8.0,)  # the second cell is not full yet


def test_a_step_across_cells_is_shared_out() -> None:
    # Five tokens in 1.25 s fill two cells, and one token of them goes into the third.
    seen = view(step(4, 4, seconds=1.25), step(1, 1, seconds=0.25))
    assert seen.rates == (4.0, 4.0, 6.0)


def test_the_last_32_cells_are_kept() -> None:
    seen = view(step(9, 9, seconds=0.5), *[step(seconds=0.5)] * 32)
    assert seen.rates == (2.0,) * 32


@given(st.lists(st.tuples(EIGHTHS, st.integers(0, 8)), max_size=20))
def test_cells_hold_all_tokens_but_those_of_the_last_one(
    made: list[tuple[float, int]],
) -> None:
    # 20 steps of at most 8 seconds may need more cells than are kept: a tenth of the time here.
    steps = [step(n, n, seconds=seconds / 16) for seconds, n in made]
    seen = view(*steps)
    total = sum(seconds / 16 for seconds, _ in made)
    assert len(seen.rates) == int(total / 0.5)
    tokens = sum(n + 1 for _, n in made)
    assert sum(seen.rates) * 0.5 <= tokens + 1e-9


def test_the_peak_is_the_highest_rate_from_the_eighth_step_on() -> None:
    fast, slow = step(3, 3, seconds=0.125), step(seconds=0.25)
    assert view(*[fast] * 7).peak_rate is None
    assert view(*[fast] * 8).peak_rate == 32
    seen = view(*[fast] * 8, *[slow] * 20)
    assert seen.peak_rate == 32
    assert seen.rate == 4


# What a plain token costs, and what drafts are worth.


def test_a_plain_token_costs_what_eight_of_them_cost() -> None:
    steps = [step(seconds=0.25)] * 4 + [step(seconds=0.5)] * 4
    assert view(*steps[:7]).plain_s is None
    assert view(*steps).plain_s == 0.375


def test_until_then_the_engine_says_what_a_plain_token_costs() -> None:
    assert known(0.75, *[step(seconds=0.25)] * 7).view().plain_s == 0.75
    assert known(0.75, *[step(seconds=0.25)] * 8).view().plain_s == 0.25


@pytest.mark.parametrize("nothing", [None, 0.0, -1.0, math.nan, math.inf])
def test_an_engine_that_does_not_know_makes_nobody_guess(nothing: float | None) -> None:
    model = known(0.5)
    model.expect_plain(nothing)
    assert model.view().plain_s is None


def test_of_earlier_answers_only_the_last_64_steps_are_looked_at() -> None:
    plain, drafted = [step(seconds=0.25)] * 8, [step(1, 0)] * 57
    for count, known in ((56, 0.25), (57, None)):
        model = fed(*plain)
        fed(*drafted[:count], model=model)
        assert model.view().plain_s == known


def test_an_answer_is_compared_with_its_own_plain_steps() -> None:
    # The machine became twice as slow with the second answer.
    model = fed(*[step(seconds=0.25)] * 30)
    fed(*[step(seconds=0.5)] * 8, *[step(1, 1, seconds=0.5)] * 60, model=model)
    assert model.view().plain_s == 0.5


def test_plain_steps_of_an_earlier_answer_count() -> None:
    model = fed(*[step(seconds=0.25)] * 8)
    fed(step(2, 1), model=model)
    assert model.view().plain_s == 0.25


def test_looking_for_a_draft_in_vain_is_no_part_of_a_plain_token() -> None:
    assert view(*[step(seconds=0.25, draft_s=0.5)] * 8).plain_s == 0.25


def test_neither_prompts_nor_drafts_are_plain() -> None:
    steps = [prompt(8, seconds=4.0)] * 8 + [step(1, 0, seconds=4.0)] * 8
    assert view(*steps).plain_s is None


def test_the_speedup_compares_with_plain_steps() -> None:
    # 8 + 24 tokens in 2 + 3 seconds, plain 0.25 s each.
    steps = [step(seconds=0.25)] * 8 + [step(4, 2, seconds=0.375)] * 8
    seen = view(*steps)
    assert seen.speedup == 32 * 0.25 / 5
    assert not seen.measured
    assert seen.tokens_per_step is not None
    assert seen.step_s is not None
    assert seen.speedup == pytest.approx(seen.tokens_per_step * 0.25 / seen.step_s)


def test_drafts_that_do_not_pay_are_shown_to_hurt() -> None:
    steps = [step(seconds=0.25)] * 8 + [step(4, 0, seconds=0.375)] * 8
    assert view(*steps).speedup == pytest.approx(0.8)


def test_there_is_no_speedup_before_the_eighth_step() -> None:
    assert known(0.25, *[step(2, 2)] * 7).view().speedup is None
    assert known(0.25, *[step(2, 2)] * 8).view().speedup == 6


def test_there_is_no_speedup_without_a_plain_token() -> None:
    assert view(*[step(2, 2)] * 100).speedup is None


def test_plain_decoding_alone_is_as_fast_as_plain_decoding() -> None:
    seen = view(prompt(10), *[step(seconds=0.25)] * 20)
    assert seen.speedup == 1
    assert seen.acceptance is None
    assert seen.break_even is None
    assert seen.tokens_per_step == 1
    assert seen.ks == (0,) * 20
    assert seen.drafter == ""
    assert seen.positions == ((0, 0),) * POSITIONS


def test_break_even_is_where_the_speedup_is_1() -> None:
    seen = known(0.25, *[step(4, 1, seconds=0.375)] * 8).view()
    assert seen.break_even == 0.125
    at = [step(4, 1, seconds=0.375)] * 4 + [step(4, 0, seconds=0.375)] * 4
    there = known(0.25, *at).view()
    assert there.acceptance == there.break_even == 0.125
    assert there.speedup == 1


def test_drafts_that_cost_nothing_break_even_at_once() -> None:
    assert known(0.25, *[step(4, 1, seconds=0.125)] * 8).view().break_even == 0


def test_break_even_may_be_out_of_reach() -> None:
    assert known(0.25, *[step(1, 1, seconds=1.0)] * 8).view().break_even == 3


def test_there_is_no_break_even_without_a_plain_token() -> None:
    assert view(*[step(4, 1)] * 8).break_even is None


# Drafts.


def test_acceptance_is_the_share_of_verified_drafts() -> None:
    seen = view(*[step(4, 3)] * 4, *[step(2, 0)] * 4)
    assert (seen.accepted, seen.drafted) == (12, 24)
    assert seen.acceptance == 0.5
    assert seen.tokens_per_step == 20 / 8


def test_ratios_wait_for_the_eighth_step_or_the_end() -> None:
    model = known(0.25, *[step(2, 1)] * 7)
    seen = model.view()
    assert seen.acceptance is seen.tokens_per_step is seen.break_even is None
    assert (seen.accepted, seen.drafted) == (7, 14)
    model.end(None)
    assert model.view().acceptance == 0.5
    assert model.view().tokens_per_step == 2


def test_a_position_counts_only_where_it_was_drafted() -> None:
    seen = view(step(3, 2), step(1, 0), step(11, 10))
    # From the ninth on: 9, 10 and 11 were drafted, 9 and 10 accepted.
    assert seen.positions == ((2, 3), (2, 2), (1, 2), *[(1, 1)] * 5, (2, 3))


@given(st.lists(st.integers(0, 32).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))))
def test_positions_add_up_to_all_drafts(drafts: list[tuple[int, int]]) -> None:
    seen = view(*[step(drafted, accepted) for drafted, accepted in drafts])
    assert sum(accepted for accepted, _ in seen.positions) == seen.accepted
    assert sum(drafted for _, drafted in seen.positions) == seen.drafted
    if seen.acceptance is not None:
        assert 0 <= seen.acceptance <= 1


def test_the_last_step_is_told() -> None:
    seen = view(step(5, 5), step(3, 2, k=4, drafter="n-gram", reason="a match"))
    assert (seen.k, seen.drafter, seen.reason) == (4, "n-gram", "a match")
    assert (seen.last_drafted, seen.last_accepted) == (3, 2)
    assert seen.ks == (5, 3)


def test_the_last_32_draft_lengths_are_kept() -> None:
    assert view(*[step(8, 0)] * 3, *[step(2, 0)] * 32).ks == (2,) * 32


def test_a_step_has_three_parts() -> None:
    seen = view(
        step(1, 1, draft_s=0.25, seconds=0.5, sample_s=0.125, other_s=0.125),
        step(1, 1, draft_s=0.75, seconds=1.5, sample_s=0.125, other_s=0.375),
    )
    assert (seen.draft_s, seen.verify_s, seen.rest_s) == (0.5, 1.0, 0.375)
    assert seen.step_s == 1.875


def test_the_parts_are_those_of_the_last_32_steps() -> None:
    seen = view(step(seconds=8.0), *[step(seconds=0.25)] * 32)
    assert seen.verify_s == 0.25


def test_the_context_holds_what_the_last_step_left() -> None:
    assert view(prompt(10, position=412, last=False)).context_used == 412
    assert view(step(3, 2, position=500)).context_used == 503
    assert view().n_ctx == N_CTX


# Answer after answer.


def test_a_new_answer_starts_from_nothing_but_the_session_stays() -> None:
    model = fed(prompt(10, position=40), *[step(2, 1, position=50)] * 8)
    model.end(completion())
    model.begin()
    assert told(model.view()) == {
        "generating": True,
        "n_ctx": N_CTX,
        "context_used": 52,
        "turns": 1,
        "session_tokens": 17,
    }


def test_an_answer_counts_for_the_session_at_its_end_and_once() -> None:
    model = fed(prompt(10), *[step()] * 4)
    assert model.view().turns == 0
    for _ in range(2):
        model.end(completion())
        assert (model.view().turns, model.view().session_tokens) == (1, 5)
    model.begin()
    assert (model.view().turns, model.view().session_tokens) == (1, 5)


def test_an_answer_without_a_token_is_no_turn() -> None:
    model = fed(prompt(10, last=False))
    model.end(None)
    assert model.view().turns == 0
    model.begin()
    assert model.view().turns == 0


def test_an_answer_that_was_never_ended_is_a_turn_when_the_next_begins() -> None:
    model = fed(prompt(10), step())
    fed(prompt(10), step(), step(), model=model)
    model.end(None)
    assert (model.view().turns, model.view().session_tokens) == (2, 5)


def test_the_session_weighs_speedups_by_tokens() -> None:
    # 24 tokens at x3 in 2 s save 4 s; 8 at x0.5 in 4 s lose 2 s.
    model = known(0.25, *[step(2, 2, seconds=0.25)] * 8)
    model.end(None)
    assert (model.view().session_speedup, model.view().saved_s) == (3, 4)
    fed(*[step(2, 0, seconds=0.5)] * 8, model=model)
    model.end(None)
    seen = model.view()
    assert seen.session_speedup == (24 * 3 + 8 * 0.5) / 32
    assert seen.saved_s == 2
    assert (seen.turns, seen.session_tokens) == (2, 32)


def test_a_session_may_lose_time() -> None:
    model = known(0.25, *[step(2, 0, seconds=0.5)] * 8)
    model.end(None)
    assert model.view().saved_s == -2


def test_answers_whose_speedup_is_not_known_are_left_out_of_the_mean() -> None:
    model = known(0.25, *[step(2, 2, seconds=0.25)] * 8)
    model.end(None)
    fed(*[step(1, 0)] * 3, model=model)
    model.end(None)
    seen = model.view()
    assert (seen.turns, seen.session_tokens) == (2, 27)
    assert seen.session_speedup == 3


def test_a_session_of_unknown_speed_has_no_mean() -> None:
    model = fed(step(1, 1))
    model.end(None)
    assert model.view().session_speedup is None
    assert model.view().saved_s == 0


def test_a_measured_speedup_replaces_the_estimate() -> None:
    model = known(0.25, *[step(2, 2, seconds=0.25)] * 8)
    model.end(None)
    model.compared(2.5)
    seen = model.view()
    assert (seen.speedup, seen.measured) == (2.5, True)
    assert seen.session_speedup == 2.5
    assert seen.saved_s == 2 * 1.5
    model.begin()
    assert (model.view().speedup, model.view().measured) == (None, False)
    assert model.view().session_speedup == 2.5


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan, math.inf])
def test_a_measurement_that_cannot_be_is_not_believed(nonsense: float) -> None:
    model = known(0.25, *[step(2, 2, seconds=0.25)] * 8)
    model.compared(nonsense)
    assert (model.view().speedup, model.view().measured) == (3, False)


def test_a_plain_answer_for_comparison_is_no_turn() -> None:
    model = known(0.25, *[step(2, 2, seconds=0.25)] * 8)
    model.end(None)
    fed(*[step(seconds=0.25)] * 24, model=model)
    model.end(completion())
    model.compared(2.75)
    seen = model.view()
    assert (seen.speedup, seen.measured) == (2.75, True)
    assert (seen.turns, seen.session_tokens, seen.saved_s) == (1, 24, 4)
    model.begin()
    assert (model.view().turns, model.view().session_tokens) == (1, 24)


def test_the_completion_knows_better() -> None:
    model = fed(prompt(64, seconds=0.25, cached=3), step())
    model.end(completion(ttft_s=0.75, prompt_tokens=90, cached=26))
    seen = model.view()
    assert not seen.generating
    assert (seen.ttft_s, seen.prompt_tokens, seen.cached) == (0.75, 90, 26)


def test_an_answer_that_was_stopped_early_had_no_first_token() -> None:
    model = fed(prompt(64, last=False))
    model.end(completion(0, ttft_s=0.75, reason="cancelled"))
    assert model.view().ttft_s is None
    assert not model.view().reading


# What is kept with an answer.


def test_an_answer_keeps_its_figures() -> None:
    steps = [step(2, 2, seconds=0.25)] * 7 + [step(4, 1, seconds=0.25, drafter="n-gram+model")]
    model = known(0.25, prompt(8), *steps)
    done = completion(24, ttft_s=0.5)
    model.end(done)
    assert model.answer(done) == AnswerStats(
        tokens=24,
        rate=23 / 2,
        speedup=23 * 0.25 / 2,
        measured=False,
        acceptance=15 / 18,
        ttft_s=0.5,
        seed=7,
        drafters=("model", "n-gram"),
        claim="identical",
    )
    model.compared(2.0)
    assert model.answer(done).speedup == 2
    assert model.answer(done).measured


FULL = AnswerStats(
    tokens=260,
    rate=110.7,
    speedup=2.13,
    acceptance=0.515,
    ttft_s=0.41,
    seed=2**40,
    drafters=("n-gram",),
    claim="identical",
)


def test_the_line_below_an_answer() -> None:
    assert FULL.line() == (
        "110.7 tok/s · ×2.1 est · 52% accepted · 260 tok · ttft 0.41 s · same output as plain"
    )
    other = replace(FULL, claim="same distribution")
    assert other.line().endswith(" · same distribution")
    assert replace(FULL, measured=True).line().split(" · ")[1] == "×2.1 measured"
    assert replace(FULL, speedup=0.8).line().split(" · ")[1] == "×0.8 est"
    assert FULL.line(ASCII).startswith("110.7 tok/s | x2.1 est | 52% accepted | 260 tok | ")


def test_what_is_not_known_is_left_out_of_the_line() -> None:
    assert replace(FULL, speedup=None, acceptance=None).line() == (
        "110.7 tok/s · 260 tok · ttft 0.41 s · same output as plain"
    )
    assert AnswerStats().line() == ""
    assert AnswerStats(acceptance=0.0).line() == "0% accepted"


@pytest.mark.parametrize("stats", [FULL, AnswerStats(), replace(FULL, claim="identical")])
def test_what_is_kept_comes_back(stats: AnswerStats) -> None:
    assert AnswerStats.from_dict(json.loads(json.dumps(stats.to_dict()))) == stats


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", "many"),
        ("tokens", -1),
        ("tokens", True),
        ("tokens", 1.5),
        ("tokens", 10**400),
        ("rate", math.nan),
        ("rate", math.inf),
        ("rate", -1.0),
        ("rate", 10**400),
        ("rate", True),
        ("rate", "fast"),
        ("speedup", [2.0]),
        ("acceptance", {}),
        ("seed", 2.5),
        ("drafters", "n-gram"),
        ("drafters", 3),
        ("claim", "perfect"),
        ("claim", []),
        ("measured", 1),
    ],
)
def test_a_value_that_is_not_usable_is_left_out(name: str, value: object) -> None:
    kept = FULL.to_dict() | {name: value}
    default = getattr(AnswerStats(), name)
    assert AnswerStats.from_dict(kept) == replace(FULL, **{name: default})


def test_names_that_are_none_are_left_out() -> None:
    assert AnswerStats.from_dict({"drafters": ["model", 3, None]}).drafters == ("model",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([field.name for field in fields(AnswerStats)]) | st.text()


@settings(deadline=None)
@given(JSON | st.dictionaries(NAMES, JSON))
def test_nothing_that_was_kept_can_break_a_chat(kept: Any) -> None:
    read = AnswerStats.from_dict(kept)
    assert isinstance(read.line(), str)
    assert AnswerStats.from_dict(json.loads(json.dumps(read.to_dict()))) == read


# Whatever comes.

SECONDS = st.just(0.0) | st.floats(1e-6, 10)


@st.composite
def any_steps(draw: st.DrawFn) -> list[Step]:
    made: list[Step] = []
    for _ in range(draw(st.integers(0, 60))):
        if draw(st.booleans()):
            made.append(prompt(draw(st.integers(1, 512)), last=draw(st.booleans())))
        drafted = draw(st.integers(0, 32))
        seconds, draft_s = draw(SECONDS), draw(SECONDS)
        accepted = draw(st.integers(0, drafted))
        made.append(step(drafted, accepted, seconds=seconds, draft_s=draft_s))
    return made


@settings(deadline=None)
@given(any_steps())
def test_figures_are_within_their_bounds(steps: list[Step]) -> None:
    model = fed()
    for one in steps:
        model.add(one)
        seen = model.view()
        assert seen.acceptance is None or 0 <= seen.acceptance <= 1
        assert seen.break_even is None or seen.break_even >= 0
        assert seen.rate is None or 0 <= seen.rate < math.inf
        assert len(seen.rates) <= 32
        assert len(seen.ks) <= 32
        assert all(0 <= accepted <= drafted for accepted, drafted in seen.positions)
    assert model.view().tokens == sum(len(one.tokens) for one in steps)
