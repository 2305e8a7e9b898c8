"""The messages of a chat, one below the other, with notes between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widgets import Static

from edgespec.tui.plain_text import harmless
from edgespec.tui.widgets.message import AnswerMessage, ChatMessage


class Earlier(Static, can_focus=True):
    """Stands for messages that are not shown yet."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "wanted", "Show")]

    class Wanted(TextualMessage):
        """Show more of them."""

    def __init__(self, count: int) -> None:
        super().__init__(Content(f"↑ {count} earlier messages: enter shows more"))

    def action_wanted(self) -> None:
        self.post_message(self.Wanted())

    def on_click(self) -> None:
        self.action_wanted()


class Note(Static):
    """A line of edgespec's own, no message of anybody."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(Content(harmless(text)), classes=kind)


class Transcript(VerticalScroll, can_focus=False):
    """Follows the end unless the reader has scrolled away from it."""

    def on_mount(self) -> None:
        self.anchor()

    @property
    def messages(self) -> list[ChatMessage]:
        return list(self.query(ChatMessage))

    @property
    def answers(self) -> list[AnswerMessage]:
        return list(self.query(AnswerMessage))

    @property
    def focused_message(self) -> ChatMessage | None:
        return next((message for message in self.messages if message.has_focus_within), None)

    async def show(self, messages: Sequence[ChatMessage], earlier: int, top: str = "") -> None:
        """These instead of what is there; earlier: how many before them are left out."""
        with self.app.batch_update():
            await self.remove_children()
            first: list[Static] = [Earlier(earlier)] if earlier else []
            await self.mount_all([*first, *messages])
        if not messages and top:
            await self.note(top, "hint")
        self.anchor()

    async def show_earlier(self, messages: Sequence[ChatMessage], earlier: int) -> None:
        """More of those before the first; the reader stays where he is."""
        row = self.query_one(Earlier)
        height = self.max_scroll_y
        await self.mount_all(messages, before=row)
        # Order: the row stands before all messages.
        await row.remove()
        if earlier:
            await self.mount(Earlier(earlier), before=0)
        self.call_after_refresh(self._keep_place, height)

    def _keep_place(self, height: float) -> None:
        self.scroll_to(y=self.scroll_y + self.max_scroll_y - height, animate=False)

    async def add(self, message: ChatMessage) -> None:
        """A new one at the end, which is followed from now on."""
        await self.query(".hint").remove()
        await self.mount(message)
        self.anchor()

    async def cut_after(self, key: int | None) -> None:
        """Take away everything below the message with this key; all if there is none."""
        children = list(self.children)
        at = next(
            (i for i, c in enumerate(children) if isinstance(c, ChatMessage) and c.key == key), -1
        )
        with self.app.batch_update():
            for child in children[at + 1 :]:
                await child.remove()

    async def note(self, text: str, kind: str = "") -> None:
        """Something to tell; kind: "warning", "error" or "hint" (goes with the first message)."""
        await self.mount(Note(text, kind))

    async def show_tokens(self, wanted: bool) -> None:
        """All answers as tokens, or none."""
        for answer in self.answers:
            await answer.show_tokens(wanted)

    # Moving about.

    def focus_message(self, index: int) -> None:
        """The message at this place, counted from the end if negative."""
        messages = self.messages
        if messages:
            index = max(-len(messages), min(index, len(messages) - 1))
            messages[index].focus()

    def focus_key(self, key: int) -> None:
        """The message with this key."""
        for message in self.messages:
            if message.key == key:
                message.focus()

    def move_focus(self, by: int) -> None:
        """To the next message or the one before."""
        focused = self.focused_message
        if focused is None:
            self.focus_message(-1)
        else:
            self.focus_message(max(0, self.messages.index(focused) + by))
