"""The figures beside the chat (a panel) or below it (a strip): one widget each, painted whole."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from edgespec.tui.speed.draw import UNICODE, Glyphs
from edgespec.tui.speed.figures import PanelState
from edgespec.tui.speed.panel_text import PanelText
from edgespec.tui.speed.stats import StatsView
from edgespec.tui.speed.strip_text import StripText

__all__ = ["PanelState", "StatsPanel", "StatsStrip"]


class StatsPanel(Static):
    """All figures, as many of them as there is height for."""

    DEFAULT_CSS = """
    StatsPanel {
        width: 34;
        height: 100%;
        padding: 0 0 0 1;
        border-left: vkey $foreground 15%;
        text-wrap: nowrap;
        text-overflow: clip;
    }
    """

    def __init__(
        self, glyphs: Glyphs = UNICODE, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(markup=False, id=id, classes=classes)
        self._glyphs = glyphs
        self._figures = (StatsView(), PanelState())

    def show(self, view: StatsView, header: PanelState) -> None:
        """These from now on."""
        self._figures = (view, header)
        self._rebuild()

    def on_resize(self) -> None:
        self._rebuild()

    def _rebuild(self) -> None:
        width, height = self.content_size
        if width and height:
            lines = PanelText(*self._figures, width, self._glyphs).lines(height)
            _put(self, lines, layout=False)


class StatsStrip(Static):
    """The most important figures in two rows, or in one.

    rows: 1 or 2; CSS may say so as well, with a height of 1.
    """

    DEFAULT_CSS = """
    StatsStrip {
        width: 100%;
        height: auto;
        padding: 0 1;
        text-wrap: nowrap;
        text-overflow: clip;
    }
    """

    def __init__(
        self,
        glyphs: Glyphs = UNICODE,
        *,
        rows: int = 2,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(markup=False, id=id, classes=classes)
        self._glyphs = glyphs
        self._figures = (StatsView(), PanelState())
        self._rows = rows
        self._lines = 0

    @property
    def rows(self) -> int:
        return self._rows

    @rows.setter
    def rows(self, rows: int) -> None:
        self._rows = rows
        self._rebuild()

    def show(self, view: StatsView, header: PanelState) -> None:
        """These from now on."""
        self._figures = (view, header)
        self._rebuild()

    def on_resize(self) -> None:
        self._rebuild()

    def _rebuild(self) -> None:
        if not self.content_size.width:
            return
        height = self.styles.height
        flat = height is not None and not height.is_auto and height.value < 2
        strip = StripText(*self._figures, self.content_size.width, self._glyphs)
        lines = strip.lines(1 if flat else self._rows, self.outer_size.width)
        _put(self, lines, layout=len(lines) != self._lines)
        self._lines = len(lines)


def _put(widget: Static, lines: list[Content], layout: bool) -> None:
    content = Content("\n").join(lines)
    # Painting is what costs: not again what is there already.
    if not (isinstance(widget.content, Content) and content.is_same(widget.content)):
        widget.update(content, layout=layout)
