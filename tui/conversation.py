"""The chat that is open: its messages, its settings, and the answer being made. No widgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgespec.tui import thinking
from edgespec.tui.attachments import Attachment, as_prompt
from edgespec.tui.bridge import Question
from edgespec.tui.chats.store import Chat, ChatStore, Message
from edgespec.tui.provenance import Provenance
from edgespec.tui.settings import ChatSettings
from edgespec.types import Completion, Piece

_KEPT_EVERY = 1.0  # seconds; what a crash may take of an answer


@dataclass(slots=True)
class Answer:
    """The one being made. key: of its message, None before the first text and for a plain answer
    that is only made to compare with `compared`."""

    question: int
    key: int | None = None
    compared: Message | None = None
    text: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    kept_at: float = 0.0


class Conversation:
    """One chat at a time. A message has a parent, so that asking or answering anew makes a
    sibling, and nothing is ever overwritten."""

    def __init__(
        self,
        store: ChatStore,
        settings: ChatSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.settings = settings
        self.chat: Chat | None = None
        self.messages: list[Message] = []
        self.answer: Answer | None = None
        self.forgotten = 0  # of the oldest messages, by the model
        self._clock = clock
        self._usual = settings
        self._parent: int | None = None  # for the next question, when an old one is edited
        self._editing = False

    # Which chat.

    @property
    def title(self) -> str:
        return self.chat.title if self.chat else ""

    def new(self) -> None:
        """An empty chat, with the settings the program was started with. It is kept from its
        first question on."""
        self._leave()
        self.chat, self.messages, self.settings = None, [], self._usual

    def open(self, key: int) -> bool:
        """Another chat; False if it is gone."""
        chat = self.store.chat(key)
        if chat is None:
            return False
        self._leave()
        self.chat = chat
        self.settings = ChatSettings.from_dict(chat.settings)
        self.messages = self.store.branch(key)
        return True

    def _leave(self) -> None:
        self.answer = None
        self.forgotten = 0
        self.give_up_editing()

    def change(self, settings: ChatSettings) -> None:
        """New settings, for this chat."""
        self.settings = settings
        if self.chat is not None:
            self.store.set_settings(self.chat.id, settings.to_dict())

    def rename(self, title: str) -> None:
        """Another title, if the chat has begun."""
        if self.chat is not None:
            self.store.rename(self.chat.id, title)
            self.chat = self.store.chat(self.chat.id)

    def refresh(self) -> None:
        """Take over what was changed in the store."""
        self._reload()

    # Questions.

    @property
    def last_question(self) -> Message | None:
        return next((m for m in reversed(self.messages) if m.role == "user"), None)

    @property
    def last_answer(self) -> Message | None:
        """The last one, if it answers the last question."""
        return self.messages[-1] if self.messages and self.messages[-1].role != "user" else None

    def edit(self, message: Message) -> None:
        """The next question takes the place of this one."""
        self._parent, self._editing = message.parent, True

    def give_up_editing(self) -> None:
        """The next question goes to the end after all."""
        self._parent, self._editing = None, False

    @property
    def editing(self) -> bool:
        return self._editing

    def say(self, text: str, attachments: Sequence[Attachment] = ()) -> Message:
        """A question of the user."""
        if self.chat is None:
            self.chat = self.store.create(self.settings.to_dict())
        end = self.messages[-1].id if self.messages else None
        parent = self._parent if self._editing else end
        message = self.store.add(self.chat.id, parent, "user", text, attachments)
        self.give_up_editing()
        self._reload()
        return message

    def ask(self, question: Message, *, compare: Message | None = None) -> Question:
        """Begin an answer to a question; compare: plainly, to compare it with that answer."""
        self.answer = Answer(question=question.id, compared=compare)
        upto = [m.id for m in self.messages].index(question.id) + 1
        seed = compare.stats.get("seed") if compare else None
        return Question(
            messages=[_for_the_model(m) for m in self.messages[:upto]],
            settings=self.settings,
            plain=compare is not None,
            seed=seed if isinstance(seed, int) else None,
            forgotten=self.forgotten,
        )

    def choose(self, key: int) -> None:
        """Go on with this variant of a message."""
        self.store.choose(key)
        self.forgotten = 0
        self._reload()

    def message(self, key: int | None) -> Message | None:
        """One of this chat's messages that are shown."""
        return next((m for m in self.messages if m.id == key), None)

    # The answer being made.

    def take(self, pieces: Sequence[Piece]) -> None:
        """More of it. It is kept from its first text on, and then every second."""
        answer = self.answer
        if answer is None or not pieces:
            return
        answer.text += "".join(piece.text for piece in pieces)
        for piece in pieces:
            answer.provenance.add(piece.source, len(piece.text))
        if answer.compared is not None or self.chat is None:
            return
        if answer.key is None:
            answer.key = self.store.add(self.chat.id, answer.question, "assistant", "").id
        elif self._clock() - answer.kept_at < _KEPT_EVERY:
            return
        answer.kept_at = self._clock()
        self.store.write(answer.key, answer.text, answer.provenance.encoded())

    def finish(self, completion: Completion | None, stats: Mapping[str, Any]) -> Answer | None:
        """The end of it; without a completion it failed."""
        answer, self.answer = self.answer, None
        if answer is not None and answer.key is not None:
            reason = completion.finish_reason if completion else "failed"
            self.store.write(
                answer.key, answer.text, answer.provenance.encoded(), dict(stats), reason
            )
        self._reload()
        return answer

    def _reload(self) -> None:
        if self.chat is not None:
            self.messages = self.store.branch(self.chat.id)
            self.chat = self.store.chat(self.chat.id) or self.chat


def _for_the_model(message: Message) -> dict[str, str]:
    if message.role == "user":
        return {"role": "user", "content": as_prompt(message.text, message.attachments)}
    # What it thought is not read again, as models with thoughts are trained.
    return {"role": "assistant", "content": thinking.split(message.text).answer}
