"""A list below a line of input: what is typed says what is listed, up and down move in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.css.styles import RulesMap
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from edgespec.tui.colours import MUTED
from edgespec.tui.plain_text import one_line

_LONGEST = 500  # characters of a text from elsewhere
_GAP = 2


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the list. key: what it stands for. current: what is in use now."""

    key: str
    title: str
    detail: str = ""
    current: bool = False
    faint: bool = False


def matching(items: Sequence[Item], words: str) -> list[Item]:
    """Those that hold every one of the words, whatever the case of their letters."""
    wanted = words.casefold().split()
    return [
        item
        for item in items
        if all(word in f"{item.title} {item.detail}".casefold() for word in wanted)
    ]


class Row(Visual):
    """An item on one line: its title, and its detail in a column beside it, both cut to fit."""

    def __init__(self, item: Item) -> None:
        self.item = item
        mark = "• " if item.current else "  "
        style = MUTED if item.faint else ""
        self._title = Content.styled(mark + one_line(item.title, _LONGEST), style)
        self._detail = Content.styled(one_line(item.detail, _LONGEST), MUTED)
        self._longest = self._title.cell_length, self._detail.cell_length

    @classmethod
    def of_all(cls, items: Sequence[Item]) -> list[Row]:
        """Rows whose details stand below each other."""
        rows = [cls(item) for item in items]
        titles = max((row._title.cell_length for row in rows), default=0)
        details = max((row._detail.cell_length for row in rows), default=0)
        for row in rows:
            row._longest = titles, details
        return rows

    def line(self, width: int) -> Content:
        """As it is shown on so many columns. Titles get half of them, or what details leave."""
        titles, details = self._longest
        room = min(titles, max(width // 2, width - details - _GAP))
        title = self._title.truncate(room, ellipsis=True, pad=True)
        detail = self._detail.truncate(max(0, width - room - _GAP), ellipsis=True)
        return Content.assemble(title, " " * _GAP, detail).truncate(width)

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self.line(width).render_strips(width, 1, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self._title.cell_length + _GAP + self._detail.cell_length

    def get_height(self, rules: RulesMap, width: int) -> int:
        return 1


class _Filter(Input):
    """Backspace in an empty line asks to go back."""

    def action_delete_left(self) -> None:
        if self.value:
            super().action_delete_left()
        else:
            self.post_message(Picker.Back())


class _Items(OptionList, can_focus=False):
    """The keys go to the line of input."""


class Picker(Vertical):
    """Whoever has one answers `Typed` with `show`, at once.

    No message carries the item it is about: enter may be pressed before what was typed before it
    is answered, and then means what is listed afterwards. `key` is what counts.
    """

    class Typed(Message):
        """The text of the line of input is another."""

    class Chosen(Message):
        """Enter was pressed, or an item clicked."""

    class Moved(Message):
        """Another item is highlighted."""

    class Back(Message):
        """The user wants to go back to where this came from."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "go('cursor_up')", "Up", show=False),
        Binding("down", "go('cursor_down')", "Down", show=False),
        Binding("pageup", "go('page_up')", "Page up", show=False),
        Binding("pagedown", "go('page_down')", "Page down", show=False),
        Binding("ctrl+home", "go('first')", "First", show=False),
        Binding("ctrl+end", "go('last')", "Last", show=False),
    ]

    DEFAULT_CSS = """
    Picker {
        height: 1fr;
        & > Input {
            background: $panel;
            margin: 0 0 1 0;
        }
        & > OptionList {
            height: 1fr;
            border: none;
            padding: 0;
            background: $surface;
            scrollbar-size-vertical: 1;
            text-wrap: nowrap;
            & > .option-list--option-highlighted {
                color: $block-cursor-foreground;
                background: $block-cursor-background;
                text-style: $block-cursor-text-style;
            }
        }
        & > Static {
            height: 1fr;
            color: $text-muted;
        }
    }
    """

    input = getters.query_one(Input)
    _list = getters.query_one(OptionList)
    _empty = getters.query_one(Static)

    def __init__(self, placeholder: str) -> None:
        super().__init__()
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        yield _Filter(placeholder=self._placeholder, compact=True)
        yield _Items(markup=False)
        yield Static(markup=False)

    @property
    def text(self) -> str:
        """What is typed."""
        return self.input.value

    @property
    def key(self) -> str | None:
        """Of the highlighted item, None if there is none."""
        option = self._list.highlighted_option
        return option.id if option else None

    @property
    def rows(self) -> list[Row]:
        """What is listed."""
        return [row for option in self._list.options if isinstance(row := option.prompt, Row)]

    def show(self, items: Sequence[Item], empty: str, highlight: str | None = None) -> None:
        """List these, with `highlight` or the first highlighted; without any, say `empty`."""
        self._list.set_options(Option(row, id=row.item.key) for row in Row.of_all(items))
        self._list.display = bool(items)
        self._empty.display = not items
        self._empty.update(one_line(empty, _LONGEST))
        keys = [item.key for item in items]
        if keys:
            self._list.highlighted = keys.index(highlight) if highlight in keys else 0
        else:
            self.post_message(self.Moved())

    def clear_input(self, placeholder: str) -> None:
        """Begin anew, for another list."""
        with self.input.prevent(Input.Changed):
            self.input.value = ""
        self.input.placeholder = placeholder

    def action_go(self, where: str) -> None:
        """Move the highlight."""
        if self._list.option_count:
            getattr(self._list, f"action_{where}")()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed())

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Chosen())

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen())

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.post_message(self.Moved())
