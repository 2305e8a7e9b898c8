"""Plot: how likely a drafted token is accepted, by its place in the draft."""

from __future__ import annotations

from edgespec.bench.judging import lookup
from edgespec.bench.plots.axes import Entry, Frame, Legend, Scale, whole_ticks
from edgespec.bench.plots.svg import Canvas, dashed, marker_of, series
from edgespec.bench.records import Result

_WIDTH = 720.0
_MARGIN = 20.0
_TALL = 260.0
_ASIDE = 5.0


def draw(result: Result) -> str | None:
    """One line per mode over the places 1..k."""
    lines = _lines(result)
    if not lines:
        return None
    entries = [
        Entry(mode, f"line {series(index)} {dashed(index)}", marker_of(index))
        for index, mode in enumerate(lines)
    ]
    legend = Legend(_WIDTH - 2 * _MARGIN, entries)
    top = 84 + legend.height
    canvas = Canvas(_WIDTH, top + _TALL + 56, "Acceptance by place in the draft")
    canvas.text((_MARGIN, 30), "Acceptance by place in the draft", "title")
    explained = "accepted / drafted, of the tokens before which all were accepted; all categories"
    canvas.text((_MARGIN, 50), explained, "dim")
    legend.draw(canvas, _MARGIN, 62)
    last = max(place for points in lines.values() for place, _ in points)
    frame = Frame(
        Scale(0.5, last + 0.5, _MARGIN + 44, _WIDTH - _MARGIN), Scale(0.0, 1.0, top + _TALL, top)
    )
    places = [place for place in whole_ticks(last, 16) if place > 0]
    frame.grid(canvas, places, [0, 0.2, 0.4, 0.6, 0.8, 1], x_title="place in the draft")
    for index, points in enumerate(lines.values()):
        # Modes of one drafter often agree: side by side they stay visible.
        aside = (index - (len(lines) - 1) / 2) * _ASIDE
        drawn = [(frame.x(place) + aside, frame.y(share)) for place, share in points]
        canvas.polyline(drawn, f"line {series(index)} {dashed(index)}")
        for at in drawn:
            canvas.marker(marker_of(index), at, series(index))
    return canvas.svg()


def _lines(result: Result) -> dict[str, list[tuple[int, float]]]:
    lines = {}
    for summary in lookup.drafting(result):
        shares = enumerate(summary.acceptance_by_position, 1)
        points = [(place, share) for place, share in shares if share is not None]
        if points:
            lines[summary.mode] = points
    return lines
