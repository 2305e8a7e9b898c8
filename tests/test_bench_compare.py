"""Two runs side by side: only if they did the same work, and with what else differs said."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.bench.records import ALL, Cell, Result
from edgespec.bench.report.comparison import Comparison, cautions, compare, comparison_markdown
from edgespec.errors import BenchError
from tests import bench_records as made

HOSTILE = "<b>|\n\x1b`x`"


def faster(
    cells: list[Cell], factor: float, modes: tuple[str, ...] = ("off", "auto")
) -> list[Cell]:
    """The same answers in less time by the wall clock."""
    return [
        cell.model_copy(update={"decode_s": cell.decode_s / (factor if cell.mode in modes else 1)})
        for cell in cells
    ]


def result(**overrides: Any) -> Result:
    """Six prompts in each of two categories, with modes off and auto."""
    return made.result(**overrides)


def compared(a: Result, b: Result) -> dict[tuple[str, str], Comparison]:
    return {(one.mode, one.category): one for one in compare(a, b)}


def test_a_run_is_the_same_as_itself() -> None:
    found = compared(result(), result())
    names = [
        (mode, category) for mode in ("off", "auto") for category in (ALL, "code-write", "chat")
    ]
    assert list(found) == names
    for (_, category), one in found.items():
        assert one.verdict == "same"
        assert one.prompts == (12 if category == ALL else 6)
        assert one.speedup is not None
        assert (one.speedup.low, one.speedup.value, one.speedup.high) == pytest.approx((1, 1, 1))
        assert one.trace_speedup == pytest.approx(1)
        assert one.differing == 0


@pytest.mark.parametrize(("factor", "verdict"), [(1.25, "faster"), (0.8, "slower"), (1.01, "same")])
def test_above_1_means_that_b_is_faster(factor: float, verdict: str) -> None:
    a, b = result(), result(cells=faster(made.cells(), factor, ("auto",)))
    found = compared(a, b)
    auto = found["auto", ALL]
    assert auto.speedup is not None
    assert auto.speedup.value == pytest.approx(factor)
    assert auto.verdict == verdict
    assert auto.trace_speedup == pytest.approx(1)  # the trace saw no difference
    assert found["off", ALL].verdict == "same"


def test_prompts_are_paired_whatever_their_order_and_only_those_of_both() -> None:
    cells = made.cells()
    b = [cell for cell in reversed(cells) if cell.question_id != "chat-1"]
    a = [cell for cell in cells if cell.question_id not in ("chat-2", "chat-3")]
    found = compared(result(cells=a), result(cells=faster(b, 2.0)))
    assert found["auto", ALL].prompts == 9
    assert found["auto", "chat"].prompts == 3
    assert found["auto", "chat"].verdict == "not enough data"
    speedup = found["auto", ALL].speedup
    assert speedup is not None
    assert speedup.value == pytest.approx(2)
    notes = cautions(result(cells=a), result(cells=b), list(found.values()))
    assert any("3 of the prompts" in note for note in notes)


def test_failed_cells_are_no_answers() -> None:
    cells = made.cells()
    failed = [
        made.failed_cell(
            question_id=cell.question_id, category=cell.category, mode=cell.mode, token_sha256=""
        )
        if cell.question_id == "chat-1"
        else cell
        for cell in cells
    ]
    one = compared(result(), result(cells=failed))["auto", ALL]
    assert (one.prompts, one.differing) == (11, 0)


def test_differing_answers_are_counted_by_prompt() -> None:
    cells = [
        cell.model_copy(update={"token_sha256": "e" * 64})
        if cell.question_id in ("chat-1", "chat-2") and cell.mode == "auto"
        else cell
        for cell in made.cells()
    ]
    found = compared(result(), result(cells=cells))
    assert [found["auto", name].differing for name in (ALL, "chat", "code-write")] == [2, 2, 0]
    assert found["off", ALL].differing == 0


def test_without_a_trace_in_both_there_is_no_predicted_ratio() -> None:
    cells = [cell.model_copy(update={"trace_s": None}) for cell in made.cells()]
    assert compared(result(), result(cells=cells))["auto", ALL].trace_speedup is None


def test_modes_of_one_run_alone_are_left_out() -> None:
    other = [
        cell.model_copy(update={"mode": "k=3"}) for cell in made.cells() if cell.mode == "auto"
    ]
    found = compared(result(cells=[*made.cells(), *other]), result())
    assert {mode for mode, _ in found} == {"off", "auto"}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            {"settings": made.settings(suite_sha256="f" * 64)},
            "suites (sha256) differ, cccccccccccc",
        ),
        ({"target": made.model_file(sha256="f" * 64)}, "targets (sha256) differ, aaaaaaaaaaaa and"),
        ({"settings": made.settings(max_tokens=64)}, "values of max_tokens differ, 128 and 64"),
        ({"settings": made.settings(temperature=0.8)}, "temperatures differ, 0.0 and 0.8"),
        ({"settings": made.settings(seed=2)}, "seeds differ, 1 and 2"),
        (
            {"cells": [made.cell(mode="k=3")], "settings": made.settings(modes=["k=3"])},
            "they have no mode in common (off, auto and k=3)",
        ),
        ({"cells": []}, "they have no mode in common"),
        (
            {"cells": [made.cell(question_id="other")]},
            "no prompt succeeded in the same mode of both",
        ),
        ({"cells": [made.failed_cell()]}, "no prompt succeeded in the same mode of both"),
    ],
)
def test_runs_that_did_other_work_are_refused(other: dict[str, Any], reason: str) -> None:
    with pytest.raises(BenchError) as caught:
        compare(result(), made.result(**other))
    message = str(caught.value)
    assert message.startswith("These runs cannot be compared: ")
    assert reason in message
    assert message.isprintable()
    assert message.endswith(".")


def notes(**other: Any) -> list[str]:
    b = result(**other)
    return cautions(result(), b, compare(result(), b))


def test_it_is_always_said_that_the_machine_may_have_changed() -> None:
    (only,) = notes()
    assert only.startswith("Two runs at different times")


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (
            {"machine": made.machine(cpu="Other CPU")},
            "machine, A -> B: cpu Example CPU 4000 -> Other",
        ),
        ({"machine": made.machine(edgespec="0.2.0")}, "versions, A -> B: edgespec 0.1.0 -> 0.2.0."),
        ({"machine": made.machine(llama_cpp_python="0.4")}, "llama_cpp_python 0.3.36 -> 0.4"),
        ({"settings": made.settings(threads=8)}, "settings, A -> B: threads 4 -> 8."),
        ({"settings": made.settings(exact_widths=None)}, "exact_widths [1, 2, 3, 4] -> None"),
        ({"draft": None}, "draft models, A -> B: draft-q4.gguf (bbbbbbbbbbbb) -> none."),
        ({"draft": made.draft_file(sha256="f" * 64)}, "draft-q4.gguf (ffffffffffff)"),
        ({"stopped_by": "budget"}, "B was stopped early by budget."),
        ({"cells": faster(made.cells(), 1.2)}, "Plain decoding itself is faster in B, 1.20x"),
    ],
)
def test_what_else_differs_is_said(other: dict[str, Any], part: str) -> None:
    found = notes(**other)
    assert len(found) == 2
    assert part in found[1]


def test_long_values_are_cut() -> None:
    (_, note) = notes(machine=made.machine(llama_cpp_system_info="AVX = 1 | " * 100))
    assert len(note) < 200


def test_the_report_shows_both_ratios_and_every_category() -> None:
    b = result(cells=faster(made.cells(), 1.25, ("auto",)))
    report = comparison_markdown(result(), b, compare(result(), b), ("old.json", "new.json"))
    assert report.startswith("# edgespec bench: old.json (A) and new.json (B)\n")
    row = "| auto |      12 | 1.25 [1.25, 1.25] |      1.00 | faster       |         0 |"
    assert row in report
    assert "| category   |               off |              auto |" in report
    assert "| chat       | 1.00 [1.00, 1.00] | 1.25 [1.25, 1.25] |" in report
    assert "- Two runs at different times" in report
    assert "above 1, B is faster" in report


def test_foreign_text_is_harmless_in_the_report() -> None:
    def renamed(one: Result) -> Result:
        cells = [
            cell.model_copy(update={"category": HOSTILE, "mode": HOSTILE})
            for cell in made.cells()
            if cell.mode == "auto"
        ]
        machine = made.machine(cpu=HOSTILE, os=HOSTILE)
        return one.model_copy(update={"cells": cells, "machine": machine, "created": HOSTILE})

    a, b = renamed(result()), renamed(result(draft=made.draft_file(name=HOSTILE)))
    report = comparison_markdown(a, b, compare(a, b), (HOSTILE, HOSTILE))
    assert all(char == "\n" or char.isprintable() for char in report)
    assert "<b>" not in report.replace(r"\<b>", "")
    for block in report.split("\n\n"):
        if block.startswith("| "):
            assert len({len(line) for line in block.splitlines()}) == 1
