"""All chats: find one and open it, give it another title, delete it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import HorizontalGroup
from textual.widgets import Input, Label, Static

from edgespec.tui.chats.store import Chat, ChatStore, as_title
from edgespec.tui.dialogs.frame import Box, Dialog
from edgespec.tui.dialogs.picker import Item, Picker
from edgespec.tui.plain_text import one_line

# Not those of the locale: the rest of the screen is English, too.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNTITLED = "untitled"


def when(moment: float, now: datetime) -> str:
    """A time of day for today and yesterday, else a date; "" for what is no moment."""
    try:
        then = datetime.fromtimestamp(moment, now.tzinfo)
    except (OverflowError, OSError, ValueError):
        return ""
    for day, days in (("today", 0), ("yesterday", 1)):
        if then.date() == now.date() - timedelta(days):
            return f"{day} {then:%H:%M}"
    date = f"{then.day} {_MONTHS[then.month - 1]}"
    return date if then.year == now.year else f"{date} {then.year}"


class ChatsDialog(Dialog[int]):
    """Gives the id of the chat to open. current: the one that is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "rename", "Rename", show=False),
        # Before the line of input, for which it deletes a character.
        Binding("ctrl+d", "delete", "Delete", show=False, priority=True),
    ]

    DEFAULT_CSS = """
    ChatsDialog {
        & > Box {
            height: 100%;
            max-height: 30;
        }
        & .note {
            height: 1;
            text-wrap: nowrap;
            text-overflow: ellipsis;
            color: $text-warning;
        }
        & .rename {
            display: none;
            & > Label {
                color: $text-muted;
                margin: 0 1 0 0;
            }
            & > Input {
                width: 1fr;
                background: $panel;
            }
        }
        &.-renaming .rename {
            display: block;
        }
        &.-renaming .note {
            display: none;
        }
    }
    """

    _picker = getters.query_one(Picker)
    _note = getters.query_one(".note", Static)
    _title = getters.query_one(".rename > Input", Input)

    def __init__(
        self, store: ChatStore, current: int | None, now: Callable[[], datetime] = datetime.now
    ) -> None:
        super().__init__()
        self._store = store
        self._current = current
        self._now = now
        self._chats: dict[str, Chat] = {}
        self._renamed: Chat | None = None
        self._doomed: Chat | None = None  # ctrl+d was pressed once

    def compose(self) -> ComposeResult:
        with Box("Chats", "enter open · ^t rename · ^d delete · esc close"):
            yield Picker("type to find a chat")
            yield Static(classes="note", markup=False)
            with HorizontalGroup(classes="rename"):
                yield Label("new title")
                yield Input(compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self._list(str(self._current))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a title is typed, ctrl+d and ctrl+t are the line's own."""
        return not (action in ("rename", "delete") and self._renamed is not None)

    def action_rename(self) -> None:
        """Ask for another title of the highlighted chat."""
        self._renamed = self._highlighted()
        if self._renamed is not None:
            self._spare()
            self.add_class("-renaming")
            self._title.value = self._renamed.title
            self._title.cursor_position = len(self._title.value)
            self._title.focus()

    def action_delete(self) -> None:
        """Delete the highlighted chat, when it is pressed for the second time."""
        chat = self._highlighted()
        if chat is None:
            return
        if self._doomed is None or self._doomed.id != chat.id:
            self._doomed = chat
            self._note.update(f"press ctrl+d again to delete '{_shown(chat)}'")
            return
        keys = list(self._chats)
        at = keys.index(str(chat.id))
        beside = [*keys[at + 1 : at + 2], *keys[max(0, at - 1) : at]]
        self._store.delete(chat.id)
        self._spare()
        self._list(beside[0] if beside else None)

    def action_leave(self) -> None:
        if self._renamed is not None:
            self._finish_renaming()
        else:
            self.answer(None)

    @on(Picker.Typed)
    def _search(self) -> None:
        self._spare()
        self._list(None)

    @on(Picker.Moved)
    def _spare_another(self) -> None:
        chat = self._highlighted()
        if self._doomed is not None and (chat is None or chat.id != self._doomed.id):
            self._spare()

    @on(Picker.Chosen)
    def _open(self) -> None:
        chat = self._highlighted()
        if chat is not None:
            self.answer(chat.id)

    @on(Input.Submitted, ".rename > Input")
    def _rename(self, event: Input.Submitted) -> None:
        chat, title = self._renamed, as_title(event.value)
        if chat is None:
            return
        if title:
            self._store.rename(chat.id, title)
        self._finish_renaming()
        self._list(str(chat.id))

    def _finish_renaming(self) -> None:
        self._renamed = None
        self.remove_class("-renaming")
        self._picker.input.focus()

    def _list(self, highlight: str | None) -> None:
        """What matches the line of input."""
        text, now = self._picker.text, self._now()
        self._chats = {str(chat.id): chat for chat in self._store.chats(text)}
        items = [
            Item(key, chat.title or _UNTITLED, when(chat.updated, now), chat.id == self._current)
            for key, chat in self._chats.items()
        ]
        empty = "No chat holds these words." if text.strip() else "There are no chats yet."
        self._picker.show(items, empty, highlight)

    def _highlighted(self) -> Chat | None:
        return self._chats.get(self._picker.key or "")

    def _spare(self) -> None:
        """Forget that ctrl+d was pressed."""
        self._doomed = None
        self._note.update("")


def _shown(chat: Chat) -> str:
    return one_line(chat.title, 60) or _UNTITLED
