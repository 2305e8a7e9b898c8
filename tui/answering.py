"""An answer on its way: from the events of the bridge into the chat, the numbers and the message
that shows it. Asking, asking again and comparing differ in the question, and in nothing here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgespec.tui.bridge import Bridge, Failed, Started
from edgespec.tui.chats.store import Message
from edgespec.tui.conversation import Conversation
from edgespec.tui.showing import ENDS
from edgespec.tui.speed.draw import Glyphs
from edgespec.tui.speed.stats import AnswerStats, StatsModel
from edgespec.tui.widgets.message import AnswerMessage
from edgespec.tui.widgets.transcript import Transcript
from edgespec.types import Chunk, Completion, Piece, Step


class Place(Protocol):
    """Where answers are shown."""

    @property
    def transcript(self) -> Transcript: ...

    @property
    def as_tokens(self) -> bool: ...

    @property
    def glyphs(self) -> Glyphs: ...

    def give_back(self, question: Message) -> None:
        """A question that could not be asked, to be changed and sent again."""


@dataclass(slots=True)
class _Batch:
    """What came since the last paint."""

    pieces: list[Piece]
    steps: list[Step]
    completion: Completion | None = None


class Answering:
    """One answer at a time."""

    def __init__(
        self,
        place: Place,
        conversation: Conversation,
        bridge: Bridge,
        clock: Callable[[], float],
    ) -> None:
        self.stats = StatsModel(0)  # of what goes on
        self._usual = self.stats  # without comparisons
        self._n_ctx = 0
        self.message: AnswerMessage | None = None
        self._place = place
        self._conversation = conversation
        self._bridge = bridge
        self._clock = clock
        self._asked_at = 0.0
        self._stopping = False
        self._question: Message | None = None
        self._tokens: dict[int, tuple[int, ...]] = {}  # of the answers of this run, by key

    def forget_speed(self, n_ctx: int) -> None:
        """Another model is loaded, with this context."""
        self._n_ctx = n_ctx
        self.stats = self._usual = StatsModel(n_ctx)

    @property
    def busy(self) -> bool:
        return self.message is not None

    @property
    def state(self) -> str:
        """In a word: "" when nothing is going on."""
        if self.message is None:
            return ""
        if self._stopping:
            return "stopping"
        return "generating" if self.message.growing else "reading"

    async def begin(self, question: Message, compare: Message | None = None) -> None:
        """Ask the model; compare: plainly, to compare with that answer."""
        asked = self._conversation.ask(question, compare=compare)
        self._question = None if compare else question
        title = "Plain, for comparison" if compare else "Assistant"
        others = [m for m in self._conversation.messages if m.parent == question.id]
        variants = 1 + (len(others[0].siblings) if others else 0)
        self.message = AnswerMessage(
            None,
            title=title,
            variants=(1, 1) if compare else (variants, variants),
            as_tokens=self._place.as_tokens,
        )
        self.stats = StatsModel(self._n_ctx) if compare else self._usual
        self._stopping = False
        self._asked_at = self._clock()
        await self._place.transcript.add(self.message)
        self._bridge.ask(asked)

    def stop(self) -> None:
        """Soon; what there is of it stays."""
        self._stopping = True
        self._bridge.stop()
        self.show_state()

    def show_state(self) -> None:
        """Once a second."""
        if self.message is not None:
            self.message.show_state(f"{self.state} {self._clock() - self._asked_at:.0f} s")

    async def take(self, events: Sequence[Started | Chunk | Failed]) -> None:
        """What has happened since the last paint, painted once."""
        batch = _Batch([], [])
        for event in events:
            if isinstance(event, Started):
                await self._started(event)
            elif isinstance(event, Chunk):
                batch.pieces += event.pieces
                batch.steps += event.steps
                batch.completion = event.completion
            else:
                await self._grow(batch)
                batch = _Batch([], [])
                await self._failed(event.why)
        await self._grow(batch)

    async def _started(self, event: Started) -> None:
        self.stats.begin(event.prompt_tokens)
        self.stats.expect_plain(event.plain_token_s)
        before, self._conversation.forgotten = self._conversation.forgotten, event.forgotten
        if event.forgotten > before:
            await self._place.transcript.note(
                f"The context is full: the model no longer sees the {event.forgotten} oldest "
                "messages. A larger one: ctrl+g. A new chat: ctrl+n.",
                "warning",
            )

    async def _grow(self, batch: _Batch) -> None:
        message = self.message
        if message is None:
            return
        for step in batch.steps:
            self.stats.add(step)
        self._conversation.take(batch.pieces)
        if batch.pieces:
            pieces = [(piece.source, piece.text) for piece in batch.pieces]
            await message.grow(pieces, self._ghost(batch.steps[-1:]))
            answer = self._conversation.answer
            message.key = answer.key if answer else None
        if batch.completion is not None:
            await self._finish(message, batch.completion)

    def _ghost(self, last: Sequence[Step]) -> str:
        """What the last draft had beyond what was kept, for those who look at tokens."""
        engine = self._bridge.engine
        rejected = last[0].rejected if last else ()
        if not rejected or engine is None or not self._place.as_tokens:
            return ""
        return engine.detokenize(rejected)

    async def _finish(self, message: AnswerMessage, completion: Completion) -> None:
        self.message = None
        self.stats.end(completion)
        stats = self.stats.answer(completion)
        compared = self._conversation.answer and self._conversation.answer.compared
        answer = self._conversation.finish(completion, stats.to_dict())
        if not completion.text and not message.text:
            await message.remove()
            await self._place.transcript.note(_nothing_said(completion))
            return
        if compared and answer:
            await self._tell_difference(message, compared, completion)
            return
        message.key = answer.key if answer else None
        if answer and answer.key is not None:
            self._tokens[answer.key] = completion.tokens
        await message.finish(stats.line(self._place.glyphs), ENDS.get(completion.finish_reason, ""))

    async def _tell_difference(
        self, message: AnswerMessage, drafted: Message, plain: Completion
    ) -> None:
        before = AnswerStats.from_dict(drafted.stats)
        speed = plain.stats.tokens_per_second
        parts = []
        self.stats = self._usual
        if before.rate and speed:
            self.stats.compared(before.rate / speed)
            parts.append(
                f"{self._place.glyphs.times}{before.rate / speed:.2f} measured: "
                f"{before.rate:.1f} tok/s with drafts, "
                f"{speed:.1f} plain"
            )
        parts.append(self._difference(drafted, plain))
        await message.finish(
            f" {self._place.glyphs.dot} ".join(parts), ENDS.get(plain.finish_reason, "")
        )

    def _difference(self, drafted: Message, plain: Completion) -> str:
        tokens = self._tokens.get(drafted.id)
        first: Sequence[int] | str = tokens if tokens is not None else drafted.text
        second: Sequence[int] | str = plain.tokens if tokens is not None else plain.text
        what = "tokens" if tokens is not None else "characters"
        claim = AnswerStats.from_dict(drafted.stats).claim
        length = min(len(first), len(second))
        if first[:length] != second[:length]:
            at = next(i for i in range(length) if first[i] != second[i])
            why = " (passes are not bit-identical here: --exact)" if claim != "identical" else ""
            return f"the same up to {what[:-1]} {at}, then different{why}"
        if length == max(len(first), len(second)):
            return f"the same {length} {what}"
        return f"the same for the {length} {what} that both have"

    async def _failed(self, why: str) -> None:
        message, self.message = self.message, None
        self.stats.end(None)
        self._conversation.finish(None, {})
        if message is not None and message.text:
            await message.finish("", ENDS["failed"])
        elif message is not None:
            await message.remove()
        await self._place.transcript.note(why, "error")
        if message is not None and not message.text and self._question is not None:
            self._place.give_back(self._question)


def _nothing_said(completion: Completion) -> str:
    if completion.finish_reason == "cancelled":
        return "Stopped before the first word."
    return "The model had nothing to say."
