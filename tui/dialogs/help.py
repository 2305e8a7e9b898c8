"""All keys and slash commands with what they do, and where the files lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Static

from edgespec.tui.colours import MUTED
from edgespec.tui.dialogs.frame import Box, Dialog
from edgespec.tui.plain_text import one_line

_GAP = 2
_NARROWEST = 16  # columns of the last column; below it, the table is cut at the right edge
_LONGEST = 500


class Columns(Visual):
    """A table whose last column is wrapped and stays beside the others."""

    def __init__(self, rows: Sequence[tuple[str, ...]], styles: Sequence[str]) -> None:
        self._rows = [
            [Content.styled(text, style) for text, style in zip(row, styles, strict=True)]
            for row in rows
        ]
        widths = zip(*([cell.cell_length for cell in row[:-1]] for row in self._rows), strict=True)
        self._widths: list[int] = [max(column) for column in widths]
        self._left = sum(width + _GAP for width in self._widths)

    def lines(self, width: int) -> list[Content]:
        """As it is shown on so many columns."""
        room = max(width - self._left, _NARROWEST)
        found: list[Content] = []
        for *cells, last in self._rows:
            padded = [
                cell.truncate(size + _GAP, pad=True)
                for cell, size in zip(cells, self._widths, strict=True)
            ]
            before = Content.assemble(*padded)
            for line in last.wrap(room) or [last]:
                found.append(Content.assemble(before, line).truncate(width))
                before = Content(" " * self._left)
        return found

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        strips = []
        for line in self.lines(width)[:height]:
            strips += line.render_strips(width, 1, style, options) or [Strip.blank(width)]
        return strips

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        longest: int = max((row[-1].cell_length for row in self._rows), default=0)
        return int(self._left + longest)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return len(self.lines(width))


class HelpDialog(Dialog[None]):
    """rows: keys, slash command, what they do. paths: what lies where; to be selected by mouse."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,f1,q", "leave", "Close", show=False),
    ]

    DEFAULT_CSS = """
    HelpDialog {
        & > Box {
            height: 100%;
            max-height: 40;
        }
        & VerticalScroll {
            scrollbar-size-vertical: 1;
        }
        & .heading {
            margin: 1 0 0 0;
            text-style: bold;
        }
    }
    """

    def __init__(
        self, rows: Sequence[tuple[str, str, str]], paths: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__()
        self._rows = rows
        self._paths = paths

    def compose(self) -> ComposeResult:
        with Box("Help", "up, down scroll · esc close"), VerticalScroll():
            if self._rows:
                yield Static(Columns(self._rows, ("$text-accent", "$text-primary", "")))
            if self._paths:
                yield Static("Where files lie", classes="heading")
            for what, where in self._paths:
                place = one_line(where, _LONGEST)
                yield Static(Content.assemble((f"{what}  ", MUTED), place))
