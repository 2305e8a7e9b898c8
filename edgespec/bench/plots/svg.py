"""Draws SVG without a library: shapes and text, readable on light and on dark pages.

Colours stand in one style sheet, so that the viewer's colour scheme can choose between two. Who
cannot tell colours apart has the markers and dashes, which differ as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

FONT_SIZE = 12
_GLYPH = 0.6  # mean width of a letter in its height, of a wide font

# After Okabe and Ito; darkened or lightened until each stands out against its page.
_LIGHT = "0072b2 d55e00 007f5f a6407f 806000 2b8cbe 4b4b4b 6a51c7"
_DARK = "56a8f0 ff8c42 3fc79a e58ac0 e0b93a 8fd3ff c8c8c8 b3a2ff"
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2")
MARKERS = ("circle", "square", "diamond", "up", "down", "cross", "plus", "ring", "box")
_OPEN = ("cross", "plus", "ring", "box", "tick")


class Canvas:
    """One drawing. Coordinates are pixels from the top left; `css` names classes of the style."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width = width
        self.height = height
        self._title = title
        self._parts: list[str] = []

    def line(self, start: Point, end: Point, css: str) -> None:
        places = zip(("x1", "y1", "x2", "y2"), (*start, *end), strict=True)
        self._add("line", css, **{name: _number(value) for name, value in places})

    def polyline(self, points: Sequence[Point], css: str) -> None:
        self._add("polyline", f"open {css}", points=_points(points))

    def polygon(self, points: Sequence[Point], css: str) -> None:
        self._add("polygon", css, points=_points(points))

    def rectangles(self, boxes: Sequence[tuple[float, float, float, float]], css: str) -> None:
        """Boxes of x, y, width, height as one shape, which keeps files with many of them small."""
        parts = (
            f"M{_number(x)},{_number(y)}h{_number(w)}v{_number(h)}h{_number(-w)}z"
            for x, y, w, h in boxes
        )
        self._add("path", css, d="".join(parts))

    def marker(self, shape: str, at: Point, css: str, size: float = 4.0) -> None:
        """One of MARKERS, or "tick". Some are filled, others are only lines."""
        css = f"{css} open mark" if shape in _OPEN else f"{css} mark"
        if shape in ("circle", "ring"):
            x, y = map(_number, at)
            self._add("circle", css, cx=x, cy=y, r=_number(size))
        else:
            self._add("path", css, d=_outline(shape, at, size))

    def text(self, at: Point, text: str, css: str = "", anchor: Anchor = "start") -> None:
        x, y = map(_number, at)
        attributes = _attributes(css, x=x, y=y, **{"text-anchor": anchor})
        self._parts.append(f"<text{attributes}>{escape(printable(text))}</text>")

    def svg(self) -> str:
        """The drawing as a file of its own."""
        width, height = _number(self.width), _number(self.height)
        title = escape(printable(self._title))
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img">',
                f"<title>{title}</title>",
                f"<style>{_STYLE}</style>",
                f'<rect class="page" width="{width}" height="{height}"/>',
                *self._parts,
                "</svg>\n",
            )
        )

    def _add(self, tag: str, css: str, **attributes: str) -> None:
        self._parts.append(f"<{tag}{_attributes(css, **attributes)}/>")


def series(index: int) -> str:
    """The classes that give the `index`-th of several things its colour."""
    return f"s{index % len(_LIGHT.split())}"


def dashed(index: int) -> str:
    """The class that gives the `index`-th of several lines its dashes."""
    return f"d{index % len(DASHES)}"


def marker_of(index: int) -> str:
    """The shape of the `index`-th of several things."""
    return MARKERS[index % len(MARKERS)]


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """About how wide a text is drawn, rather more than less."""
    return _GLYPH * size * len(text)


def fitted(text: str, width: float, size: float = FONT_SIZE) -> str:
    """`text`, cut so that it is drawn no wider than `width`."""
    room = max(1, int(width / (_GLYPH * size)))
    text = printable(text)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def printable(text: str) -> str:
    """`text` on one line and without characters that XML forbids."""
    return "".join(char if char.isprintable() else " " for char in text)


def _number(value: float) -> str:
    assert math.isfinite(value), "figures that cannot be drawn are left out by the plots"
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0 makes -0.0 positive


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _attributes(css: str, **attributes: str) -> str:
    named = {"class": css, **attributes} if css else attributes
    return "".join(f" {name}={quoteattr(value)}" for name, value in named.items())


def _outline(shape: str, at: Point, size: float) -> str:
    corners: dict[str, tuple[Point, ...]] = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        "up": ((0, -1.2), (1.2, 0.9), (-1.2, 0.9)),
        "down": ((0, 1.2), (1.2, -0.9), (-1.2, -0.9)),
    }
    strokes: dict[str, tuple[tuple[Point, Point], ...]] = {
        "cross": (((-1, -1), (1, 1)), ((-1, 1), (1, -1))),
        "plus": (((-1.2, 0), (1.2, 0)), ((0, -1.2), (0, 1.2))),
        "tick": (((0, -1.6), (0, 1.6)),),
    }

    def place(point: Point) -> str:
        return f"{_number(at[0] + size * point[0])},{_number(at[1] + size * point[1])}"

    if shape in strokes:
        return "".join(f"M{place(start)}L{place(end)}" for start, end in strokes[shape])
    return "M" + "L".join(map(place, corners["square" if shape == "box" else shape])) + "z"


def _colours(palette: str) -> str:
    return "".join(f".s{i}{{stroke:#{c};fill:#{c}}}" for i, c in enumerate(palette.split()))


# `.open` comes last: what is only a line must not be filled.
_STYLE = (
    "text{font:12px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}"
    ".title{font-size:16px;font-weight:600}.bold{font-weight:600}"
    ".small{font-size:11px}.dim{fill:#59636e}"
    ".page{fill:#ffffff}.grid{stroke:#e2e6ea;fill:none}.axis{stroke:#6e7781;fill:none}"
    ".one{stroke:#1f2328;stroke-width:1.2;fill:none}.near{fill:#818b98;fill-opacity:.16}"
    ".line{stroke-width:2;stroke-linejoin:round}.thin{stroke-width:1.2}"
    ".band{stroke:none;fill-opacity:.18}.pale{stroke:none;fill-opacity:.3}.solid{stroke:none}"
    ".mark{stroke-width:1.6;stroke-dasharray:none}"
    + "".join(f".d{i}{{stroke-dasharray:{dash or 'none'}}}" for i, dash in enumerate(DASHES))
    + _colours(_LIGHT)
    + ".solid,.band,.pale{stroke:none}.open{fill:none}"
    "@media (prefers-color-scheme:dark){"
    "text{fill:#e6edf3}.dim{fill:#9aa4af}.page{fill:#0d1117}.grid{stroke:#2a313a}"
    ".axis{stroke:#7d8590}.one{stroke:#e6edf3}" + _colours(_DARK) + ".open{fill:none}"
    ".solid,.band,.pale{stroke:none}.band{fill-opacity:.3}.pale{fill-opacity:.4}}"
)
