"""The tables of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgespec.bench.judging import lookup
from edgespec.bench.records import ALL, BASELINE, Interval, Result, Summary, Value
from edgespec.bench.report.markup import (
    milliseconds,
    name,
    narrow_tables,
    number,
    percent,
    size,
    table,
)

WIDTH = 110
"""Wider tables are split: they are read in terminals, too."""


def speeds(result: Result) -> str:
    """Every mode over all categories, in the habit of llama-bench."""
    header = (
        *("mode", "category", "prompts", "accept", "tokens/step", "tok/s"),
        *("speed-up [95 %]", "predicted", "e2e", "verdict"),
    )
    rows = [_speed_row(summary) for summary in lookup.overall(result)]
    return table(header, rows, "llrrrrrrrl")


def speedups_by_category(result: Result) -> list[str]:
    """Categories by modes; [] where there is only one category or nothing to compare."""
    modes = [summary.mode for summary in lookup.overall(result) if summary.speedup]
    return _by_category(result, modes, lambda summary: interval(summary.speedup))


def lengths_by_category(result: Result) -> list[str]:
    """The same of mean acceptance lengths, for the modes that draft."""
    modes = [summary.mode for summary in lookup.drafting(result)]
    return _by_category(result, modes, lambda summary: number(summary.mean_acceptance_length))


def by_category(
    categories: Sequence[str], modes: Sequence[str], cell: Callable[[str, str], str]
) -> list[str]:
    """A row for each category, a column for each mode; cell: from mode and category."""
    rows = [[name(category), *(cell(mode, category) for mode in modes)] for category in categories]
    return narrow_tables(["category", *map(name, modes)], rows, WIDTH)


def cost_curve(result: Result) -> str:
    """Passes of the target and, where there is one, of the draft model, by their tokens."""
    target, draft = result.target_curve, result.draft_curve
    unit = lookup.seconds_at(target, 1)
    header = ["n", "target ms", "of T(1)", "spread ms"]
    curves = [target]
    if draft is not None:
        header += ["draft model ms", "of T(1)", "spread ms"]
        curves.append(draft)
    points = [
        {n: (seconds, spread) for n, seconds, spread in lookup.relative(curve, 1.0)}
        for curve in curves
    ]
    rows = []
    for n in sorted({n for found in points for n in found}):
        row = [str(n)]
        for found in points:
            seconds, spread = found.get(n, (None, None))
            share = seconds / unit if seconds is not None and unit else None
            row += [milliseconds(seconds), number(share), milliseconds(spread)]
        rows.append(row)
    return table(header, rows)


def times(result: Result) -> str:
    """Where the time of steps goes, and what comes before them."""
    header = (
        *("mode", "draft", "verify", "sample", "other"),
        *("TTFT ms", "of plain", "prefill tok/s", "e2e tok/s", "e2e speed-up [95 %]"),
    )
    rows = [
        [
            name(one.mode),
            *(percent(share) for share in _shares(one)),
            milliseconds(one.ttft_s),
            number(one.ttft_ratio),
            number(one.prefill_tps, 1),
            number(one.e2e_tps, 1),
            interval(one.e2e_speedup),
        ]
        for one in lookup.overall(result)
    ]
    return table(header, rows, "lr")


def drafts(result: Result) -> str:
    """What was drafted by whom, how evenly that helps, and whether answers differ; or ""."""
    header = (
        *("mode", "k median [p10, p90]", "accepted / drafted"),
        *("prompts faster", "worst prompt", "differing answers"),
    )
    rows = [
        [
            name(one.mode),
            _lengths(one),
            _by_drafter(one),
            percent(one.win_rate),
            f"{name(one.worst.question_id)} {one.worst.speedup:.2f}" if one.worst else "-",
            f"{one.differing} (near-ties: {one.near_ties})" if one.differing else "0",
        ]
        for one in lookup.overall(result)
        if one.mode != BASELINE
    ]
    return table(header, rows, "lr") if rows else ""


def savings(values: Sequence[Value]) -> str:
    """What modes are worth in time."""
    header = (
        *("mode", "tasks", "s/task", "plain", "saved/task [95 %]", "saved/100 tasks"),
        *("tokens/core-s", "plain", "draft memory"),
    )
    rows = [
        [
            name(one.mode),
            str(one.tasks),
            number(one.task_s),
            number(one.baseline_task_s),
            f"{interval(one.saved_per_task_s)} s",
            f"{one.saved_per_100_tasks_s:.0f} s",
            number(one.tokens_per_core_s),
            number(one.baseline_tokens_per_core_s),
            size(one.draft_bytes) if one.draft_bytes else "-",
        ]
        for one in values
    ]
    return table(header, rows, "lr")


def energy_and_money(values: Sequence[Value]) -> str:
    """What modes are worth in energy and money, "" where neither is known."""
    known = [
        one
        for one in values
        if one.tokens_per_joule is not None or one.cost_per_million is not None
    ]
    header = ("mode", "tokens/J", "plain", "cost per million tokens", "plain")
    rows = [
        [
            name(one.mode),
            number(one.tokens_per_joule, 3),
            number(one.baseline_tokens_per_joule, 3),
            number(one.cost_per_million, 3),
            number(one.baseline_cost_per_million, 3),
        ]
        for one in known
    ]
    return table(header, rows, "lr") if rows else ""


def interval(found: Interval | None) -> str:
    """Like "1.12 [1.05, 1.20]"."""
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]" if found else "-"


def _by_category(
    result: Result, modes: Sequence[str], figure: Callable[[Summary], str]
) -> list[str]:
    categories = lookup.categories(result)
    if len(categories) < 2 or not modes:
        return []

    def cell(mode: str, category: str) -> str:
        summary = lookup.summary_of(result, mode, category)
        return figure(summary) if summary else "-"

    return by_category([ALL, *categories], modes, cell)


def _speed_row(one: Summary) -> list[str]:
    return [
        name(one.mode),
        name(one.category),
        f"{one.prompts} ({one.failed} failed)" if one.failed else str(one.prompts),
        number(one.acceptance_rate),
        number(one.mean_acceptance_length),
        number(one.decode_tps, 1),
        interval(one.speedup),
        number(one.trace_speedup),
        number(one.e2e_speedup.value if one.e2e_speedup else None),
        one.verdict or "-",
    ]


def _shares(one: Summary) -> tuple[float | None, ...]:
    return one.draft_share, one.verify_share, one.sample_share, one.other_share


def _lengths(one: Summary) -> str:
    if one.k_median is None:
        return "-"
    if one.k_p10 is None or one.k_p90 is None:
        return f"{one.k_median:g}"
    return f"{one.k_median:g} [{one.k_p10:g}, {one.k_p90:g}]"


def _by_drafter(one: Summary) -> str:
    parts = [
        f"{name(drafter)} {accepted} / {drafted}"
        for drafter, (drafted, accepted) in one.by_drafter.items()
        if drafted > 0
    ]
    return ", ".join(parts) or "-"
