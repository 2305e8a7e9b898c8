"""The lines of the strip below the chat."""

from __future__ import annotations

from textual.content import Content

from edgespec.tui.colours import MUTED
from edgespec.tui.speed import draw
from edgespec.tui.speed.figures import GOOD, Figures, flat

_NARROW = 60  # columns, below which there is room for the speed only
_PICTURE = 12  # cells of a sparkline
_BAR = 9


class StripText(Figures):
    """The most important figures."""

    __slots__ = ()

    def lines(self, rows: int, columns: int) -> list[Content]:
        """One or two, for a widget of so many columns."""
        if columns < _NARROW:
            return [self._speed_alone()]
        if rows < 2:
            return [self.row(self._speed_alone(), " ", self._drafting())]
        return [self._first(), self._second()]

    def _speed_alone(self) -> Content:
        if self.reads:
            return self.row(self.read_so_far())
        return self.row(self.rate(), " ", self.speedup(tagged=False))

    def _drafting(self) -> Content:
        if self.header.off:
            return Content(flat(self.header.drafters))
        return Content.assemble(self._accepted(), " ", self.k())

    def _accepted(self) -> Content:
        share = draw.percent(self.view.acceptance, self.glyphs)
        return Content.assemble(("acc ", MUTED), share)

    def _first(self) -> Content:
        pictured = self._pictured()
        if pictured.cell_length <= self.width:
            return pictured
        return self.row(self._speed_alone(), "  ", self._drafting())

    def _pictured(self) -> Content:
        if self.reads:
            speed = Content.assemble(self.read_so_far(), " ", self.reading_bar(_PICTURE))
        else:
            speed = Content.assemble(self.rate(), " ", self.rates(_PICTURE), " ", self.speedup())
        if self.header.off:
            return self.row(speed, "  ", self._drafting())
        bar = self.bar(self.view.acceptance, _BAR, GOOD)
        drafts = (self._accepted(), " ", bar, "  ", self.k(), " ", self.lengths(_PICTURE))
        return Content.assemble(speed, "  ", *drafts)

    def _second(self) -> Content:
        view, glyphs = self.view, self.glyphs
        used, share = self.context()
        total = sum(part or 0.0 for part in (view.draft_s, view.verify_s, view.rest_s))
        draft, verify = (
            draw.percent(part / total if part is not None and total else None, glyphs)
            for part in (view.draft_s, view.verify_s)
        )
        parts = (
            self.tokens_per_step(),
            f"draft {draft} verify {verify}",
            f"{draw.tokens(view.tokens, glyphs)} tok",
            Content.assemble(f"ctx {used} ", share),
        )
        return self.row(Content(f" {glyphs.dot} ").join(parts))
