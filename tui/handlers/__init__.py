"""What the commands of `commands.py` do, by their ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from edgespec.tui.handlers import answers, chats, messages, models, views
from edgespec.tui.widgets.message import ChatMessage

if TYPE_CHECKING:
    from edgespec.tui.screen import ChatScreen

Handler = Callable[["ChatScreen", str], Awaitable[None]]
"""Takes what follows the slash command."""


def _on_message(act: Callable[[ChatScreen, ChatMessage], Awaitable[None]]) -> Handler:
    async def run(screen: ChatScreen, argument: str) -> None:
        message = screen.transcript.focused_message
        if message is not None:
            await act(screen, message)

    return run


HANDLERS: dict[str, Handler] = {
    "answer.stop": answers.stop,
    "answer.retry": answers.retry,
    "answer.edit": answers.edit_last,
    "answer.copy": answers.copy_last,
    "answer.compare": answers.compare,
    "chat.new": chats.new_chat,
    "chat.open": chats.open_chat,
    "chat.rename": chats.rename,
    "chat.export": chats.export,
    "chat.settings": models.settings,
    "chat.system": models.system,
    "chat.set": models.set_one,
    "model.open": models.model,
    "view.stats": views.stats,
    "view.tokens": views.tokens,
    "view.theme": views.theme,
    "view.focus": views.focus,
    "app.help": views.help,
    "app.quit": views.quit,
    "message.copy": _on_message(messages.copy_message),
    "message.code": _on_message(messages.copy_code),
    "message.edit": _on_message(messages.edit_message),
    "message.retry": _on_message(messages.retry_message),
    "message.fold": _on_message(messages.fold),
    "message.older": _on_message(partial(messages.choose_variant, by=-1)),
    "message.newer": _on_message(partial(messages.choose_variant, by=1)),
    "message.next": _on_message(partial(messages.move, by=1)),
    "message.previous": _on_message(partial(messages.move, by=-1)),
    "message.first": _on_message(messages.first),
    "message.last": _on_message(messages.last),
}
