"""Scales, ticks, frames and legends of plots, drawn on a `svg.Canvas`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgespec.bench.plots.svg import Canvas, fitted, text_width

LEGEND_ROW = 18.0
_SAMPLE = 26.0  # width of the sign before an entry's text
_RATIOS = (0.1, 0.2, 0.25, 0.33, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
_MORE_RATIOS = (4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps low..high to the pixels start..end. Logarithmic ones need low > 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def nice_ticks(high: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to at least `high`, about `count` of them."""
    if not high > 0:
        return [0.0, 1.0]
    rough = high / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [step * i for i in range(math.ceil(high / step - 1e-9) + 1)]


def whole_ticks(high: int, count: int = 10) -> list[int]:
    """Whole numbers from 0 to `high`, evenly spaced, at most about `count`."""
    rough = max(1.0, high / count)
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return list(range(0, high + 1, step))


def ratio_ticks(low: float, high: float, width: float) -> list[float]:
    """Familiar ratios between `low` and `high`, with room for their labels on a log scale."""
    scale = Scale(low, high, 0.0, width, log=True)
    chosen = [1.0] if low <= 1.0 <= high else []
    for ratio in sorted((*_RATIOS, *_MORE_RATIOS), key=lambda r: (r not in (0.5, 2.0), abs(r - 1))):
        far = all(abs(scale(ratio) - scale(other)) >= 34 for other in chosen)
        if low <= ratio <= high and far:
            chosen.append(ratio)
    return sorted(chosen)


def label(value: float) -> str:
    """A tick's number without needless digits."""
    return f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The area of a plot with its two scales."""

    x: Scale
    y: Scale

    def grid(
        self,
        canvas: Canvas,
        x_ticks: Sequence[float],
        y_ticks: Sequence[float],
        *,
        x_title: str = "",
        y_title: str = "",
    ) -> None:
        """Lines and numbers at the ticks, and what the axes mean; y's name stands on top."""
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        for value in y_ticks:
            y = self.y(value)
            canvas.line((left, y), (right, y), "axis" if value == self.y.low else "grid")
            canvas.text((left - 8, y + 4), label(value), "small dim", "end")
        for value in x_ticks:
            x = self.x(value)
            canvas.line((x, bottom), (x, bottom + 4), "axis")
            canvas.text((x, bottom + 17), label(value), "small dim", "middle")
        if x_title:
            canvas.text(((left + right) / 2, bottom + 36), x_title, "small dim", "middle")
        if y_title:
            canvas.text((left - 30, top - 12), y_title, "small dim")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a legend; css: colour and dashes; kind: marker's shape, "band" or "line"."""

    text: str
    css: str
    marker: str = ""
    line: bool = True
    band: bool = False


@dataclass(slots=True)
class Legend:
    """Entries in rows, each as wide as there is room. Stands outside of the data, never on it."""

    width: float
    entries: list[Entry] = field(default_factory=list)

    @property
    def height(self) -> float:
        return LEGEND_ROW * len(self._rows())

    def draw(self, canvas: Canvas, left: float, top: float) -> None:
        for index, row in enumerate(self._rows()):
            y = top + LEGEND_ROW * index + LEGEND_ROW / 2
            x = left
            for entry in row:
                _sample(canvas, entry, x, y)
                text = fitted(entry.text, self.width - _SAMPLE, 11)
                canvas.text((x + _SAMPLE, y + 4), text, "small")
                x += _needs(entry)

    def _rows(self) -> list[list[Entry]]:
        rows: list[list[Entry]] = [[]]
        used = 0.0
        for entry in self.entries:
            if rows[-1] and used + _needs(entry) > self.width:
                rows.append([])
                used = 0.0
            rows[-1].append(entry)
            used += _needs(entry)
        return rows if rows[0] else []


def _needs(entry: Entry) -> float:
    return _SAMPLE + text_width(entry.text, 11) + 14


def _sample(canvas: Canvas, entry: Entry, x: float, y: float) -> None:
    middle = x + (_SAMPLE - 6) / 2
    if entry.band:
        canvas.rectangles([(x, y - 5, _SAMPLE - 6, 10)], entry.css)
        return
    if entry.line:
        canvas.line((x, y), (x + _SAMPLE - 6, y), entry.css)
    if entry.marker:
        canvas.marker(entry.marker, (middle, y), entry.css)
