"""The lines of the panel beside the chat."""

from __future__ import annotations

from textual.content import Content

from edgespec.tui.colours import MUTED
from edgespec.tui.speed import draw
from edgespec.tui.speed.figures import BAD, DRAFT, GOOD, VERIFY, Figures, Piece, flat
from edgespec.tui.speed.tally import POSITIONS

_REASON_ROWS = 3

# Captions stand apart from what is above them; what is in one line here does not.
_GROUPS = (
    ("speed",),
    ("acceptance", "positions"),
    ("k", "more of k"),
    ("time",),
    ("last", "context", "session"),
)
_FIRST_TO_GO = ("more of k", "last", "session", "context", "k", "time", "positions", "acceptance")


class PanelText(Figures):
    """All figures, as many of them as there is height for."""

    __slots__ = ()

    def lines(self, height: int) -> list[Content]:
        """At most `height`: what matters least goes first, the speed never."""
        blocks = self._blocks()
        lines = _stacked(blocks)
        for name in _FIRST_TO_GO:
            if len(lines) <= height:
                break
            del blocks[name]
            lines = _stacked(blocks)
        return lines[:height]

    def _blocks(self) -> dict[str, list[Content]]:
        k = self._k()
        kept = len(k) - _REASON_ROWS + 1
        return {
            "speed": self._speed(),
            "acceptance": self._acceptance(),
            "positions": self._positions(),
            "k": k[:kept],
            "more of k": k[kept:],
            "time": self._time(),
            "last": [self.ends(("LAST STEP", "bold"), self._last())],
            "context": [self._context()],
            "session": self._session(),
        }

    def _caption(self, text: str, right: Content | str = "") -> Content:
        return self.ends((text, "bold"), right)

    def _speed(self) -> list[Content]:
        view, glyphs = self.view, self.glyphs
        if self.reads:
            cached = f" {glyphs.dot} {draw.tokens(view.cached, glyphs)} cached"
            first = self.row(" ", self.read_so_far(), (cached if view.cached else "", MUTED))
            picture = self.reading_bar(self.width - 1)
        else:
            first = self.row(" ", self.rate(), "   ", self.speedup())
            picture = self.rates(self.width - 1)
        plain = 1 / view.plain_s if view.plain_s else None
        return [
            self._caption("SPEED", Content.styled(flat(self.header.state), MUTED)),
            first,
            self.row(" ", picture),
            self.named(
                ("mean", draw.rate(view.mean_rate, glyphs, short=True)),
                ("peak", draw.rate(view.peak_rate, glyphs, short=True)),
                ("plain", draw.rate(plain, glyphs, short=True)),
            ),
            self.named(
                ("ttft", draw.seconds(view.ttft_s, glyphs)),
                ("prefill", f"{draw.rate(view.prefill_rate, glyphs, short=True)} tok/s"),
            ),
        ]

    def _acceptance(self) -> list[Content]:
        view = self.view
        counts = f"{view.accepted} of {view.drafted} drafted" if view.drafted else "nothing drafted"
        return [
            self._caption(
                "ACCEPTANCE",
                Content.styled(draw.percent(view.acceptance, self.glyphs, digits=1), GOOD),
            ),
            self.row(" ", counts if view.steps else self.glyphs.unknown),
            self.row(" ", self.tokens_per_step(), (" (1 = no gain)", MUTED)),
        ]

    def _positions(self) -> list[Content]:
        rows = []
        deepest = max((i for i, (_, n) in enumerate(self.view.positions) if n), default=-1)
        for i, (accepted, drafted) in enumerate(self.view.positions[: deepest + 1], 1):
            share = accepted / drafted if drafted else None
            name = f"{i}+" if i == POSITIONS else str(i)
            label = f" {draw.percent(share, self.glyphs):>4}"
            bar = self.bar(share, self.width - 4 - len(label), GOOD)
            rows.append(self.row((f" {name:<2} ", MUTED), bar, label))
        return rows

    def _k(self) -> list[Content]:
        mode = "auto" if self.header.k_mode == "auto" else f"fixed at {flat(self.header.k_mode)}"
        if self.header.off:
            return [
                self._caption("DRAFT LENGTH", Content.styled("off", MUTED)),
                *self.wrapped(self.header.drafters, 2 + _REASON_ROWS),
            ]
        drafter = self.view.drafter or ("plain" if self.view.steps else self.glyphs.unknown)
        return [
            self._caption("DRAFT LENGTH", Content.assemble(self.k(), (f" {mode}", MUTED))),
            self.row(" ", self.lengths(self.width - 1)),
            self.ends(f" {flat(drafter)}", (flat(self.header.drafters), MUTED)),
            *self.wrapped(self.view.reason, _REASON_ROWS),
        ]

    def _time(self) -> list[Content]:
        view, glyphs = self.view, self.glyphs
        parts = (view.draft_s, view.verify_s, view.rest_s)
        known = [part for part in parts if part is not None]
        draft, verify, rest = (draw.milliseconds(part, glyphs) for part in parts)
        total = draw.milliseconds(sum(known) if known else None, glyphs)
        return [
            self._caption("STEP TIME", f"{total} ms"),
            self.row(" ", self._split(known, self.width - 1)),
            self.named(("draft", draft), ("verify", verify), ("rest", rest)),
            self.row((" break-even ", MUTED), self._break_even()),
        ]

    def _split(self, seconds: list[float], width: int) -> Content:
        left = draw.split_bar(seconds, width, self.glyphs)
        parts: list[Piece] = []
        colours = (DRAFT, VERIFY, MUTED)
        for cells, colour in zip(draw.split_widths(seconds, width), colours, strict=False):
            parts.append((left[:cells], colour))
            left = left[cells:]
        return Content.assemble(*parts, (left, MUTED))

    def _break_even(self) -> str:
        at = self.view.break_even
        if at is not None and at > 1:
            return "out of reach"
        return self.glyphs.unknown if at is None else f"at {draw.percent(at)} accepted"

    def _last(self) -> str:
        view = self.view
        if not view.steps:
            return self.glyphs.unknown
        return f"{view.last_accepted} of {view.last_drafted} kept" if view.last_drafted else "plain"

    def _context(self) -> Content:
        used, share = self.context()
        left = Content.assemble(("CONTEXT", "bold"), " ", used)
        cached = f", {draw.tokens(self.view.cached, self.glyphs)} cached"
        room = self.width - left.cell_length - share.cell_length - 1
        fits = self.view.cached and len(cached) <= room
        return self.ends(Content.assemble(left, (cached if fits else "", MUTED)), share)

    def _session(self) -> list[Content]:
        view, glyphs = self.view, self.glyphs
        turns = f"{view.turns} turn{'' if view.turns == 1 else 's'}"
        tokens = f"{draw.tokens(view.session_tokens, glyphs)} tok"
        lost = round(view.saved_s, 2) < 0
        known = view.session_speedup is not None
        saved = draw.seconds(abs(view.saved_s) if known else None, glyphs)
        return [
            self._caption("SESSION", f"{turns} {glyphs.dot} {tokens}"),
            self.named(
                ("mean", self.factor(view.session_speedup)),
                ("lost" if lost else "saved", (saved, BAD if lost else "")),
            ),
        ]


def _stacked(blocks: dict[str, list[Content]]) -> list[Content]:
    """One below the other, with an empty line between groups."""
    lines: list[Content] = []
    for group in _GROUPS:
        rows = [row for name in group for row in blocks.get(name, ())]
        lines += [Content(""), *rows] if lines and rows else rows
    return lines
