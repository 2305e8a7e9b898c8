"""Markdown that also reads well as plain text: aligned tables, and foreign text made harmless."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_LONGEST = 60
_NOTHING = "-"

# What Markdown would take for markup, only where it would.
_MARKUP = re.compile(
    r"""[\\`*|~]            # escapes, code, emphasis, cells, deletions
    |(?<![^\W_])_+          # emphasis; not inside of a name
    |_+(?![^\W_])
    |<(?=[a-zA-Z/!?])       # tags and links
    |&(?=\#?\w+;)           # entities
    |(?<=\])[(\[:]          # links
    |^[#>+=-]               # headings, quotations, lists""",
    re.VERBOSE,
)
_LIST_NUMBER = re.compile(r"^(\d+)([.)])(?= |$)")


def text(foreign: str) -> str:
    """`foreign` as it is, on one line and without a meaning in Markdown or for a terminal."""
    printable = "".join(char if char.isprintable() else " " for char in foreign)
    line = " ".join(printable.split())
    line = _MARKUP.sub(lambda found: "".join(f"\\{char}" for char in found[0]), line)
    return _LIST_NUMBER.sub(r"\1\\\2", line)


def name(foreign: str) -> str:
    """The same for names, which are cut when they are too long for a table."""
    return text(foreign if len(foreign) <= _LONGEST else f"{foreign[: _LONGEST - 3]}...")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "") -> str:
    """A Markdown table whose columns line up. `align`: "l" or "r" per column, else all "r".

    Cells hold Markdown already: pass foreign text through `text` or `name`.
    """
    sides = align.ljust(len(header), align[-1:] or "r")[: len(header)]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(3, *map(_width, column)) for column in columns]
    ruler = [
        "-" * (w - 1) + ":" if s == "r" else "-" * w for w, s in zip(widths, sides, strict=True)
    ]
    lines = [list(header), ruler, *map(list, rows)]
    return "\n".join(f"| {' | '.join(_padded(line, widths, sides))} |" for line in lines)


def narrow_tables(header: Sequence[str], rows: Sequence[Sequence[str]], limit: int) -> list[str]:
    """The same in several tables if one would be wider than `limit`; each has the first column."""
    columns = list(zip(header, *rows, strict=True))
    found = []
    for part in _parts(columns, limit):
        first, *others = zip(*part, strict=True)
        found.append(table(first, others, "lr"))
    return found


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A figure, "-" where it cannot be had."""
    return _NOTHING if value is None else f"{value:.{digits}f}{unit}"


def percent(share: float | None) -> str:
    """0..1 as a percentage."""
    return _NOTHING if share is None else f"{share * 100:.0f} %"


def milliseconds(seconds: float | None) -> str:
    """Seconds in ms."""
    if seconds is None:
        return _NOTHING
    return f"{seconds * 1000:.{1 if seconds >= 1e-3 else 2}f}"


def size(count: float) -> str:
    """Bytes in MiB or GiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _parts(columns: Sequence[Sequence[str]], limit: int) -> Iterator[list[Sequence[str]]]:
    part = [columns[0]]
    for column in columns[1:]:
        wide = sum(max(3, *map(_width, one)) + 3 for one in [*part, column]) + 1
        if wide > limit and len(part) > 1:
            yield part
            part = [columns[0]]
        part.append(column)
    yield part


def _padded(cells: Sequence[str], widths: Sequence[int], sides: str) -> Iterator[str]:
    for cell, width, side in zip(cells, widths, sides, strict=True):
        space = " " * (width - _width(cell))
        yield space + cell if side == "r" else cell + space


def _width(cell: str) -> int:
    """Columns of a terminal: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in cell
    )
