"""What all dialogs share: a box in the middle of the screen, and escape to leave it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

T = TypeVar("T")


class Box(Vertical):
    """The frame of a dialog. title, keys: for its upper and its lower edge."""

    DEFAULT_CSS = """
    Box {
        width: 100%;
        max-width: 100;
        height: auto;
        max-height: 100%;
        padding: 0 1;
        border: round $primary;
        border-title-color: $text-primary;
        border-title-style: bold;
        border-subtitle-color: $text-muted;
        background: $surface;
    }
    """

    def __init__(self, title: str, keys: str) -> None:
        super().__init__()
        self.border_title = title
        self.border_subtitle = keys


class Dialog(ModalScreen[T]):
    """Gives a T, or None when it was left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close", show=False)]

    DEFAULT_CSS = """
    Dialog {
        align: center middle;
    }
    """

    _answered = False

    def action_leave(self) -> None:
        """Close without an answer."""
        self.answer(None)

    def answer(self, result: T | None) -> None:
        """Close with this; only once, for keys may still come while the screen goes away."""
        if not self._answered:
            self._answered = True
            self.dismiss(result)
