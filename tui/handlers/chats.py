"""New, open, rename, export."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgespec.errors import EdgespecError
from edgespec.tui.chats.export import write_export
from edgespec.tui.dialogs.chats import ChatsDialog
from edgespec.tui.handlers import answers
from edgespec.tui.plain_text import one_line

if TYPE_CHECKING:
    from edgespec.tui.screen import ChatScreen


async def new_chat(screen: ChatScreen, argument: str) -> None:
    if not answers.is_busy(screen):
        screen.conversation.new()
        await _show_other(screen)


async def open_chat(screen: ChatScreen, argument: str) -> None:
    if answers.is_busy(screen):
        return
    chat = screen.conversation.chat
    dialog = ChatsDialog(screen.conversation.store, chat.id if chat else None)
    screen.app.push_screen(dialog, partial(_opened, screen))


async def _opened(screen: ChatScreen, key: int | None) -> None:
    conversation = screen.conversation
    here = conversation.chat
    if key is not None:
        if conversation.open(key):
            await _show_other(screen)
    elif here is not None:
        # It may have been renamed or deleted meanwhile.
        if conversation.store.chat(here.id) is None:
            conversation.new()
            await _show_other(screen)
        else:
            conversation.refresh()
            screen.show_numbers()


async def _show_other(screen: ChatScreen) -> None:
    screen.attach([])
    await screen.show_chat()
    screen.box.prompt.focus()


async def rename(screen: ChatScreen, argument: str) -> None:
    if not argument or screen.conversation.chat is None:
        screen.notify("/rename TITLE names a chat that has begun.", severity="warning")
        return
    screen.conversation.rename(one_line(argument, 200))
    screen.show_numbers()


async def export(screen: ChatScreen, argument: str) -> None:
    chat, form = screen.conversation.chat, argument or "md"
    if chat is None or form not in ("md", "json"):
        screen.notify("/export md or /export json, once a chat has begun.", severity="warning")
        return
    try:
        path = write_export(Path.cwd(), chat, screen.conversation.messages, form)
    except EdgespecError as error:
        screen.notify(str(error), severity="error", markup=False)
    else:
        screen.notify(f"Written: {path}", markup=False)
