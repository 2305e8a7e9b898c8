"""Settings of a chat, and the model that is loaded."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from edgespec.errors import EdgespecError
from edgespec.tui import shelf
from edgespec.tui.bridge import Wish
from edgespec.tui.dialogs.models import ModelChoice, ModelDialog
from edgespec.tui.dialogs.settings import SettingsChange, SettingsDialog
from edgespec.tui.handlers import answers

if TYPE_CHECKING:
    from edgespec.tui.screen import ChatScreen


async def settings(screen: ChatScreen, argument: str) -> None:
    info = screen.info
    dialog = SettingsDialog(
        screen.conversation.settings,
        info.drafters if info else (),
        info.n_ctx if info else 0,
    )
    screen.app.push_screen(dialog, partial(_changed, screen))


def _changed(screen: ChatScreen, change: SettingsChange | None) -> None:
    if change is None:
        return
    screen.conversation.change(change.settings)
    if change.n_ctx is not None:
        screen.load(screen.bridge.wish_with_context(change.n_ctx))
    screen.show_numbers()


async def system(screen: ChatScreen, argument: str) -> None:
    await set_one(screen, f"system {argument}")


async def set_one(screen: ChatScreen, argument: str) -> None:
    name, _, value = argument.partition(" ")
    known = screen.conversation.settings.to_dict()
    if name not in known:
        screen.notify(f"/set one of {', '.join(known)}.", severity="warning")
        return
    try:
        screen.conversation.change(screen.conversation.settings.with_text(name, value))
    except EdgespecError as error:
        screen.notify(str(error), severity="error", markup=False)
    else:
        screen.notify(f"{name}: {value.strip() or 'none'}", markup=False)
        screen.show_numbers()


async def model(screen: ChatScreen, argument: str) -> None:
    if answers.is_busy(screen):
        return
    if argument:
        screen.load(Wish(argument))
        return
    gpu = await asyncio.to_thread(screen.edgespec.has_gpu)
    dialog = ModelDialog(
        shelf.entries,
        partial(shelf.drafts, gpu=gpu),
        screen.info.target if screen.info else "",
    )
    screen.app.push_screen(dialog, partial(_chosen, screen))


def _chosen(screen: ChatScreen, choice: ModelChoice | None) -> None:
    if choice is not None:
        screen.load(Wish(choice.name, choice.draft))
