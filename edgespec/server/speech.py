"""An answer as it is told: a thought first, then what is said, in the parts that an API has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Literal

from edgespec.server.backend import Answer
from edgespec.text.thoughts import Said, Thoughts
from edgespec.types import Chunk

Kind = Literal["thought", "answer"]
Event = dict[str, Any]


async def spoken(answer: Answer, thoughts: Thoughts) -> AsyncGenerator[tuple[Said, Chunk], None]:
    """Every chunk, and what it says. Closing it ends the generation. Raises as `Answer.chunks`."""
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            said = thoughts.feed(chunk.text)
            if chunk.finish_reason is not None:
                rest = thoughts.flush()
                said = Said(said.thought + rest.thought, said.answer + rest.answer)
            yield said, chunk


class Telling(ABC):
    """Collects the parts of one answer; each change of them is an event of the API.

    parts: those that are complete.
    """

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self._kind: Kind | None = None  # of the part under way
        self._texts: list[str] = []

    def add(self, said: Said) -> Iterator[Event]:
        """More text."""
        if said.thought:
            yield from self._more("thought", said.thought)
        if said.answer:
            yield from self._more("answer", said.answer)

    def end(self, *, cut: bool) -> Iterator[Event]:
        """The end. cut: the answer was not finished.

        Clients expect something said, if only "", unless the answer was cut while still thinking.
        """
        if self._kind is None or (self._kind == "thought" and not cut):
            yield from self._turn("answer")
        yield from self._finish(cut)

    def _more(self, kind: Kind, text: str) -> Iterator[Event]:
        if self._kind != kind:
            yield from self._turn(kind)
        self._texts.append(text)
        yield from self._grow(kind, text)

    def _turn(self, kind: Kind) -> Iterator[Event]:
        yield from self._finish(False)
        self._kind, self._texts = kind, []
        yield from self._open(kind)

    def _finish(self, cut: bool) -> Iterator[Event]:
        if self._kind is not None:
            yield from self._close(self._kind, "".join(self._texts), cut)

    @abstractmethod
    def _open(self, kind: Kind) -> Iterator[Event]:
        """A part begins, as number `len(self.parts)`."""

    @abstractmethod
    def _grow(self, kind: Kind, text: str) -> Iterator[Event]:
        """It gets more text."""

    @abstractmethod
    def _close(self, kind: Kind, text: str, cut: bool) -> Iterator[Event]:
        """It is complete, and belongs into `self.parts`."""
