"""Plot: the speed-up of every mode on every category, with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgespec.bench.judging import lookup
from edgespec.bench.judging.statistics import FASTER, MARGIN, SLOWER
from edgespec.bench.plots.axes import Entry, Legend, Scale, label, ratio_ticks
from edgespec.bench.plots.svg import Canvas, fitted, text_width
from edgespec.bench.records import ALL, BASELINE, Interval, Result, Summary

_WIDTH = 900.0
_LEAST = 620.0
_MARGIN = 20.0
_ROW = 21.0
_HEAD = 28.0  # a panel's name
_FOOT = 40.0  # its axis
_VALUE = 38.0  # the numbers to its right
_GAP = 24.0
_NAMES = 150.0  # at most, left of the panels
_LOOKS = {  # verdict: marker and colour
    "faster": ("circle", "s0"),
    "same": ("square", "s6"),
    "slower": ("diamond", "s1"),
    "not enough data": ("ring", "s6"),
}


@dataclass(frozen=True, slots=True)
class _Panel:
    """One mode: its rows, where they start and how speed-ups map to pixels."""

    mode: str
    rows: Sequence[Summary | None]
    top: float
    scale: Scale

    def y(self, row: int) -> float:
        return self.top + _HEAD + _ROW * (row + 0.5)


def draw(result: Result) -> str | None:
    """One panel per mode, one row per category, all on the same logarithmic axis."""
    names = [ALL, *lookup.categories(result)]
    rows = _rows(result, names)
    if not rows:
        return None
    columns = min(3, len(rows))
    left = _MARGIN + min(_NAMES, max(text_width(name) for name in names)) + 12
    width = min(440.0, (_WIDTH - left - _MARGIN) / columns)
    whole = max(_LEAST, left + columns * width)
    legend = Legend(whole - 2 * _MARGIN, _entries(rows))
    above = 72 + legend.height
    tall = _HEAD + _ROW * len(names) + _FOOT
    high = above + tall * math.ceil(len(rows) / columns)
    canvas = Canvas(whole, high, "Speed-up by category and mode")
    canvas.text((_MARGIN, 30), "Speed-up over plain decoding", "title")
    explained = "decoding, wall clock, geometric mean with 95 % interval; right of 1 is faster"
    canvas.text((_MARGIN, 50), explained, "dim")
    legend.draw(canvas, _MARGIN, 62)
    least, most = _range(rows)
    for index, (mode, summaries) in enumerate(rows.items()):
        line, column = divmod(index, columns)
        start = left + column * width
        scale = Scale(least, most, start, start + width - _VALUE - _GAP, log=True)
        panel = _Panel(mode, summaries, above + line * tall, scale)
        _draw_frame(canvas, panel)
        if column == 0:
            _draw_names(canvas, panel, names, left)
        for row, summary in enumerate(summaries):
            if summary and summary.speedup:
                _draw_row(canvas, panel, panel.y(row), summary, summary.speedup)
    return canvas.svg()


def _rows(result: Result, names: Sequence[str]) -> dict[str, list[Summary | None]]:
    found = {
        mode: [lookup.summary_of(result, mode, name) for name in names]
        for mode in lookup.modes(result)
        if mode != BASELINE
    }
    return {
        mode: summaries
        for mode, summaries in found.items()
        if any(summary and summary.speedup for summary in summaries)
    }


def _intervals(rows: Mapping[str, Sequence[Summary | None]]) -> list[Interval]:
    every = (summary for summaries in rows.values() for summary in summaries)
    return [summary.speedup for summary in every if summary and summary.speedup]


def _range(rows: Mapping[str, Sequence[Summary | None]]) -> tuple[float, float]:
    """Covers all estimates, and their intervals unless these are far wider."""
    intervals = _intervals(rows)
    values = [one.value for one in intervals if one.value > 0] or [1.0]
    low = max(min(one.low for one in intervals), min(values) / 1.5)
    high = min(max(one.high for one in intervals), max(values) * 1.5)
    return min(low, 0.9) / 1.04, max(high, 1.1) * 1.04


def _entries(rows: Mapping[str, Sequence[Summary | None]]) -> list[Entry]:
    every = [summary for summaries in rows.values() for summary in summaries if summary]
    verdicts = {summary.verdict for summary in every}
    entries = [
        Entry(verdict, f"{colour} thin", marker)
        for verdict, (marker, colour) in _LOOKS.items()
        if verdict in verdicts
    ]
    if any(summary.trace_speedup is not None for summary in every):
        entries.append(Entry("predicted by the cost curves", "one", "tick", line=False))
    return [*entries, Entry(f"within {MARGIN * 100:.0f} % of plain", "near", band=True)]


def _draw_frame(canvas: Canvas, panel: _Panel) -> None:
    scale, top = panel.scale, panel.top + _HEAD
    bottom = panel.y(len(panel.rows)) - _ROW / 2
    canvas.text((scale.start, panel.top + 18), fitted(panel.mode, scale.end - scale.start), "bold")
    band = (scale(SLOWER), top, scale(FASTER) - scale(SLOWER), bottom - top)
    canvas.rectangles([band], "near")
    for ratio in ratio_ticks(scale.low, scale.high, scale.end - scale.start):
        canvas.line((scale(ratio), top), (scale(ratio), bottom), "one" if ratio == 1 else "grid")
        canvas.text((scale(ratio), bottom + 16), label(ratio), "small dim", "middle")
    canvas.line((scale.start, bottom), (scale.end, bottom), "axis")


def _draw_names(canvas: Canvas, panel: _Panel, names: Sequence[str], left: float) -> None:
    for row, name in enumerate(names):
        css = "bold" if row == 0 else ""
        canvas.text((left - 12, panel.y(row) + 4), fitted(name, _NAMES), css, "end")


def _draw_row(canvas: Canvas, panel: _Panel, y: float, summary: Summary, speedup: Interval) -> None:
    scale = panel.scale
    marker, colour = _LOOKS.get(summary.verdict or "", _LOOKS["not enough data"])
    if summary.trace_speedup is not None and scale.low <= summary.trace_speedup <= scale.high:
        canvas.marker("tick", (scale(summary.trace_speedup), y), "one")
    canvas.line((scale(speedup.low), y), (scale(speedup.high), y), f"{colour} line")
    canvas.marker(marker, (scale(speedup.value), y), colour)
    css = "small bold" if summary.category == ALL else "small"
    canvas.text((scale.end + _VALUE, y + 4), f"{speedup.value:.2f}", css, "end")
