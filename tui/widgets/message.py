"""One message of a chat: a question, or an answer that may still be growing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widget import Widget
from textual.widgets import Static

from edgespec.tui import thinking
from edgespec.tui.colours import MUTED
from edgespec.tui.commands import bindings
from edgespec.tui.plain_text import harmless
from edgespec.tui.provenance import Provenance
from edgespec.tui.widgets.markdown_text import MarkdownText
from edgespec.tui.widgets.token_view import TokenView


class ChatMessage(Vertical, can_focus=True):
    """What questions and answers have in common. key: the message's id, None for one that is not
    kept. variants: (which one this is, of how many)."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("message")]

    @dataclass
    class Run(TextualMessage):
        """A command for this message."""

        message: ChatMessage
        command: str

    def __init__(self, key: int | None, text: str, title: str, variants: tuple[int, int]) -> None:
        super().__init__()
        self.key = key
        self.text = text
        self.title = title
        self.state = ""
        self._variants = variants
        self._code_at = 0

    def action_run(self, command: str) -> None:
        self.post_message(self.Run(self, command))

    def caption(self) -> Content:
        """The line above the text."""
        at, of = self._variants
        variant = f"  ‹ {at}/{of} ›" if of > 1 else ""
        return Content.assemble((self.title, "bold"), (variant, MUTED), (self.state, MUTED))

    def next_code(self) -> str:
        """Its code blocks one after another; "" if there are none."""
        blocks = code_blocks(self.text)
        if not blocks:
            return ""
        self._code_at += 1
        return blocks[(self._code_at - 1) % len(blocks)]


class UserMessage(ChatMessage):
    """A question; files: what was attached, one line each."""

    def __init__(
        self,
        key: int | None,
        text: str,
        *,
        files: Sequence[str] = (),
        variants: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__(key, text, "You", variants)
        self._files = files

    def compose(self) -> ComposeResult:
        yield Static(self.caption(), classes="caption")
        yield Static(Content(harmless(self.text)), classes="text")
        for file in self._files:
            yield Static(Content(f"@ {harmless(file)}"), classes="file")


class AnswerMessage(ChatMessage):
    """An answer, as Markdown or as tokens."""

    def __init__(
        self,
        key: int | None,
        text: str = "",
        *,
        title: str = "Assistant",
        provenance: Provenance | None = None,
        line: str = "",
        state: str = "",
        variants: tuple[int, int] = (1, 1),
        as_tokens: bool = False,
    ) -> None:
        super().__init__(key, text, title, variants)
        self.provenance = provenance or Provenance()
        self.growing = False
        self.state = f"  {state}" if state else ""
        self._line = line
        self._as_tokens = as_tokens
        self._unfolded = False

    def compose(self) -> ComposeResult:
        yield Static(self.caption(), classes="caption")
        yield Static(classes="thought")
        yield self._body()
        yield Static(Content(self._line), classes="line")

    def on_mount(self) -> None:
        self._show_thought()
        self.query_one(".line").display = bool(self._line)

    @property
    def parts(self) -> thinking.Parts:
        return thinking.split(self.text)

    # While it grows.

    async def grow(self, pieces: Sequence[tuple[str, str]], ghost: str = "") -> None:
        """More (source, text) of it; ghost: see TokenView."""
        self.growing = True
        self.text += "".join(text for _, text in pieces)
        for source, text in pieces:
            self.provenance.add(source, len(text))
        if self._as_tokens:
            self.query_one(TokenView).append(pieces, ghost)
        else:
            await self._show_more()

    async def _show_more(self) -> None:
        if thinking.may_become_thought(self.text):
            return
        self._show_thought()
        await self.query_one(MarkdownText).grow(self.parts.answer)

    def show_state(self, state: str) -> None:
        """What it is doing, behind its title."""
        self.state = f"  {state}" if state else ""
        self.query_one(".caption", Static).update(self.caption(), layout=False)

    async def finish(self, line: str, state: str = "") -> None:
        """It does not grow any more; line: how it came about."""
        self.growing = False
        self._line = line
        if not self._as_tokens:
            await self.query_one(MarkdownText).grow(self.parts.answer)
        self.show_state(state)
        self._show_thought()
        shown = self.query_one(".line", Static)
        shown.display = bool(line)
        shown.update(Content(line))

    # Ways to show it.

    async def show_tokens(self, wanted: bool) -> None:
        """As tokens, or as Markdown again."""
        if wanted == self._as_tokens:
            return
        self._as_tokens = wanted
        await self._replace_body()

    async def _replace_body(self) -> None:
        with self.app.batch_update():
            await self.query_one(".body").remove()
            await self.mount(self._body(), after=self.query_one(".thought"))
        self._show_thought()

    def _body(self) -> Widget:
        body: Widget
        if self._as_tokens:
            spans = self.provenance.spans(self.text)
            body = TokenView(spans, underline=self.app.no_color)
        else:
            body = MarkdownText(self.parts.answer)
        body.add_class("body")
        return body

    def toggle_thought(self) -> None:
        """Show or hide what the model thought."""
        self._unfolded = not self._unfolded
        self._show_thought()

    def _show_thought(self) -> None:
        parts = self.parts
        shown = self.query_one(".thought", Static)
        shown.display = bool(parts.thought or parts.open) and not self._as_tokens
        if not shown.display:
            return
        words = len(parts.thought.split())
        what = "thinking" if parts.open else "thought"
        if self._unfolded:
            shown.update(Content.assemble((f"▾ {what}\n", "bold"), harmless(parts.thought)))
        else:
            shown.update(Content(f"▸ {what}: {words} words, space unfolds"))


def code_blocks(text: str) -> list[str]:
    """What stands in the fences of a Markdown text, one that is still open included."""
    return list(_code_blocks(text))


def _code_blocks(text: str) -> Iterator[str]:
    fence = ""
    block: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip()
        mark = stripped[: len(stripped) - len(stripped.lstrip("`~"))]
        if not fence and len(mark) >= 3 and len(set(mark)) == 1:
            fence, block = mark, []
        elif fence and mark.startswith(fence) and mark == stripped:
            yield "\n".join(block)
            fence = ""
        elif fence:
            block.append(line)
    if fence and block:
        yield "\n".join(block)
