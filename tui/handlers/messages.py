"""What can be done with one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgespec.tui.handlers import answers
from edgespec.tui.widgets.message import AnswerMessage, ChatMessage

if TYPE_CHECKING:
    from edgespec.tui.chats.store import Message
    from edgespec.tui.screen import ChatScreen


async def copy_message(screen: ChatScreen, message: ChatMessage) -> None:
    answers.copy(screen, message.text)


async def copy_code(screen: ChatScreen, message: ChatMessage) -> None:
    if code := message.next_code():
        answers.copy(screen, code)
    else:
        screen.notify("There is no code block in this message.", severity="warning")


async def edit_message(screen: ChatScreen, message: ChatMessage) -> None:
    question = _question_of(screen, message)
    if question is not None:
        answers.edit(screen, question)


async def retry_message(screen: ChatScreen, message: ChatMessage) -> None:
    question = _question_of(screen, message)
    if question is not None:
        await answers.answer_again(screen, question)


def _question_of(screen: ChatScreen, message: ChatMessage) -> Message | None:
    kept = screen.conversation.message(message.key)
    if kept is None or kept.role == "user":
        return kept
    return screen.conversation.message(kept.parent)


async def fold(screen: ChatScreen, message: ChatMessage) -> None:
    if isinstance(message, AnswerMessage):
        message.toggle_thought()


async def choose_variant(screen: ChatScreen, message: ChatMessage, by: int) -> None:
    kept = screen.conversation.message(message.key)
    if kept is None or answers.is_busy(screen):
        return
    at = kept.siblings.index(kept.id) + by
    if 0 <= at < len(kept.siblings):
        key = kept.siblings[at]
        screen.conversation.choose(key)
        await screen.show_chat()
        screen.transcript.focus_key(key)


async def move(screen: ChatScreen, message: ChatMessage, by: int) -> None:
    screen.transcript.move_focus(by)


async def first(screen: ChatScreen, message: ChatMessage) -> None:
    screen.transcript.focus_message(0)


async def last(screen: ChatScreen, message: ChatMessage) -> None:
    screen.transcript.focus_message(-1)
