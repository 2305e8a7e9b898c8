"""Markdown as text that can be selected: one widget, where Textual's own takes one for every block.

A screen with dozens of widgets takes tens of milliseconds to lay out, and an answer that grows is
laid out ten times a second; this is why old and long answers must be few widgets.
"""

from __future__ import annotations

import functools
import io
import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.style import Style as RichStyle
from rich.theme import Theme
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.css.styles import RulesMap
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Static

from edgespec.tui.plain_text import harmless

# No colours of its own: what it is drawn on may be light or dark.
_THEME = Theme(
    {
        "markdown.code": "bold italic",
        "markdown.code_block": "none",
        "markdown.block_quote": "italic",
        "markdown.list": "none",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.hr": "dim",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.link": "underline",
        "markdown.link_url": "underline",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
_CONSOLE = Console(
    file=io.StringIO(), force_terminal=True, color_system="standard", theme=_THEME, width=80
)
_LONG = 1200  # characters; the part of an answer that is drawn anew while it grows
_SHORTEST = 400
# Where a paragraph ends and no list or table goes on.
_PARAGRAPH = re.compile(r"\n\n(?=[^\s\-*+|>\d])")


class _Heading(Heading):
    """At the left, not in a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _Heading}  # noqa: RUF012


def drawn(text: str, width: int, *, dark: bool) -> Content:
    """Markdown in lines of at most `width` cells."""
    theme = "ansi_dark" if dark else "ansi_light"
    markdown = _Markdown(harmless(text), code_theme=theme, hyperlinks=False)
    lines = _CONSOLE.render_lines(markdown, _CONSOLE.options.update(width=width), pad=False)
    written = [
        Content.assemble(*((segment.text, _style(segment.style)) for segment in line)).rstrip()
        for line in lines
    ]
    while written and not written[-1]:
        written.pop()
    while written and not written[0]:
        del written[0]
    return Content("\n").join(written)


@functools.lru_cache(maxsize=256)
def _style(style: RichStyle | None) -> Style:
    return Style.from_rich_style(style) if style else Style.null()


class Drawn(Visual):
    """Markdown that is drawn for the width there is."""

    def __init__(self, text: str, *, dark: bool) -> None:
        self._text = text
        self._dark = dark
        self._last: tuple[int, Content] | None = None

    def at(self, width: int) -> Content:
        """For lines of so many cells."""
        if self._last is None or self._last[0] != width:
            self._last = (width, drawn(self._text, width, dark=self._dark))
        return self._last[1]

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self.at(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self.at(width).get_height(rules, width)


class MarkdownPart(Static):
    """Some paragraphs."""

    DEFAULT_CSS = """
    MarkdownPart { width: 1fr; height: auto; }
    """

    def __init__(self, text: str) -> None:
        super().__init__(markup=False)
        self._text = text
        self._drawn: Drawn | None = None

    def show(self, text: str) -> None:
        """This from now on."""
        if text != self._text:
            self._text = text
            self._draw()

    def on_mount(self) -> None:
        self._draw()
        self.watch(self.app, "theme", self._draw, init=False)

    def _draw(self) -> None:
        if self.is_attached:
            self._drawn = Drawn(self._text, dark=self.app.current_theme.dark)
            self.update(self._drawn)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        if self._drawn is None or not self.content_size.width:
            return None
        return selection.extract(self._drawn.at(self.content_size.width).plain), "\n"


class MarkdownText(Vertical):
    """A whole text, which may grow: only its last part is then drawn anew."""

    DEFAULT_CSS = """
    MarkdownText { height: auto; }
    MarkdownText > MarkdownPart { margin: 1 0 0 0; }
    MarkdownText > MarkdownPart:first-child { margin: 0; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._begins = 0  # of the last part, in the whole text
        self._last = MarkdownPart(text)

    def compose(self) -> ComposeResult:
        yield self._last

    async def grow(self, text: str) -> None:
        """The whole text so far, of which only the end is new."""
        tail = text[self._begins :]
        while cut := _cut(tail):
            self._last.show(tail[:cut])
            self._last = MarkdownPart("")
            await self.mount(self._last)
            self._begins += cut
            tail = tail[cut:]
        self._last.show(tail)


def _cut(text: str) -> int:
    """How much of it need not be drawn anew any more; 0 if all must be."""
    if len(text) < _LONG:
        return 0
    ends = [match.start() + 2 for match in _PARAGRAPH.finditer(text)]
    return next(
        (end for end in reversed(ends) if end >= _SHORTEST and not _in_fence(text[:end])), 0
    )


def _in_fence(text: str) -> bool:
    return len(re.findall(r"^ {0,3}(?:```|~~~)", text, re.MULTILINE)) % 2 == 1
