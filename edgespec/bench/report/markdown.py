"""A result as Markdown that reads as well in a terminal as on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from edgespec.bench.judging import lookup
from edgespec.bench.judging.prediction import predictions
from edgespec.bench.judging.verdict import format_speedup
from edgespec.bench.modes import AUTO, NATIVE
from edgespec.bench.records import BASELINE, Result, Summary
from edgespec.bench.report import tables as report_tables
from edgespec.bench.report.definitions import DEFINITIONS
from edgespec.bench.report.markup import name, table, text
from edgespec.bench.report.setup import setup

_ALTERNATIVES = {
    "speedup.svg": "Speed-up by category and mode",
    "cost_curve.svg": "Cost curves and the best k they predict",
    "acceptance.svg": "Acceptance by place in the draft",
    "k_over_time.svg": "k over the steps of an answer",
}


def short(result: Result) -> str:
    """What the command line shows: verdict, figures, cost curve and what makes them less sure."""
    return _joined(
        [
            text(result.verdict),
            headline(result),
            *_speeds(result),
            *_cost_curve(result),
            *(_value(result) if _priced(result) else ()),
            *_section("Notes", _bullets(map(text, result.notes))),
            "The report that --save DIR writes explains the words and has the rest.",
        ]
    )


def markdown(result: Result, *, plots: Mapping[str, str] | None = None) -> str:
    """The whole report. `plots`: those lying beside it, by file name, to be shown in it."""
    shown = dict.fromkeys(plots or {})
    blocks = [
        f"# edgespec bench: {_pair(result)} on {text(result.machine.cpu)}",
        text(result.verdict),
        headline(result),
        *_speeds(result),
        *_images(shown, "speedup.svg"),
        *_cost_curve(result),
        *_images(shown, "cost_curve.svg"),
        *_section("Where the time goes", report_tables.times(result)),
        *_section("Drafts and answers", report_tables.drafts(result)),
        *_section("Tokens/step by category", *report_tables.lengths_by_category(result)),
        *_images(shown, "acceptance.svg", "k_over_time.svg"),
        *_value(result),
        *_section("Notes", _bullets(map(text, result.notes))),
        *_skipped(result),
        *_section("Set-up", _bullets(setup(result))),
        *_section("Words", _bullets(DEFINITIONS)),
        *_images(shown, *shown),
    ]
    return _joined(blocks)


def _priced(result: Result) -> bool:
    """Whether the user gave anything to reckon the value with."""
    settings = result.settings
    return any(one is not None for one in (settings.watts, settings.hardware_price))


def headline(result: Result) -> str:
    """The one number of a run that can be compared with others, or why there is none."""
    if not result.comparable:
        reasons = "; ".join(map(text, result.not_comparable)) or "no reason was noted"
        return f"Not comparable with other runs: {reasons}."
    chosen, modes = _chief(result)
    suite = f"the suite {name(result.settings.suite)}"
    if chosen is None or chosen.speedup is None:
        return f"No headline number: nothing on {suite} was compared with plain decoding."
    among = f", the fastest of {modes} modes" if modes > 1 and chosen.mode != AUTO else ""
    prompts = f"{chosen.prompts} prompts"
    speed = f"**{format_speedup(chosen.speedup)}**"
    return f"{speed} of plain speed: mode {name(chosen.mode)}{among}, on {suite} ({prompts})."


def _chief(result: Result) -> tuple[Summary | None, int]:
    """The mode to speak of, as the verdict does: auto, or the fastest; and of how many."""
    found = [
        summary
        for summary in lookup.overall(result)
        if summary.mode != BASELINE and not summary.mode.startswith(NATIVE) and summary.speedup
    ]
    auto = [summary for summary in found if summary.mode == AUTO]
    fastest = max(found, key=lambda one: one.speedup.value if one.speedup else 0.0, default=None)
    return (auto[0] if auto else fastest), len(found)


def _pair(result: Result) -> str:
    target = name(result.target.name)
    return f"{target} with {name(result.draft.name)}" if result.draft else target


def _speeds(result: Result) -> list[str]:
    tables = report_tables.speedups_by_category(result)
    return [
        *_section("Speed", report_tables.speeds(result)),
        *_section("Speed-up by category [95 %]", *tables),
    ]


def _cost_curve(result: Result) -> list[str]:
    about = (
        "T(n): one pass over n tokens of a sequence, "
        f"{result.target_curve.depth} tokens in memory before; medians."
    )
    return _section("Cost curve", about, report_tables.cost_curve(result), _best(result))


def _best(result: Result) -> str:
    """Which fixed k the curves favour."""
    found = predictions(result)
    if not found:
        return ""
    best = "".join(
        f" {name(one.drafter)} k {one.best}, {one.speeds[one.best]:.1f} tok/s "
        f"(acceptance of mode {name(one.mode)});"
        for one in found
    )
    plain = found[0].speeds[0]
    return f"Best k for steps with a draft, from these costs:{best} plain {plain:.1f} tok/s."


def _value(result: Result) -> list[str]:
    values = result.values
    if not values:
        return []
    assumptions = dict.fromkeys(one for value in values for one in value.assumptions)
    return _section(
        "Value",
        report_tables.savings(values),
        report_tables.energy_and_money(values),
        f"Assumed:\n\n{_bullets(map(text, assumptions))}" if assumptions else "",
    )


def _skipped(result: Result) -> list[str]:
    rows = [[name(one.question_id), name(one.category), text(one.reason)] for one in result.skipped]
    if not rows:
        return []
    return _section("Prompts not run", table(("prompt", "category", "why"), rows, "l"))


def _images(shown: dict[str, None], *names: str) -> list[str]:
    """Each is shown once: those with a place of their own there, others at the end."""
    found = [file for file in names if file in shown]
    for file in found:
        del shown[file]
    return [f"![{_ALTERNATIVES.get(file, name(file))}]({quote(file)})" for file in found]


def _section(title: str, *blocks: str) -> list[str]:
    """Nothing without anything in it."""
    filled = [block for block in blocks if block]
    return [f"## {title}", *filled] if filled else []


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"
