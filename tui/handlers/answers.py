"""Stop, answer again, edit, copy, compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgespec.tui.widgets.message import code_blocks

if TYPE_CHECKING:
    from edgespec.tui.chats.store import Message
    from edgespec.tui.screen import ChatScreen


async def stop(screen: ChatScreen, argument: str) -> None:
    if screen.answering.busy or screen.is_loading:
        screen.answering.stop()
    elif screen.conversation.editing:
        screen.conversation.give_up_editing()
        screen.box.prompt.clear()
        screen.attach([])
    else:
        screen.clear_selection()
        screen.box.prompt.focus()


async def retry(screen: ChatScreen, argument: str) -> None:
    question = screen.conversation.last_question
    if question is not None:
        await answer_again(screen, question)


async def compare(screen: ChatScreen, argument: str) -> None:
    answer, question = screen.conversation.last_answer, screen.conversation.last_question
    if answer is None or question is None or not answer.text:
        screen.notify("There is no answer to compare yet.", severity="warning")
    elif not is_busy(screen):
        await screen.answering.begin(question, compare=answer)


async def edit_last(screen: ChatScreen, argument: str) -> None:
    question = screen.conversation.last_question
    if question is not None:
        edit(screen, question)


async def copy_last(screen: ChatScreen, argument: str) -> None:
    answers = [message for message in screen.transcript.answers if message.key is not None]
    if not answers:
        screen.notify("There is no answer to copy yet.", severity="warning")
        return
    text = answers[-1].parts.answer
    if argument:
        blocks = code_blocks(text)
        if not (argument.isdigit() and 1 <= int(argument) <= len(blocks)):
            screen.notify(f"The last answer has {len(blocks)} code blocks.", severity="warning")
            return
        text = blocks[int(argument) - 1]
    copy(screen, text)


# What messages can be told as well.


async def answer_again(screen: ChatScreen, question: Message) -> None:
    """Another answer to this question."""
    if is_busy(screen):
        return
    await screen.transcript.cut_after(question.id)
    await screen.answering.begin(question)


def edit(screen: ChatScreen, question: Message) -> None:
    """Put a question into the prompt, to be asked differently."""
    if is_busy(screen):
        return
    screen.conversation.edit(question)
    screen.attach(question.attachments)
    screen.box.prompt.put(question.text)
    screen.box.prompt.focus()


def copy(screen: ChatScreen, text: str) -> None:
    """Into the clipboard, and tell how."""
    screen.notify(screen.edgespec.clipboard_of_user.copy(text), markup=False)


def is_busy(screen: ChatScreen) -> bool:
    """Whether an answer is being made, which the user is then told."""
    if screen.answering.busy:
        screen.notify("An answer is being made: esc stops it.", severity="warning")
    return screen.answering.busy
