"""Figures as pieces of lines, as panel and strip have them in common. Colours are of the theme."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from edgespec.tui.colours import MUTED
from edgespec.tui.plain_text import harmless
from edgespec.tui.speed import draw
from edgespec.tui.speed.draw import Glyphs
from edgespec.tui.speed.stats import StatsView

GOOD, BAD = "$text-success", "$text-warning"
DRAFT, VERIFY = "$text-warning", "$text-primary"

_K_TOP = 8  # of the picture of draft lengths, unless there are longer ones
_FULL = 0.8  # of the context: time to warn

Piece = Content | str | tuple[str, str]


def flat(text: str) -> str:
    """On one line, and harmless."""
    return harmless(" ".join(text.split()))


@dataclass(frozen=True, slots=True)
class PanelState:
    """What a StatsView does not tell.

    state: "generating", "reading", "idle" ... k_mode: "auto", or the k that was set. drafters:
    those that are loaded, or "off: " and why.
    """

    state: str = "idle"
    k_mode: str = "auto"
    drafters: str = ""

    @property
    def off(self) -> bool:
        """Whether nobody drafts."""
        return self.drafters == "off" or self.drafters.startswith("off:")


@dataclass(frozen=True, slots=True)
class Figures:
    """width: of a line, in cells. No line is wider."""

    view: StatsView
    header: PanelState
    width: int
    glyphs: Glyphs

    # Lines.

    def row(self, *parts: Piece) -> Content:
        """A line, cut if it is too long."""
        return Content.assemble(*parts).truncate(self.width, ellipsis=True)

    def ends(self, left: Piece, right: Piece) -> Content:
        """Something at either end of a line; the right one gives way."""
        first = self.row(left)
        room = max(self.width - first.cell_length - 1, 0)
        last = Content.assemble(right).truncate(room, ellipsis=True)
        gap = self.width - first.cell_length - last.cell_length
        return Content.assemble(first, " " * gap, last)

    def named(self, *pairs: tuple[str, Piece], indent: str = " ") -> Content:
        """Names and their values, as wide apart as there is room for."""
        items = [Content.assemble((name, MUTED), " ", value) for name, value in pairs]
        wide = Content.styled(f" {self.glyphs.dot} ", MUTED).join(items)
        fits = wide.cell_length + len(indent) <= self.width
        return self.row(indent, wide if fits else Content(" ").join(items))

    def wrapped(self, text: str, rows: int) -> list[Content]:
        """Exactly so many lines below a caption, so that nothing moves when the text changes."""
        words = Content(flat(text))
        lines = words.wrap(max(self.width - 1, 1)) if words else []
        if len(lines) > rows:
            rest = " ".join(line.plain.strip() for line in lines[rows - 1 :])
            lines[rows - 1 :] = [Content(rest)]
        lines += [Content("")] * (rows - len(lines))
        return [self.row(" ", line) for line in lines]

    # What stands in them.

    def rate(self) -> Content:
        """Such as 110.7 tok/s."""
        return Content.assemble((draw.rate(self.view.rate, self.glyphs), "bold"), " tok/s")

    def speedup(self, *, tagged: bool = True) -> Content:
        """Such as ×2.1 est."""
        tag = (" measured" if self.view.measured else " est") if tagged else ""
        factor = self.factor(self.view.speedup)
        return Content.assemble(factor, (tag if self.view.speedup is not None else "", MUTED))

    def factor(self, x: float | None) -> Content:
        """A speed-up; a warning when it is none."""
        if x is None:
            return Content.styled(self.glyphs.times + self.glyphs.unknown, MUTED)
        colour = BAD if round(x, 1) < 1 else GOOD
        return Content.styled(draw.speedup(x, self.glyphs), f"bold {colour}")

    def tokens_per_step(self) -> str:
        """Such as 2.91 tok/step."""
        mean = self.view.tokens_per_step
        return f"{self.glyphs.unknown if mean is None else f'{mean:.2f}'} tok/step"

    def k(self) -> str:
        """Such as k=3."""
        return f"k={self.glyphs.unknown if self.view.k is None else self.view.k}"

    def context(self) -> tuple[str, Content]:
        """How many tokens of how many, and their share."""
        used, share = draw.tokens(self.view.context_used, self.glyphs), None
        if self.view.n_ctx:
            share = self.view.context_used / self.view.n_ctx
            used = f"{used}/{draw.tokens(self.view.n_ctx, self.glyphs)}"
        colour = BAD if share is not None and share >= _FULL else ""
        return used, Content.styled(draw.percent(share, self.glyphs), colour)

    @property
    def reads(self) -> bool:
        """Whether there is something to tell of how far the prompt is read."""
        return self.view.reading and self.view.prompt_tokens > 0

    def read_so_far(self) -> str:
        """Such as reading 812/4096."""
        read = draw.tokens(self.view.cached + self.view.prefilled, self.glyphs)
        return f"reading {read}/{draw.tokens(self.view.prompt_tokens, self.glyphs)}"

    # Pictures.

    def reading_bar(self, width: int) -> Content:
        read = self.view.cached + self.view.prefilled
        return self.bar(read / self.view.prompt_tokens, width, VERIFY)

    def bar(self, share: float | None, width: int, colour: str) -> Content:
        text = draw.bar(share, width, self.glyphs)
        full = text.rstrip(self.glyphs.empty)
        return Content.assemble((full, colour), (text[len(full) :], MUTED))

    def rates(self, width: int) -> Content:
        return Content.styled(draw.sparkline(self.view.rates, width, None, self.glyphs), GOOD)

    def lengths(self, width: int) -> Content:
        top = max(_K_TOP, *self.view.ks, 0)
        return Content.styled(draw.sparkline(self.view.ks, width, top, self.glyphs), DRAFT)
