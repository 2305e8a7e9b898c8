"""Finds one's way in a result: its modes and categories in order, summaries by name, costs."""

from __future__ import annotations

from edgespec.bench.records import ALL, Curve, Result, Summary
from edgespec.decoding.costs import CostCurve


def modes(result: Result) -> list[str]:
    """Those with a summary, in the order they were asked for."""
    found = dict.fromkeys(summary.mode for summary in result.summaries)
    asked = [mode for mode in result.settings.modes if mode in found]
    return list(dict.fromkeys([*asked, *found]))


def categories(result: Result) -> list[str]:
    """Those with a summary, without ALL."""
    found = dict.fromkeys(summary.category for summary in result.summaries)
    return [category for category in found if category != ALL]


def summary_of(result: Result, mode: str, category: str = ALL) -> Summary | None:
    """The summary of one mode on one category, None if there is none."""
    for summary in result.summaries:
        if (summary.mode, summary.category) == (mode, category):
            return summary
    return None


def overall(result: Result) -> list[Summary]:
    """The summary of every mode over all categories."""
    return [found for mode in modes(result) if (found := summary_of(result, mode))]


def drafting(result: Result) -> list[Summary]:
    """Those of them in which anything was drafted."""
    return [
        summary
        for summary in overall(result)
        if any(drafted > 0 for drafted, _ in summary.by_drafter.values())
    ]


def relative(curve: Curve | None, unit: float | None) -> list[tuple[int, float, float]]:
    """Width, time and spread, in units of `unit` seconds; [] where one of them is unknown."""
    if curve is None or not unit or unit <= 0:
        return []
    points = sorted(zip(curve.widths, curve.seconds, curve.spread, strict=False))
    return [(width, seconds / unit, spread / unit) for width, seconds, spread in points]


def seconds_at(curve: Curve | None, width: int) -> float | None:
    """T(width), interpolated where it was not measured; None where that is unknown."""
    seconds = dict(zip(curve.widths, curve.seconds, strict=False)) if curve else {}
    if curve is None or not seconds or min(seconds) > width:
        return None
    return CostCurve(curve.depth, seconds, {}).at(width)
