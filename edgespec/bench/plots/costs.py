"""Plot: the cost curves, and the speed they predict for every k."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.bench.judging import lookup
from edgespec.bench.judging.prediction import Prediction, predictions
from edgespec.bench.plots.axes import Entry, Frame, Legend, Scale, nice_ticks, whole_ticks
from edgespec.bench.plots.svg import Canvas, dashed, marker_of, series
from edgespec.bench.records import Result

_MARGIN = 20.0
_LEFT = 44.0  # of an axis' numbers
_PANEL = 420.0
_TALL = 260.0
_TARGET = "s0"
_DRAFT = "s1"
_FIRST = 2  # the colours before belong to target and draft model

_Points = Sequence[tuple[int, float, float]]


def draw(result: Result) -> str | None:
    """Left T(n) / T(1); right, where something was drafted, tokens per second by k."""
    unit = lookup.seconds_at(result.target_curve, 1)
    target = lookup.relative(result.target_curve, unit)
    if not target:
        return None
    # How long the draft model takes for a prompt is on another scale.
    widest = target[-1][0]
    draft = [one for one in lookup.relative(result.draft_curve, unit) if one[0] <= widest]
    predicted = predictions(result)
    legends = [Legend(_PANEL - _MARGIN, _curve_entries(target, draft))]
    if predicted:
        legends.append(Legend(_PANEL - _MARGIN, _speed_entries(predicted)))
    top = 96 + max(legend.height for legend in legends)
    width = _MARGIN * 2 + _PANEL * len(legends)
    canvas = Canvas(width, top + _TALL + 52, "Cost curves and the best k they predict")
    for index, legend in enumerate(legends):
        legend.draw(canvas, _MARGIN + _PANEL * index, 62)
    _draw_curves(canvas, target, draft, top)
    if predicted:
        _draw_speeds(canvas, predicted, top)
    return canvas.svg()


def _curve_entries(target: _Points, draft: _Points) -> list[Entry]:
    entries = [Entry("target", f"{_TARGET} line", "circle")]
    if any(spread > 0 for *_, spread in target):
        entries.append(Entry("middle half of the passes", f"{_TARGET} band", band=True))
    if draft:
        text = f"draft model, one token: {draft[0][1]:.2f}"
        entries.append(Entry(text, f"{_DRAFT} line d1", "square"))
    return entries


def _draw_curves(canvas: Canvas, target: _Points, draft: _Points, top: float) -> None:
    canvas.text((_MARGIN, 30), "Cost curve", "title")
    canvas.text((_MARGIN, 50), "a pass over n tokens, in passes of the target over one", "dim")
    widest = max(width for width, *_ in (*target, *draft))
    ticks = nice_ticks(max(cost + spread / 2 for _, cost, spread in target))
    frame = _frame(0, widest, ticks, top)
    frame.grid(canvas, whole_ticks(widest, 8), ticks, x_title="n, tokens in one pass")
    for points, css, marker in ((target, _TARGET, "circle"), (draft, f"{_DRAFT} d1", "square")):
        inside = [point for point in points if point[1] <= ticks[-1]]
        over = [(frame.x(n), frame.y(cost + spread / 2)) for n, cost, spread in inside]
        under = [(frame.x(n), frame.y(cost - spread / 2)) for n, cost, spread in inside]
        if len(inside) > 1:
            canvas.polygon([*over, *reversed(under)], f"band {css}")
            canvas.polyline([(frame.x(n), frame.y(cost)) for n, cost, _ in inside], f"line {css}")
        for n, cost, _ in inside:
            canvas.marker(marker, (frame.x(n), frame.y(cost)), css, 3.2)


def _speed_entries(predicted: Sequence[Prediction]) -> list[Entry]:
    entries = [Entry("plain", "one", line=True)]
    for index, one in enumerate(predicted, _FIRST):
        text = f"{one.drafter}: best k {one.best}, {one.speeds[one.best]:.1f} tok/s"
        if one.best == 0:
            text = f"{one.drafter}: plain is best"
        entries.append(Entry(text, f"line {series(index)} {dashed(index)}", marker_of(index)))
    return entries


def _draw_speeds(canvas: Canvas, predicted: Sequence[Prediction], top: float) -> None:
    left = _MARGIN + _PANEL
    canvas.text((left, 30), "Predicted speed by k", "title")
    explained = "tokens/s from cost curves and measured acceptance; ringed: best k"
    canvas.text((left, 50), explained, "dim")
    longest = max(len(one.speeds) - 1 for one in predicted)
    ticks = nice_ticks(max(max(one.speeds) for one in predicted))
    frame = _frame(_PANEL, longest, ticks, top)
    frame.grid(canvas, whole_ticks(longest, 10), ticks, x_title="k, in steps with a draft")
    plain = frame.y(predicted[0].speeds[0])
    canvas.line((frame.x.start, plain), (frame.x.end, plain), "one")
    for index, one in enumerate(predicted, _FIRST):
        points = [(frame.x(k), frame.y(speed)) for k, speed in enumerate(one.speeds)]
        canvas.polyline(points, f"line {series(index)} {dashed(index)}")
        for at in points[1:]:
            canvas.marker(marker_of(index), at, series(index), 3.2)
        canvas.marker("ring", points[one.best], "one", 8)


def _frame(shift: float, last: float, ticks: Sequence[float], top: float) -> Frame:
    start = _MARGIN + _LEFT + shift
    x = Scale(0, last * 1.03, start, start + _PANEL - _LEFT - _MARGIN)
    return Frame(x, Scale(0.0, ticks[-1], top + _TALL, top))
