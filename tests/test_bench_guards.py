"""Notes on a run: each at its edge, silent on a clean run; loops; why a run is not comparable."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edgespec.bench.judging.comparability import comparability
from edgespec.bench.judging.guards import notes
from edgespec.bench.loops import loop_share
from edgespec.bench.records import Cell, Skipped
from tests.bench_records import (
    GIB,
    cell,
    cells,
    conditions,
    divergence,
    draft_file,
    drafting_cell,
    failed_cell,
    machine,
    model_file,
    settings,
)


def noted(made: Sequence[Cell] | None = None, **overrides: Any) -> list[str]:
    """Notes on `made` (default: a clean run), with some conditions changed."""
    given: dict[str, Any] = {
        "cells": cells() if made is None else made,
        "skipped": [],
        "settings": settings(),
        "machine": machine(),
        "start": conditions(),
        "end": conditions(),
        "target": model_file(),
        "draft": draft_file(),
    }
    return notes(**{**given, **overrides})


def only(found: Sequence[str]) -> str:
    (note,) = found
    assert "\n" not in note
    return note


def baseline(seconds: Callable[[int], float], count: int = 18, **overrides: Any) -> list[Cell]:
    """Plain cells of different prompts, in order, that the cost curves give 0.1 s a token."""
    return [
        cell(
            question_id=f"chat-{order}",
            order=order,
            seconds_per_token=seconds(order),
            **{"trace_s": 6.4, **overrides},
        )
        for order in range(count)
    ]


def test_a_clean_run_has_no_notes() -> None:
    assert noted() == []


def test_a_run_without_cells_says_so_and_nothing_else() -> None:
    assert only(noted([])).startswith("Only 0 prompts were run")


@pytest.mark.parametrize(("reps", "unstable"), [((6.4, 6.8), False), ((6.4, 6.9), True)])
def test_an_unstable_baseline(reps: tuple[float, float], unstable: bool) -> None:
    """6.4 and 6.8 vary by 4.3 %; 6.4 and 6.9 by 5.3 %."""
    made = [
        cell(question_id=f"chat-{number}", repetition=rep, decode_s=seconds, trace_s=None)
        for number in range(12)
        for rep, seconds in enumerate(reps)
    ]
    found = noted(made)
    assert len(found) == unstable
    if unstable:
        assert found[0].startswith("The baseline is unstable: its repetitions vary by 5%.")


def test_a_few_disturbed_prompts_do_not_make_the_baseline_unstable() -> None:
    made = [
        cell(question_id=f"chat-{number}", repetition=rep, trace_s=None)
        for number in range(12)
        for rep in range(2)
    ]
    made += [cell(question_id="chat-0", repetition=2, decode_s=640.0, trace_s=None)]
    assert noted(made) == []


def test_drift_is_seen_between_different_prompts() -> None:
    """From 0.1 to 0.108 s a token, evenly; the answers themselves are of any length."""
    generator = random.Random(1)
    made = []
    for order in range(36):
        tokens = generator.randint(20, 128)
        made.append(
            cell(
                question_id=f"chat-{order}",
                order=order,
                completion_tokens=tokens,
                trace_s=0.1 * (tokens - 1),
                seconds_per_token=0.1 + 0.008 * order / 35,
                conditions=conditions(temperature_c=50.0 + order),
            )
        )
    generator.shuffle(made)  # the order of the run counts, not that of the list
    note = only(noted(made))
    assert note.startswith("The machine became slower: plain decoding took 5% longer in the last")
    assert "(50 to 85 C)" in note
    assert "--cooldown 10" in note


@pytest.mark.parametrize(
    ("seconds", "overrides"),
    [
        (lambda order: 0.1 + 0.004 * (order >= 12), {}),  # 4 % slower
        (lambda order: 0.1 + 0.009 * (order < 6), {}),  # slower at first: a warm-up
        (lambda order: 0.1 + 0.5 * (order == 17), {}),  # one disturbed cell
        (lambda order: 0.1 + 0.009 * (order >= 12), {"trace_s": None}),  # slower, or harder?
    ],
)
def test_no_drift(seconds: Callable[[int], float], overrides: dict[str, Any]) -> None:
    assert noted(baseline(seconds, **overrides)) == []


def test_drift_needs_nine_cells() -> None:
    made = baseline(lambda order: 0.1 + 0.009 * (order >= 4), count=8)
    assert only(noted(made)).startswith("Only 8 prompts")


def test_drift_without_a_thermometer() -> None:
    made = baseline(lambda n: 0.1 + 0.007 * (n >= 12), conditions=conditions(temperature_c=None))
    assert "than in the first. If it is heat" in only(noted(made))


@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        ({"start": conditions(on_battery=True)}, "The machine ran on battery"),
        ({"end": conditions(on_battery=True)}, "The machine ran on battery"),
        (
            {"start": conditions(load_average=2.1)},
            "The machine was busy at the start: a load of 2.1 on 4 cores.",
        ),
        (
            {"start": conditions(load_average=0.6), "machine": machine(physical_cores=1)},
            "The machine was busy at the start: a load of 0.6 on 1 core.",
        ),
        (
            {"start": conditions(swap_used_bytes=2 * GIB)},
            "2.0 GiB of swap in use: parts of the models",
        ),
        (
            {"end": conditions(swap_used_bytes=GIB)},
            "1.0 GiB of swap in use, 1.0 GiB more at the end than at the start: parts",
        ),
        (
            {"target": model_file(size_bytes=13 * GIB), "draft": draft_file(size_bytes=GIB)},
            "The models take 14.0 GiB of 16.0 GiB of memory",
        ),
        (
            {"target": model_file(size_bytes=14 * GIB), "draft": None},
            "The models take 14.0 GiB of 16.0 GiB of memory",
        ),
    ],
)
def test_conditions(overrides: dict[str, Any], start: str) -> None:
    assert only(noted(**overrides)).startswith(start)


@pytest.mark.parametrize(
    "overrides",
    [
        {"start": conditions(load_average=2.0)},  # our own curves are not yet running
        {"end": conditions(load_average=40.0)},  # we were the load
        {"start": conditions(load_average=None, temperature_c=None, on_battery=None)},
        {"start": conditions(swap_used_bytes=64 * 1024**2)},
        {"target": model_file(size_bytes=int(13.4 * GIB)), "draft": None},
    ],
)
def test_conditions_that_do_not_matter(overrides: dict[str, Any]) -> None:
    assert noted(**overrides) == []


def test_few_prompts() -> None:
    assert noted(cells(("chat",), 12)) == []
    assert only(noted(cells(("chat",), 11))).startswith("Only 11 prompts were run: fewer than 12")
    assert only(noted([cell()])).startswith("Only 1 prompt was run")


def test_loops_are_counted_and_three_named() -> None:
    assert noted(cells(loop_share=0.3)) == []
    note = only(noted([*cells(), cell(loop_share=0.31, question_id="chat-9")]))
    assert note.startswith("1 answer was stuck in a loop (off chat-9). Loops are")
    note = only(noted(cells(loop_share=0.9)))
    assert note.startswith(
        "24 answers were stuck in a loop (off code-write-1, auto code-write-1, "
        "auto code-write-2 and 21 more)."
    )


def test_differing_answers_by_kind() -> None:
    made = [
        *cells(),
        drafting_cell(divergence=divergence(kind="unexplained")),
        drafting_cell(divergence=divergence(kind="near-tie"), question_id="chat-2"),
        drafting_cell(divergence=divergence(kind="near-tie"), question_id="chat-3"),
        drafting_cell(divergence=divergence(kind="unknown", gap=None, tau=None)),
    ]
    bug, unknown, ties = noted(made)
    assert bug.startswith("1 answer was not that of plain decoding (auto chat-1), by more than")
    assert "This is a bug: please report it" in bug
    assert unknown.startswith("1 answer was not that of plain decoding (auto chat-1), and it could")
    assert ties.startswith("2 answers were not that of plain decoding (auto chat-2, auto chat-3), ")
    assert "near-ties of the target" in ties
    assert "--exact on" in ties
    assert "--exact on" not in noted(made, settings=settings(exact="on"))[2]


def drafted(mode: str, longest: int) -> list[Cell]:
    return [
        cell(
            mode=mode, question_id=f"q-{i}", per_step_drafted=[longest, 1], per_step_accepted=[0, 0]
        )
        for i in range(12)
    ]


@pytest.mark.parametrize(
    ("mode", "longest", "widths", "said"),
    [
        ("model:7", 6, [1, 2, 3, 4, 5, 6, 7], "model:7 to 6"),
        ("k=4 (2)", 2, [1, 2, 3], "k=4 (2) to 2"),
        ("model:6", 6, [1, 2, 3, 4, 5, 6, 7], ""),
        ("model:7", 6, None, ""),
        # n-grams often find less than k: nothing was cut there.
        ("n-gram:7", 5, [1, 2, 3, 4, 5, 6, 8], ""),
        ("auto", 2, [1, 2, 3], ""),
    ],
)
def test_a_k_cut_by_exact_mode_is_told(
    mode: str, longest: int, widths: list[int] | None, said: str
) -> None:
    made = [*cells(), *drafted(mode, longest)]
    given = settings(modes=["off", mode], exact_widths=widths)
    found = [note for note in noted(made, settings=given) if note.startswith("k was cut")]
    assert (said in only(found)) if said else not found


def test_failed_cells_and_skipped_prompts() -> None:
    made = [*cells(), failed_cell(mode="auto", question_id="chat-9")]
    assert only(noted(made)) == (
        "1 of 25 cells failed and are in no figure (auto chat-9). "
        "The first said: the model's memory ran out"
    )
    skipped = [
        Skipped(question_id=name, category="chat", reason=reason)
        for name, reason in (("a", "it is too long"), ("b", "it is too long"), ("c", "no time"))
    ]
    note = only(noted(skipped=skipped))
    assert note == "3 prompts were skipped: it is too long (2 of them); no time."
    assert only(noted(skipped=skipped[2:])) == "1 prompt was skipped: no time."


def test_failed_cells_raise_no_other_note() -> None:
    """Neither their missing seconds nor their missing answers are findings."""
    made = [*cells(), *(failed_cell(question_id=f"chat-{n}", order=100 + n) for n in range(1, 7))]
    assert only(noted(made)).startswith("6 of 30 cells failed")


def test_wall_clock_against_cost_curves() -> None:
    def run(off: float, auto: float) -> list[Cell]:
        traces = {"off": 6.4 / off, "auto": 4.0 / auto}
        return [one.model_copy(update={"trace_s": traces[one.mode]}) for one in cells()]

    assert noted(run(1.09, 0.91)) == []
    note = only(noted(run(1.0, 1.2)))
    assert note.startswith(
        "Wall clock and cost curves disagree: auto took 20% longer than predicted."
    )
    note = only(noted(run(0.8, 1.2)))
    assert "off took 20% less, auto took 20% longer than predicted" in note
    assert noted(cells(trace_s=None)) == []


@pytest.mark.parametrize(("native_s", "noticed"), [(6.25, False), (6.15, True), (7.0, False)])
def test_a_baseline_slower_than_the_native_loop(native_s: float, noticed: bool) -> None:
    """6.4 s against 6.25 is 2.4 % more, against 6.15 it is 4.1 %."""
    native = [
        one.model_copy(update={"mode": "native", "decode_s": native_s, "trace_s": None})
        for one in cells()
        if one.mode == "off"
    ]
    found = noted([*cells(), *native])
    assert len(found) == noticed
    if noticed:
        assert found[0].startswith("off takes 1.04 times [1.04, 1.04] as long as llama.cpp's own")


def test_a_default_run_is_comparable() -> None:
    assert comparability(settings(), True, True) == []
    assert comparability(settings(modes=["native", "off", "auto", "k=4"]), True, True) == []
    # They may end a run early; this one they did not.
    assert comparability(settings(precision=0.02, budget_s=60.0), True, True) == []


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"temperature": 0.7}, "the temperature is 0.7, not 0"),
        ({"max_tokens": 64}, "max_tokens is 64, not 128"),
        ({"modes": ["off"]}, "the mode auto was not run"),
        ({"modes": ["auto"]}, "the mode off was not run"),
        ({"exact": "off"}, "--exact off was chosen"),
    ],
)
def test_settings_that_are_not_comparable(overrides: dict[str, Any], reason: str) -> None:
    assert comparability(settings(**overrides), True, True) == [reason]


def test_a_run_that_is_not_comparable_says_every_reason() -> None:
    skipped = [Skipped(question_id="a", category="chat", reason="it is too long")]
    found = comparability(settings(suite="mine.jsonl", modes=["k=4"]), False, False, skipped)
    assert found == [
        "the suite mine.jsonl is not one of edgespec's own, unmodified",
        "the run was stopped early",
        "prompts of the suite were left out: 1",
        "the mode off was not run",
        "the mode auto was not run",
    ]


def text(count: int, seed: int = 0, words: int = 200) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(words) for _ in range(count)]


@pytest.mark.parametrize("period", [1, 2, 7, 31, 32])
def test_loops_of_every_period_are_found(period: int) -> None:
    piece = [1000 + n for n in range(period)]
    tokens = text(40) + piece * (128 // period + 1)
    assert loop_share(tokens) == pytest.approx((len(tokens) - 40) / len(tokens))


def test_a_loop_may_end_in_the_middle_of_its_piece_and_be_left_again() -> None:
    loop = [1001, 1002, 1003, 1004] * 10 + [1001, 1002]
    assert loop_share(text(29) + loop + text(29, 1)) == pytest.approx(0.42)


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        [1],
        [1] * 15,  # short
        text(500),
        text(100) + [7] * 15,  # a ruled line
        [1000 + n for n in range(20)] * 2,  # said twice
        list(range(33)) * 5,  # longer than a piece may be
    ],
)
def test_ordinary_text_is_no_loop(tokens: list[int]) -> None:
    assert loop_share(tokens) == 0.0


def test_all_of_an_answer_can_be_a_loop() -> None:
    assert loop_share([5] * 16) == 1.0
    assert loop_share([1, 2, 3] * 40) == 1.0


def test_the_longest_loop_counts() -> None:
    tokens = [1] * 20 + text(30) + [1001, 1002] * 25
    assert loop_share(tokens) == pytest.approx(0.5)
