"""An app around one dialog, and what can be seen of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from edgespec.tui.dialogs.picker import Picker
from tests.tui.waiting import wait_until

SMALL, USUAL = (60, 16), (120, 36)


class Host(App[None]):
    """Shows one dialog and keeps what it answers."""

    def __init__(self, dialog: ModalScreen[Any]) -> None:
        super().__init__()
        self.dialog = dialog
        self.answers: list[Any] = []

    def on_mount(self) -> None:
        self.push_screen(self.dialog, self.answers.append)


@asynccontextmanager
async def opened(
    dialog: ModalScreen[Any], size: tuple[int, int] = USUAL
) -> AsyncIterator[tuple[Pilot[None], list[Any]]]:
    """The dialog on the screen, and the list of its answers."""
    host = Host(dialog)
    async with host.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: host.screen is dialog and bool(host.focused), "the dialog")
        yield pilot, host.answers


async def answer(pilot: Pilot[None], answers: list[Any]) -> Any:
    await wait_until(pilot, lambda: bool(answers), "an answer")
    await wait_until(pilot, lambda: len(pilot.app.screen_stack) == 1, "the end of the dialog")
    assert len(answers) == 1
    return answers[0]


def listed(dialog: ModalScreen[Any]) -> list[str]:
    return [row.item.title for row in dialog.query_one(Picker).rows]


def details(dialog: ModalScreen[Any]) -> list[str]:
    return [row.item.detail for row in dialog.query_one(Picker).rows]


def said(dialog: ModalScreen[Any], selector: str) -> str:
    """The text of a line, "" if it is hidden."""
    line = dialog.query_one(selector, Static)
    return str(line.content) if line.display else ""


def lines(dialog: ModalScreen[Any]) -> list[str]:
    """What an OptionList really shows, line by line."""
    shown = dialog.query_one(OptionList)
    return [shown.render_line(y).text for y in range(shown.size.height)]
