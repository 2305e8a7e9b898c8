"""How the answers of a chat are made: a form over ChatSettings, and the size of the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import HorizontalGroup, VerticalGroup, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from edgespec.errors import OptionError
from edgespec.tui.dialogs.frame import Box, Dialog
from edgespec.tui.plain_text import one_line
from edgespec.tui.settings import ChatSettings
from edgespec.types import MAX_DRAFT_TOKENS

_AUTO = "auto"
_LEAST_CONTEXT, _MOST_CONTEXT = 256, 2**31 - 1
_LONGEST_NUMBER = 24  # characters

# What is typed on one line, with what should be known of it.
_NUMBERS = (
    ("temperature", "0: always the likeliest token"),
    ("top_k", "of so many tokens at most; 0: of all"),
    ("top_p", "of the likeliest, up to this sum; 1: of all"),
    ("min_p", "of this share of the likeliest's chance"),
    ("repeat_penalty", "above 1: fewer repetitions"),
    ("seed", "empty: drawn anew for every answer"),
    ("max_tokens", "of an answer; 0: no limit"),
    ("k", f"draft tokens per step: auto, or 0 to {MAX_DRAFT_TOKENS}"),
)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """n_ctx: the new size of the context, for which the model is loaded again; None to keep it."""

    settings: ChatSettings
    n_ctx: int | None


class Field(VerticalGroup):
    """A value with its name and what should be known of it; what is wrong with it stands below."""

    DEFAULT_CSS = """
    Field {
        & > HorizontalGroup > .name {
            width: 16;
        }
        & > HorizontalGroup > Input, & > HorizontalGroup > Select {
            width: 16;
            background: $panel;
        }
        & > HorizontalGroup > TextArea {
            width: 1fr;
            height: 4;
            padding: 0;
            background: $panel;
        }
        & > HorizontalGroup > .about {
            width: 1fr;
            padding: 0 0 0 2;
            color: $text-muted;
        }
        & > .wrong {
            display: none;
            padding: 0 0 0 16;
            color: $text-error;
        }
        &.-wrong > .wrong {
            display: block;
        }
    }
    """

    _wrong = getters.query_one(".wrong", Static)

    def __init__(self, name: str, label: str, about: str, value: Widget) -> None:
        super().__init__(id=name)
        self._label = label
        self._about = about
        self.value = value

    def compose(self) -> ComposeResult:
        with HorizontalGroup():
            yield Label(self._label, classes="name", markup=False)
            yield self.value
            if self._about:
                yield Label(self._about, classes="about", markup=False)
        yield Static(classes="wrong", markup=False)

    @property
    def text(self) -> str:
        """What stands in it."""
        if isinstance(self.value, Input):
            return self.value.value
        if isinstance(self.value, TextArea):
            return self.value.text
        return str(self.value.value) if isinstance(self.value, Select) else ""

    @property
    def complaint(self) -> str:
        """What is said to be wrong with it, "" if nothing is."""
        return str(self._wrong.content) if self.has_class("-wrong") else ""

    def complain(self, text: str) -> None:
        """Say what is wrong with it; "" if nothing is."""
        self._wrong.update(text)
        self.set_class(bool(text), "-wrong")


class SettingsDialog(Dialog[SettingsChange]):
    """drafters: those that are loaded. n_ctx: of the loaded model, 0 if there is none. trained:
    how many tokens it was trained for, None if that is not known."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", show=False, priority=True),
    ]

    DEFAULT_CSS = """
    SettingsDialog {
        & > Box {
            height: 100%;
            max-height: 24;
        }
        & VerticalScroll {
            scrollbar-size-vertical: 1;
        }
        & .save {
            padding: 0 0 0 16;
        }
    }
    """

    def __init__(
        self,
        settings: ChatSettings,
        drafters: tuple[str, ...],
        n_ctx: int,
        trained: int | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._drafters = drafters
        self._n_ctx = n_ctx
        self._trained = trained
        self._fields: list[Field] = []
        self._size_field: Field | None = None
        self._before: dict[str | None, str] = {}  # what stood in the fields, by their names

    def compose(self) -> ComposeResult:
        self._fields = _fields(self._settings, self._drafters)
        self._size_field = _field_of_size(self._n_ctx, self._trained) if self._n_ctx else None
        self._before = {field.id: field.text for field in self._fields}
        self._before["drafter"] = self._settings.drafter  # a Select has no value before it is shown
        with Box("Settings of this chat", "^s save · tab next · esc close"):
            with VerticalScroll(can_focus=False):
                yield from self._fields
                if self._size_field is not None:
                    yield self._size_field
            with HorizontalGroup(classes="save"):
                yield Button("Save", variant="primary", compact=True)

    @on(Input.Submitted)
    def _next(self) -> None:
        self.focus_next()

    @on(Button.Pressed)
    def _pressed(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        """Close with what was typed, if all of it makes sense."""
        wrong: list[Field] = []
        settings = self._read_fields(wrong)
        n_ctx = self._read_context(wrong)
        if wrong:
            wrong[0].value.focus(scroll_visible=False)
            # With what is said below it, which is not laid out yet.
            self.call_after_refresh(wrong[0].scroll_visible, animate=False)
        else:
            self.answer(SettingsChange(settings, n_ctx))

    def _read_fields(self, wrong: list[Field]) -> ChatSettings:
        settings = self._settings
        for field in self._fields:
            field.complain("")
            name = field.id or ""
            if field.text == self._before[name]:
                continue
            try:
                settings = settings.with_text(name, field.text)
            except OptionError as error:
                field.complain(str(error))
                wrong.append(field)
        return settings

    def _read_context(self, wrong: list[Field]) -> int | None:
        if self._size_field is None:
            return None
        self._size_field.complain("")
        try:
            n_ctx = _context_size(self._size_field.text.strip(), self._n_ctx)
        except OptionError as error:
            self._size_field.complain(str(error))
            wrong.append(self._size_field)
            return None
        return None if n_ctx == self._n_ctx else n_ctx


def _fields(settings: ChatSettings, drafters: tuple[str, ...]) -> list[Field]:
    prompt = TextArea(settings.system, compact=True, highlight_cursor_line=False)
    names = [_AUTO, *drafters]
    shown = [(Content(name), name) for name in names]
    if settings.drafter not in names:  # a chat that was begun with another model
        name = one_line(settings.drafter, 40)
        shown.append((Content(f"{name}, not loaded"), settings.drafter))
    drafter = Select(shown, value=settings.drafter, allow_blank=False, compact=True)
    return [
        Field("system", "system prompt", "", prompt),
        *(Field(name, name, about, _line(settings, name)) for name, about in _NUMBERS),
        Field("drafter", "drafter", "of those loaded; auto: whoever pays", drafter),
    ]


def _line(settings: ChatSettings, name: str) -> Input:
    value = getattr(settings, name)
    return Input("" if value is None else str(value), compact=True, max_length=_LONGEST_NUMBER)


def _field_of_size(n_ctx: int, trained: int | None) -> Field:
    known = f", trained for {trained}" if trained else ""
    value = Input(str(n_ctx), compact=True, max_length=_LONGEST_NUMBER)
    return Field("context", "context", f"tokens{known}; another size loads the model again", value)


def _context_size(text: str, now: int) -> int:
    """Raises OptionError for what cannot be one."""
    try:
        size = int(text)
    except ValueError:
        raise OptionError(f"context must be a whole number of tokens, not {text!r}.") from None
    if size != now and not _LEAST_CONTEXT <= size <= _MOST_CONTEXT:
        raise OptionError(
            f"context must be between {_LEAST_CONTEXT} and {_MOST_CONTEXT} tokens, not {size}."
        )
    return size
