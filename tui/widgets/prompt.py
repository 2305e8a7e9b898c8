"""Where questions are typed: several lines, with history and completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widgets import Static, TextArea

from edgespec.tui.colours import MUTED

_LARGE_PASTE = 10_000  # characters; more is attached like a file
_MOST_HINTS = 6


@dataclass(frozen=True, slots=True)
class Hint:
    """What a word being typed could become: `text` in place of the last `typed` characters."""

    text: str
    about: str
    typed: int


class Prompt(TextArea):
    """Enter sends; ctrl+j is the new line that every terminal knows."""

    @dataclass
    class Submitted(TextualMessage):
        """Something was typed and sent."""

        text: str

    @dataclass
    class Pasted(TextualMessage):
        """A paste too large to be shown."""

        text: str

    class Completed(TextualMessage):
        """Tab was pressed with nothing to complete: the user wants to go elsewhere."""

    def __init__(self) -> None:
        super().__init__(
            soft_wrap=True,
            tab_behavior="focus",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask something…   / commands   @ file   ^J newline",
        )
        self.hints: Sequence[Hint] = ()
        self._history: list[str] = []
        self._at: int | None = None  # in the history
        self._typed = ""  # what was there before the history was looked through

    def remember(self, questions: Sequence[str]) -> None:
        """What was asked before, the oldest first."""
        self._history = list(questions)
        self._at = None

    def put(self, text: str) -> None:
        """Show this instead of what is there, ready to be changed."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        handlers: dict[str, Callable[[], None]] = {
            "enter": self._send,
            "ctrl+j": self._new_line,
            "shift+enter": self._new_line,
            "alt+enter": self._new_line,
            "tab": self._complete,
            "up": lambda: self._look_back(-1),
            "down": lambda: self._look_back(1),
        }
        handler = handlers.get(event.key)
        if handler is not None and self._is_for(event.key):
            event.stop()
            event.prevent_default()  # TextArea's own handler would be called next
            handler()

    def action_cursor_page_up(self) -> None:
        raise SkipAction()  # it scrolls the messages

    def action_cursor_page_down(self) -> None:
        raise SkipAction()

    def _is_for(self, key: str) -> bool:
        """Whether a key means something here; else it does what it does in any text."""
        if key == "tab":
            return bool(self.hints)
        if key == "up":
            return self.cursor_at_first_line and bool(self._history)
        if key == "down":
            return self.cursor_at_last_line and self._at is not None
        return True

    def _send(self) -> None:
        text = self.text
        if text.strip():
            self._history.append(text)
            self._at = None
            self.post_message(self.Submitted(text))

    def _new_line(self) -> None:
        self.insert("\n")

    def _complete(self) -> None:
        hint = self.hints[0]
        row, column = self.cursor_location
        self.replace(hint.text, (row, max(0, column - hint.typed)), (row, column))

    def _look_back(self, by: int) -> None:
        """Through what was asked before and begins as what is typed."""
        if self._at is None:
            self._typed = self.text
        at = len(self._history) if self._at is None else self._at
        while True:
            at += by
            if at < 0:
                return
            if at >= len(self._history):
                self._at = None
                self.put(self._typed)
                return
            if self._history[at].startswith(self._typed):
                self._at = at
                self.put(self._history[at])
                return

    async def _on_paste(self, event: events.Paste) -> None:
        if len(event.text) > _LARGE_PASTE:
            event.stop()
            event.prevent_default()
            self.post_message(self.Pasted(event.text))


class PromptBox(Vertical):
    """The prompt, with what is attached and what can be completed above it."""

    def __init__(self, suggest: Callable[[str], Sequence[Hint]]) -> None:
        super().__init__()
        self._suggest = suggest
        self.prompt = Prompt()

    def compose(self) -> ComposeResult:
        yield Static(classes="hints")
        yield Static(classes="attached")
        yield self.prompt

    def on_mount(self) -> None:
        self.show_attached("")
        self.query_one(".hints").display = False

    def on_text_area_changed(self) -> None:
        row, column = self.prompt.cursor_location
        line = self.prompt.document.get_line(row)[:column]
        first = row == 0 and self.prompt.document.line_count == 1
        hints = self._suggest(line if first else " " + line)
        self.prompt.hints = hints
        shown = self.query_one(".hints", Static)
        shown.display = bool(hints)
        rows = [
            Content.assemble((hint.text.rstrip(), "bold"), (f"  {hint.about}", MUTED))
            for hint in hints[:_MOST_HINTS]
        ]
        shown.update(Content("\n").join(rows))

    def show_attached(self, what: str) -> None:
        """What goes along with the question, and how it is being asked."""
        shown = self.query_one(".attached", Static)
        shown.display = bool(what)
        shown.update(Content(what))
