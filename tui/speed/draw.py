"""Numbers as short text and as pictures out of characters. Pure.

What is not known (None, NaN, infinity) is a dash. A picture is always as wide as was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters to draw with.

    levels: of a sparkline, lowest first. eighths: of the last cell of a bar, emptiest first; ""
    for whole cells only. full, empty: of a bar. parts: of a split bar, in turn.
    """

    levels: str
    eighths: str
    full: str
    empty: str
    parts: str
    unknown: str
    times: str
    dot: str


UNICODE = Glyphs(
    levels="▁▂▃▄▅▆▇█",
    eighths="▏▎▍▌▋▊▉",
    full="█",
    empty="░",
    parts="▓█░",
    unknown="–",
    times="×",
    dot="·",
)
ASCII = Glyphs(
    levels=" .:-=+*#",
    eighths="",
    full="#",
    empty=".",
    parts="=#.",
    unknown="-",
    times="x",
    dot="|",
)


def glyphs_for(ascii_only: bool, term: str) -> Glyphs:
    """What this terminal can show; `term` is its TERM. The Linux console has few characters."""
    return ASCII if ascii_only or term == "linux" else UNICODE


# Pictures.


def sparkline(
    values: Sequence[float], width: int, top: float | None = None, glyphs: Glyphs = UNICODE
) -> str:
    """The last `width` values, the latest at the right end. The lowest level is zero, the highest
    is `top`, or the largest value shown; a value that is not known leaves a gap."""
    width = max(width, 0)
    shown = values[-width:] if width else ()
    if not _known(top) or top <= 0:
        top = max(filter(math.isfinite, shown), default=0.0)
    return "".join(_level(value, top, glyphs.levels) for value in shown).rjust(width)


def _level(value: float, top: float, levels: str) -> str:
    if math.isnan(value):
        return " "
    if top <= 0:
        return levels[0]
    return levels[int(min(max(value / top, 0.0), 1.0) * (len(levels) - 1) + 0.5)]


def bar(share: float | None, width: int, glyphs: Glyphs = UNICODE) -> str:
    """A bar of which `share` is full, to an eighth of a cell. Not known is empty."""
    width = max(width, 0)
    parts = len(glyphs.eighths) + 1
    filled = min(max(share, 0.0), 1.0) if _known(share) else 0.0
    whole, rest = divmod(int(filled * width * parts + 0.5), parts)
    last = glyphs.eighths[rest - 1] if rest else ""
    return (glyphs.full * whole + last).ljust(width, glyphs.empty)


def split_bar(shares: Sequence[float], width: int, glyphs: Glyphs = UNICODE) -> str:
    """One bar in parts, sized by `shares`, whatever their sum; empty when they are all zero."""
    parts = split_widths(shares, width)
    return "".join(
        glyphs.parts[i % len(glyphs.parts)] * part for i, part in enumerate(parts)
    ).ljust(max(width, 0), glyphs.empty)


def split_widths(shares: Sequence[float], width: int) -> tuple[int, ...]:
    """Cells for each of `shares`, `width` in all; zeros when the shares are."""
    sizes = [share if _known(share) and share > 0 else 0.0 for share in shares]
    largest = max(sizes, default=0.0)
    if not largest or width <= 0:
        return (0,) * len(sizes)
    sizes = [size / largest for size in sizes]  # so that their sum is finite
    exact = [size * width / sum(sizes) for size in sizes]
    cells = [int(cell) for cell in exact]
    missing = width - sum(cells)
    by_rest = sorted(range(len(cells)), key=lambda i: cells[i] - exact[i])
    for i in by_rest[:missing]:
        cells[i] += 1
    return tuple(cells)


# Numbers.


def rate(x: float | None, glyphs: Glyphs = UNICODE, *, short: bool = False) -> str:
    """Per second, without its unit: 110.7. short: at most four characters up to 9999."""
    if not _known(x):
        return glyphs.unknown
    return f"{x:.1f}" if abs(x) < (99.95 if short else 999.95) else f"{x:.0f}"


def seconds(x: float | None, glyphs: Glyphs = UNICODE) -> str:
    """Such as 0.41 s, 7.1 s, 12 s, 3 min 5 s."""
    if not _known(x):
        return glyphs.unknown
    size = abs(x)
    if size < 59.5:
        digits = 2 if size < 0.995 else 1 if size < 9.95 else 0
        return f"{x:.{digits}f} s"
    minutes, rest = divmod(int(size + 0.5), 60)
    return f"{'-' if x < 0 else ''}{minutes} min {rest} s"


def milliseconds(x: float | None, glyphs: Glyphs = UNICODE) -> str:
    """`x` seconds in ms, without its unit: 5.9, 126."""
    return rate(x * 1000 if x is not None else None, glyphs, short=True)


def percent(x: float | None, glyphs: Glyphs = UNICODE, *, digits: int = 0) -> str:
    """A share, such as 52%."""
    return f"{x * 100:.{digits}f}%" if _known(x) else glyphs.unknown


def speedup(x: float | None, glyphs: Glyphs = UNICODE) -> str:
    """Such as ×2.1, ×12."""
    if not _known(x):
        return glyphs.unknown
    return f"{glyphs.times}{x:.{1 if abs(x) < 9.95 else 0}f}"


def tokens(n: int | None, glyphs: Glyphs = UNICODE) -> str:
    """A count: 412, 4096, 12.3k, 1.2M."""
    if n is None:
        return glyphs.unknown
    if abs(n) < 10_000:
        return str(n)
    value, unit = (n / 1_000, "k") if abs(n) < 999_500 else (n / 1_000_000, "M")
    return f"{value:.{1 if abs(value) < 99.95 else 0}f}{unit}"


def _known(x: float | None) -> TypeGuard[float]:
    return x is not None and math.isfinite(x)
