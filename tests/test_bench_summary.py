"""Figures of modes and categories: by hand, on simulated machines, and with much missing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edgespec.bench.judging.pairing import by_prompt, decode_seconds, ratios, trace_seconds
from edgespec.bench.judging.summary import summarise
from edgespec.bench.records import ALL, BASELINE, Cell, Summary
from tests.bench_records import cell, cells, divergence, drafting_cell, failed_cell

MODES = ("off", "auto")
CODE = {"category": "code-write", "question_id": "code-1"}


def overall(made: Sequence[Cell], mode: str = "auto") -> Summary:
    (found,) = [one for one in summarise(made, [mode]) if one.category == ALL]
    return found


def timed(prompts: int, order: Sequence[str], seconds: Callable[[str, int], float]) -> list[Cell]:
    """Cells in `order` for each prompt; `seconds` per token of a mode at a place in the run."""
    made: list[Cell] = []
    for number in range(prompts):
        for place, mode in enumerate(order):
            make = cell if mode == BASELINE else drafting_cell
            made.append(
                make(
                    question_id=f"chat-{number}",
                    mode=mode,
                    repetition=order[:place].count(mode),
                    order=len(made),
                    seconds_per_token=seconds(mode, len(made)),
                )
            )
    return made


def test_every_mode_has_every_category_in_order() -> None:
    found = summarise(cells(("code-write", "chat")), ["off", "native", "auto"])
    assert [(one.mode, one.category) for one in found] == [
        (mode, category)
        for mode in ("off", "native", "auto")
        for category in ("all", "code-write", "chat")
    ]
    assert [one.prompts for one in found] == [12, 6, 6, 0, 0, 0, 12, 6, 6]


def test_speeds_by_hand() -> None:
    """decode: 64 tokens in 6.4 s and in 3.2 s; prompts are medians, then the median of them."""
    made = [
        cell(question_id="a", decode_s=6.4, ttft_s=0.4, prompt_tokens=90, prefill_s=0.3),
        cell(question_id="b", decode_s=3.2, ttft_s=0.6, prompt_tokens=90, prefill_s=0.5),
        cell(question_id="b", decode_s=3.2, ttft_s=0.8, repetition=1, cached_tokens=50),
        cell(question_id="b", decode_s=64.0, ttft_s=0.7, repetition=2, prefill_s=0.5),
    ]
    found = overall(made, BASELINE)
    assert found.decode_tps == pytest.approx((10 + 20) / 2)
    assert found.ttft_s == pytest.approx((0.4 + 0.7) / 2)
    assert found.e2e_tps == pytest.approx((65 / 6.8 + 65 / 4.0) / 2)
    # b: 90 / 0.5, (100 - 50) / 0.4 and 100 / 0.5 tokens a second.
    assert found.prefill_tps == pytest.approx((300 + 180) / 2)


def test_several_turns_have_the_ttft_of_one_and_decode_less() -> None:
    found = overall([cell(turns=2, ttft_s=1.0, completion_tokens=66, decode_s=6.4)], BASELINE)
    assert found.ttft_s == pytest.approx(0.5)
    assert found.decode_tps == pytest.approx(10.0)


def test_comparison_by_hand() -> None:
    made = [
        cell(question_id="a", decode_s=6.4, ttft_s=0.5, trace_s=6.0),
        cell(question_id="b", decode_s=6.4, ttft_s=0.5, trace_s=6.0),
        drafting_cell(question_id="a", decode_s=1.6, ttft_s=0.6, trace_s=1.5),
        drafting_cell(question_id="b", decode_s=6.4, ttft_s=0.7, trace_s=6.0),
    ]
    found = overall(made)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(2.0)  # of 4 and 1
    assert found.trace_speedup == pytest.approx(2.0)
    assert found.e2e_speedup is not None
    assert found.e2e_speedup.value == pytest.approx(math.sqrt(6.9 / 2.2 * 6.9 / 7.1))
    assert found.ttft_ratio == pytest.approx(1.3)
    assert found.win_rate == 0.5
    assert found.worst is not None
    assert found.worst.question_id == "b"
    assert found.worst.speedup == pytest.approx(1.0)
    assert found.verdict == "not enough data"


def test_seconds_are_per_token_so_that_answers_may_differ_in_length() -> None:
    made = [
        *(cell(question_id=name, completion_tokens=101, decode_s=10.0) for name in "ab"),
        *(cell(mode="auto", question_id=n, completion_tokens=51, decode_s=2.5) for n in "ab"),
    ]
    found = overall(made)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(2.0)


def test_the_baseline_is_compared_with_nothing() -> None:
    found = overall(cells(), BASELINE)
    assert found.decode_tps == pytest.approx(10.0)
    for name in ("speedup", "e2e_speedup", "trace_speedup", "ttft_ratio", "verdict", "win_rate"):
        assert getattr(found, name) is None
    assert found.worst is None


def test_a_median_of_repetitions_ignores_one_disturbed() -> None:
    made = [
        *(cell(question_id=n, repetition=r, decode_s=6.4) for n in "ab" for r in range(3)),
        *(drafting_cell(question_id=n, repetition=r, decode_s=3.2) for n in "ab" for r in (0, 1)),
        *(drafting_cell(question_id=n, repetition=2, decode_s=640.0) for n in "ab"),
    ]
    found = overall(made)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(2.0)


@pytest.mark.parametrize(("speedup", "word"), [(0.9, "slower"), (1.0, "same"), (1.2, "faster")])
def test_a_machine_of_known_speed(speedup: float, word: str) -> None:
    """Standard suite, one repetition, every measurement with 3 % of noise (log-normal)."""
    generator = random.Random(11)

    def seconds(mode: str, _: int) -> float:
        pace = 0.1 if mode == BASELINE else 0.1 / speedup
        return pace * math.exp(generator.gauss(0, 0.03))

    found = overall(timed(52, MODES, seconds))
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(speedup, rel=0.03)
    assert found.speedup.low <= speedup <= found.speedup.high
    assert found.verdict == word


def test_mirrored_order_cancels_drift() -> None:
    """The machine takes twice as long at the end of the run as at its start."""

    def seconds(mode: str, order: int) -> float:
        return (0.1 if mode == BASELINE else 0.1 / 1.5) * (1 + order / 48)

    mirrored = overall(timed(12, ("off", "auto", "auto", "off"), seconds))
    assert mirrored.speedup is not None
    assert mirrored.speedup.value == pytest.approx(1.5, rel=1e-9)
    straight = overall(timed(12, ("off", "auto", "off", "auto"), seconds))
    assert straight.speedup is not None
    assert straight.speedup.value < 1.48


def test_only_prompts_that_succeeded_in_both_are_compared() -> None:
    made = [
        *(cell(question_id=name, decode_s=6.4) for name in "abc"),
        *(drafting_cell(question_id=name, decode_s=3.2) for name in "bcd"),
        failed_cell(question_id="a", mode="auto"),
    ]
    found = overall(made)
    assert (found.prompts, found.failed) == (3, 1)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(2.0)
    assert found.worst is not None
    assert found.worst.question_id in ("b", "c")


def test_a_failed_repetition_leaves_the_others() -> None:
    made = [cell(question_id="a"), cell(question_id="b"), drafting_cell(question_id="b")]
    made += [failed_cell(question_id="a", mode="auto"), drafting_cell(question_id="a")]
    found = overall(made)
    assert (found.prompts, found.failed) == (2, 1)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(1.6)


def test_an_answer_of_one_token_decodes_nothing() -> None:
    made = [make(question_id="short", completion_tokens=1) for make in (cell, drafting_cell)]
    found = overall(made)
    assert found.prompts == 1
    for name in ("decode_tps", "speedup", "win_rate", "worst"):
        assert getattr(found, name) is None
    assert found.e2e_tps == pytest.approx(1 / 0.5)
    both = overall(made + cells())
    assert both.speedup == overall(cells()).speedup
    assert both.prompts == 13


def test_one_prompt_has_a_ratio_but_no_interval() -> None:
    found = overall([cell(), drafting_cell()])
    assert found.speedup is None
    assert found.verdict == "not enough data"
    assert found.worst is not None
    assert found.worst.speedup == pytest.approx(1.6)
    assert found.trace_speedup == pytest.approx(1.6)


def test_without_a_baseline_there_are_no_speedups() -> None:
    alone = [one for one in cells() if one.mode == "auto"]
    for made in (alone, [*alone, failed_cell()]):
        found = overall(made)
        assert found.decode_tps == pytest.approx(16.0)
        for name in ("speedup", "verdict", "ttft_ratio", "trace_speedup", "win_rate", "worst"):
            assert getattr(found, name) is None


def test_a_mode_that_failed_throughout_is_not_judged() -> None:
    found = overall([cell(), failed_cell(mode="auto")])
    assert (found.prompts, found.failed, found.verdict) == (0, 1, "not enough data")
    for name in ("decode_tps", "speedup", "acceptance_rate", "k_median", "draft_share", "worst"):
        assert getattr(found, name) is None


def test_nothing_at_all() -> None:
    assert summarise([], []) == []
    (found,) = summarise([], ["auto"])
    assert (found.category, found.prompts, found.speedup) == (ALL, 0, None)
    assert found.drafted_lengths == {}
    assert found.acceptance_by_position == []


def test_trace_needs_the_cost_curves_of_every_prompt() -> None:
    made = [*cells(), cell(question_id="x"), drafting_cell(question_id="x", trace_s=None)]
    found = overall(made)
    assert found.trace_speedup is None
    assert found.speedup is not None


def test_acceptance_by_hand() -> None:
    """Steps (drafted, accepted): (3, 3) (3, 1) (2, 0) (0, 0) (1, 1)."""
    made = drafting_cell(per_step_drafted=[3, 3, 2, 0, 1], per_step_accepted=[3, 1, 0, 0, 1])
    found = overall([made])
    assert found.acceptance_rate == pytest.approx(5 / 9)
    assert found.mean_acceptance_length == pytest.approx(1 + 5 / 5)  # the step without a draft too
    # Position 1: reached by four, kept by three. 2: by (3, 3), (3, 1); 3: by (3, 3) only.
    assert found.acceptance_by_position == pytest.approx([3 / 4, 1 / 2, 1.0])
    assert found.drafted_lengths == {"0": 1, "1": 1, "2": 1, "3": 2}
    assert found.k_median == 2.0
    assert found.k_p10 is found.k_p90 is None  # of five steps


def test_a_position_never_reached_is_unknown() -> None:
    made = drafting_cell(per_step_drafted=[3, 3], per_step_accepted=[0, 0])
    assert overall([made]).acceptance_by_position == [0.0, None, None]


def test_nothing_drafted_is_no_acceptance_rate() -> None:
    found = overall([cell()], BASELINE)
    assert found.acceptance_rate is None
    assert found.mean_acceptance_length == 1.0
    assert found.drafted_lengths == {"0": 64}
    assert (found.k_p10, found.k_median, found.k_p90) == (0.0, 0.0, 0.0)


def test_lengths_are_sorted_as_numbers() -> None:
    made = drafting_cell(per_step_drafted=[10, 2, 9], per_step_accepted=[0, 0, 0])
    assert list(overall([made]).drafted_lengths) == ["2", "9", "10"]


def test_drafters_are_added_up() -> None:
    made = [
        drafting_cell(question_id="a", by_drafter={"model": (8, 4), "n-gram": (2, 1)}),
        drafting_cell(question_id="b", by_drafter={"model": (1, 0)}),
    ]
    assert overall(made).by_drafter == {"model": (9, 4), "n-gram": (2, 1)}


def test_shares_are_of_the_sum_of_the_parts() -> None:
    made = [
        drafting_cell(draft_s=1.0, verify_s=5.0, sample_s=1.0, other_s=1.0),
        drafting_cell(draft_s=1.0, verify_s=1.0, sample_s=0.0, other_s=0.0),
    ]
    found = overall(made)
    assert found.draft_share == pytest.approx(0.2)
    assert found.verify_share == pytest.approx(0.6)
    assert found.sample_share == found.other_share == pytest.approx(0.1)


def test_energy_of_the_cells_that_have_it() -> None:
    made = [cell(energy_j=65.0), cell(energy_j=130.0, repetition=1), cell(repetition=2)]
    assert overall(made, BASELINE).joules_per_token == pytest.approx(1.5)
    assert overall([cell()], BASELINE).joules_per_token is None
    assert overall([cell(energy_j=1.0, completion_tokens=0)], BASELINE).joules_per_token is None


def test_differing_answers_are_counted() -> None:
    kinds: list[Any] = ["near-tie", "near-tie", "unexplained", "unknown"]
    made = [cell(), drafting_cell()]
    made += [drafting_cell(repetition=1, divergence=divergence(kind=kind)) for kind in kinds]
    found = overall(made)
    assert (found.differing, found.near_ties) == (4, 2)


def test_categories_do_not_leak_into_each_other() -> None:
    made = [*cells(("chat",)), *(make(**CODE) for make in (cell, drafting_cell))]
    code = summarise(made, ["auto"])[2]
    assert (code.category, code.prompts, code.speedup) == ("code-write", 1, None)
    assert code.worst is not None
    assert code.worst.question_id == "code-1"


def test_pairing_drops_what_has_no_figure() -> None:
    made = [
        cell(question_id="a", decode_s=6.4),
        cell(question_id="a", decode_s=12.8, repetition=1),
        cell(question_id="none", completion_tokens=0),
        cell(question_id="instant", decode_s=0.0),
        failed_cell(question_id="failed"),
    ]
    assert by_prompt(made, decode_seconds) == {"a": pytest.approx(0.15)}
    assert by_prompt([cell(trace_s=None)], trace_seconds) == {}
    assert ratios({"a": 2.0, "b": 1.0}, {"a": 4.0, "c": 1.0}) == {"a": 0.5}
