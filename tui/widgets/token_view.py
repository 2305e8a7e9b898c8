"""An answer as raw text, with the tokens that a drafter proposed tinted."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from edgespec.tui.colours import MUTED
from edgespec.tui.plain_text import harmless
from edgespec.types import TARGET

# Every tint is readable on light and dark themes; where there are no colours, underlined.
_TINTS = {
    "model": "$text-success on $success-muted",
    "n-gram": "$text-warning on $warning-muted",
}
_OTHER = "$text-accent on $accent-muted"
_GHOST = f"{MUTED} strike"


class TokenView(Vertical):
    """One Static for every line of text: only the last one changes while an answer grows."""

    DEFAULT_CSS = """
    TokenView { height: auto; }
    TokenView > Static { width: 1fr; height: auto; }
    """

    def __init__(self, spans: Iterable[tuple[str, str]] = (), *, underline: bool = False) -> None:
        super().__init__()
        self._underline = underline
        self._line: list[tuple[str, str]] = []
        self._ghost = ""
        self._last = Static()
        self._finished: list[Static] = []
        self._take(spans)

    def compose(self) -> Iterable[Static]:
        yield from self._finished
        yield self._last

    def append(self, spans: Iterable[tuple[str, str]], ghost: str = "") -> None:
        """(source, text) of what has come; ghost: what was drafted after it and rejected."""
        self._ghost = harmless(ghost).replace("\n", "⏎")
        before = len(self._finished)
        self._take(spans)
        new = self._finished[before:]
        if new and self.is_attached:
            self.mount_all(new, before=self._last)

    def _take(self, spans: Iterable[tuple[str, str]]) -> None:
        for source, text in spans:
            first, *others = harmless(text).split("\n")
            self._line.append((source, first))
            for other in others:
                self._finished.append(Static(self._content()))
                self._line = [(source, other)]
        self._last.update(Content.assemble(self._content(), (self._ghost, _GHOST)))

    def _content(self) -> Content:
        return Content.assemble(*((text, self._style(source)) for source, text in self._line))

    def _style(self, source: str) -> str:
        if source == TARGET:
            return ""
        return _TINTS.get(source, _OTHER) + (" underline" if self._underline else "")
