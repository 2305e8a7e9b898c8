"""Reports: all of one as a golden file, and every part that comes and goes.

    python -m tests.test_bench_report

writes the golden file anew; look at what changed before keeping it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgespec.bench.records import ALL, Result
from edgespec.bench.report.markdown import headline, markdown, short
from tests import bench_records as made

GOLDEN = Path(__file__).parent / "golden" / "bench_report.md"
HOSTILE = "# <b>x</b> | `y`\n\r\n| z *w* [u](http://v) &amp; \\ _t_ \x1b[31m\u202e__init__"


def golden() -> Result:
    """A run with everything a report can show."""
    modes = ["native", "off", "model:7", "auto"]
    speedups = {"native": 1.0, "model:7": 0.8, "auto": 1.6}
    verdicts = {"native": "same", "model:7": "slower", "auto": "faster"}
    summaries = []
    for mode in modes:
        for category, share in ((ALL, 1.0), ("code-write", 1.1), ("chat", 0.9)):
            given: dict[str, Any] = {"mode": mode, "category": category}
            given["prompts"] = 12 if category == ALL else 6
            if mode == "off":
                summaries.append(made.baseline_summary(**given))
                continue
            given["speedup"] = made.interval(speedups[mode] * share)
            given["verdict"] = verdicts[mode]
            if mode == "native":
                given |= {"trace_speedup": None, "e2e_speedup": made.interval(1.0)}
                summaries.append(made.baseline_summary(**given))
            else:
                given |= {"mean_acceptance_length": 3.2 * share, "failed": int(mode == "model:7")}
                summaries.append(made.summary(**given, differing=2, near_ties=1))
    return made.result(
        command=["edgespec", "bench", "--save", "my report"],
        settings=made.settings(modes=modes, watts=28.0, price_kwh=0.3, repetitions=2),
        summaries=summaries,
        values=[
            made.value(
                tokens_per_joule=0.57,
                baseline_tokens_per_joule=0.36,
                cost_per_million=0.146,
                baseline_cost_per_million=0.231,
            )
        ],
        skipped=[
            {"question_id": "chat-7", "category": "chat", "reason": "5012 tokens are too long"}
        ],
        notes=["The machine was on battery: figures may not repeat; plug it in."],
    )


def test_the_report_is_the_golden_one() -> None:
    plots = dict.fromkeys(
        ("speedup.svg", "cost_curve.svg", "acceptance.svg", "k_over_time.svg"), ""
    )
    assert markdown(golden(), plots=plots) == GOLDEN.read_text(encoding="utf-8")


def tables(report: str) -> list[list[str]]:
    """The lines of each table."""
    blocks = (block.splitlines() for block in report.split("\n\n"))
    return [block for block in blocks if block[0].startswith("| ")]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("report", [markdown(golden()), short(golden()), markdown(made.result())])
def test_tables_line_up_and_fit_a_terminal(report: str) -> None:
    assert tables(report)
    for lines in tables(report):
        assert len({len(line) for line in lines}) == 1
        assert len({len(cells(line)) for line in lines}) == 1
        assert len(lines[0]) <= 125


def test_the_short_report_leads_with_the_verdict_and_has_the_figures() -> None:
    result = golden()
    shown = short(result)
    assert shown.startswith(f"{result.verdict}\n\n**1.60x [1.52, 1.68]** of plain speed: mode auto")
    for part in (
        "| auto    | all      |            12 |   0.55 |        3.20 |  16.0 | 1.60 [1.52, 1.68] |",
        "1.76 [1.67, 1.85]",
        "|   1 |     100.0 |    1.00 |",
        "- The machine was on battery",
    ):
        assert part in shown
    assert "## Words" not in shown
    assert len(shown.splitlines()) < 60


def test_a_run_that_cannot_be_compared_has_no_headline_number() -> None:
    reasons = ["the suite is not edgespec's own", "the run was stopped early"]
    result = made.result(comparable=False, not_comparable=reasons)
    expected = (
        "Not comparable with other runs: the suite is not edgespec's own; "
        "the run was stopped early."
    )
    for report in (markdown(result), short(result)):
        assert expected in report
        assert "**" not in report


def test_without_auto_the_headline_is_of_the_fastest_and_says_of_how_many() -> None:
    result = made.result(
        summaries=[
            made.baseline_summary(),
            made.baseline_summary(mode="native", speedup=made.interval(9.0)),
            made.summary(mode="k=2", speedup=made.interval(1.2)),
            made.summary(mode="k=4", speedup=made.interval(1.4)),
        ]
    )
    assert headline(result) == (
        "**1.40x [1.33, 1.47]** of plain speed: mode k=4, the fastest of 2 modes, "
        "on the suite standard (12 prompts)."
    )


@pytest.mark.parametrize(
    "summaries", [[], [made.baseline_summary()], [made.summary(speedup=None, verdict=None)]]
)
def test_without_a_speedup_there_is_no_number(summaries: list[Any]) -> None:
    report = markdown(made.result(summaries=summaries, cells=[]))
    assert "No headline number: nothing on the suite standard was compared" in report
    assert "## Speed-up by category" not in report
    assert "None" not in report


def test_a_category_alone_needs_no_table_of_categories() -> None:
    summaries = [made.summary(), made.summary(category="chat")]
    assert "by category" not in markdown(made.result(summaries=summaries))


def test_many_modes_are_shown_in_several_tables() -> None:
    modes = [f"model:{k}" for k in range(1, 9)]
    summaries = [
        made.summary(mode=mode, category=category)
        for mode in modes
        for category in (ALL, "code-write", "chat")
    ]
    report = markdown(made.result(summaries=summaries))
    split = [lines for lines in tables(report) if cells(lines[0])[:2] == ["category", "model:1"]]
    others = [lines for lines in tables(report) if cells(lines[0])[0] == "category"]
    assert len(split) == 2  # speed-ups and tokens/step
    shown = [cells(lines[0])[1:] for lines in others if "[" in lines[2]]
    assert [mode for part in shown for mode in part] == modes
    assert len(shown) > 1


def test_parts_without_content_are_left_out() -> None:
    report = markdown(made.result(values=[], draft=None, draft_curve=None, summaries=[], cells=[]))
    for title in ("## Value", "## Notes", "## Prompts not run", "## Drafts", "!["):
        assert title not in report
    assert "draft model ms" not in report
    assert "- draft model: none" in report
    assert report.startswith("# edgespec bench: target-q4.gguf on Example CPU 4000\n")


def test_energy_and_money_are_shown_where_known() -> None:
    assert "tokens/J" not in markdown(made.result())
    known = made.value(tokens_per_joule=0.5, baseline_tokens_per_joule=0.25)
    report = markdown(made.result(values=[known]))
    assert "| auto |    0.500 | 0.250 |                       - |     - |" in report


def test_an_assumption_is_said_once() -> None:
    values = [made.value(), made.value(mode="k=2", assumptions=["28 W, as given."])]
    report = markdown(made.result(values=values))
    assert report.count("- The tasks are the 6 prompts of the categories code-write.") == 1
    assert "- 28 W, as given." in report


def test_plots_are_shown_once_and_only_if_there() -> None:
    report = markdown(golden(), plots={"cost_curve.svg": "<svg/>", "my plot).svg": "<svg/>"})
    assert re.findall(r"^!\[.*", report, re.MULTILINE) == [
        "![Cost curves and the best k they predict](cost_curve.svg)",
        "![my plot).svg](my%20plot%29.svg)",
    ]


def test_a_report_defines_its_words() -> None:
    report = markdown(made.result())
    for word in ("acceptance rate:", "mean acceptance length:", "bonus token", "wall clock"):
        assert word in report
    for word in ("gamma", "oracle", "assistant model", "speculator", "round "):
        assert word not in report


def hostile() -> Result:
    summaries = [
        made.summary(mode=mode, category=category, worst={"question_id": HOSTILE, "speedup": 0.9})
        for mode in ("off", HOSTILE)
        for category in (ALL, HOSTILE, "chat")
    ]
    return made.result(
        command=["edgespec", HOSTILE],
        machine=made.machine(cpu=HOSTILE, os=HOSTILE, devices=[HOSTILE], governor=HOSTILE),
        target=made.model_file(name=HOSTILE, description=HOSTILE),
        draft=made.draft_file(name=HOSTILE),
        settings=made.settings(suite=HOSTILE, modes=["off", HOSTILE]),
        summaries=[one.model_copy(update={"by_drafter": {HOSTILE: (4, 2)}}) for one in summaries],
        values=[made.value(mode=HOSTILE, assumptions=[HOSTILE])],
        skipped=[dict.fromkeys(("question_id", "category", "reason"), HOSTILE)],
        notes=[HOSTILE],
        verdict=HOSTILE,
    )


@pytest.mark.parametrize("comparable", [True, False])
def test_foreign_text_is_harmless(comparable: bool) -> None:
    result = hostile().model_copy(update={"comparable": comparable, "not_comparable": [HOSTILE]})
    for report in (markdown(result), short(result)):
        assert all(char == "\n" or char.isprintable() for char in report)
        assert not re.search(r"(?<!\\)(<b>|`|\]\(http|&amp;)", report)
        for lines in tables(report):
            assert len({len(cells(line)) for line in lines}) == 1
        headings = [line for line in report.splitlines() if line.startswith("#")]
        assert all(line.startswith(("# edgespec bench: ", "## ")) for line in headings)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    names = ("speedup.svg", "cost_curve.svg", "acceptance.svg", "k_over_time.svg")
    GOLDEN.write_text(markdown(golden(), plots=dict.fromkeys(names, "")), encoding="utf-8")
