"""Plot: what was drafted and accepted in each step of one prompt per category."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.bench.judging import lookup
from edgespec.bench.modes import AUTO
from edgespec.bench.plots.axes import Entry, Legend, Scale, whole_ticks
from edgespec.bench.plots.svg import Canvas, fitted
from edgespec.bench.records import Cell, Result

_WIDTH = 900.0
_MARGIN = 20.0
_LEFT = 190.0  # names
_TALL = 64.0
_GAP = 26.0
_MOST = 400  # steps that can be told apart


def draw(result: Result) -> str | None:
    """One row of bars per category, drafted pale and accepted solid."""
    mode = _mode(result)
    cells = _representatives(result, mode) if mode else []
    if not mode or not cells:
        return None
    most = max(max(cell.per_step_drafted) for cell in cells)
    steps = min(_MOST, max(len(cell.per_step_drafted) for cell in cells))
    legend = Legend(
        _WIDTH - 2 * _MARGIN,
        [Entry("accepted", "solid s0", band=True), Entry("drafted", "pale s0", band=True)],
    )
    top = 84 + legend.height
    bottom = top + (_TALL + _GAP) * len(cells)
    canvas = Canvas(_WIDTH, bottom + 30, "k over the steps of an answer")
    canvas.text((_MARGIN, 30), f"k over the steps of an answer, mode {fitted(mode, 400)}", "title")
    cut = max(len(cell.per_step_drafted) for cell in cells) > _MOST
    explained = "the prompt of median acceptance of each category; a gap is a step without a draft"
    canvas.text((_MARGIN, 50), explained + (f"; first {_MOST} steps" if cut else ""), "dim")
    legend.draw(canvas, _MARGIN, 62)
    x = Scale(0, steps, _LEFT + 24, _WIDTH - _MARGIN)
    for index, cell in enumerate(cells):
        base = top + (_TALL + _GAP) * index + _TALL
        _draw_cell(canvas, cell, x, Scale(0, most, base, base - _TALL))
    canvas.text(((x.start + x.end) / 2, bottom + 12), "step", "small dim", "middle")
    return canvas.svg()


def _mode(result: Result) -> str | None:
    drafting = [summary.mode for summary in lookup.drafting(result)]
    return AUTO if AUTO in drafting else next(iter(drafting), None)


def _representatives(result: Result, mode: str) -> list[Cell]:
    """Of each category the prompt whose tokens per step are the median; first repetitions."""
    found: dict[str, list[Cell]] = {}
    for cell in result.cells:
        if cell.mode == mode and cell.error is None and any(cell.per_step_drafted):
            found.setdefault(cell.category, []).append(cell)
    chosen = {}
    for category, cells in found.items():
        first = min(cell.repetition for cell in cells)
        ranked = sorted((_kept(cell), cell.question_id, i) for i, cell in enumerate(cells))
        ranked = [entry for entry in ranked if cells[entry[2]].repetition == first]
        chosen[category] = cells[ranked[len(ranked) // 2][2]]
    order = [*lookup.categories(result), *found]
    return [chosen[category] for category in dict.fromkeys(order) if category in chosen]


def _kept(cell: Cell) -> float:
    return sum(cell.per_step_accepted) / max(1, len(cell.per_step_drafted))


def _draw_cell(canvas: Canvas, cell: Cell, x: Scale, y: Scale) -> None:
    middle = (y.start + y.end) / 2
    canvas.text((_MARGIN, middle - 12), fitted(cell.category, _LEFT - _MARGIN), "bold")
    canvas.text((_MARGIN, middle + 5), fitted(cell.question_id, _LEFT - _MARGIN, 11), "small dim")
    kept = f"{1 + _kept(cell):.2f} tokens/step"
    canvas.text((_MARGIN, middle + 21), kept, "small dim")
    for k in (0, int(y.high)):
        canvas.line((x.start, y(k)), (x.end, y(k)), "grid" if k else "axis")
        canvas.text((x.start - 6, y(k) + 4), str(k), "small dim", "end")
    for step in whole_ticks(int(x.high), 10):
        canvas.text((x(step), y.start + 14), str(step), "small dim", "middle")
    canvas.rectangles(_bars(cell.per_step_drafted, x, y), "pale s0")
    canvas.rectangles(_bars(cell.per_step_accepted, x, y), "solid s0")


def _bars(lengths: Sequence[int], x: Scale, y: Scale) -> list[tuple[float, float, float, float]]:
    wide = x(1) - x(0)
    wide -= 1.0 if wide > 4 else 0.0  # bars of few steps stand apart
    return [
        (x(step), y(length), wide, y(0) - y(length))
        for step, length in enumerate(lengths[:_MOST])
        if length > 0
    ]
