"""The engine for asyncio: requests wait for their turn, stream, and end when nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from edgespec import __version__
from edgespec.engine import Engine
from edgespec.generation import Generation
from edgespec.requests import Messages, Prompt
from edgespec.server.admission import Admission, Kind
from edgespec.server.card import Card
from edgespec.server.embedding import Embedder, Embeddings
from edgespec.server.errors import unavailable
from edgespec.server.metrics import Metrics
from edgespec.server.settings import Settings
from edgespec.server.suggestions import Suggestions
from edgespec.text.thoughts import OPEN
from edgespec.types import Chunk, Completion

_TAIL = 32  # tokens of a prompt that hold the beginning of a thought, if it has one


class Backend:
    """What the endpoints work with. For one event loop; the engine has a thread of its own.

    embedder: or why there is none.
    """

    def __init__(
        self, engine: Engine, settings: Settings, card: Card, embedder: Embedder | str
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.card = card
        self.answers: list[Answer] = []  # in the making
        self.admission = Admission(
            settings.parallel, settings.queue, short_lane=settings.short_lane
        )
        self.embeddings = Embeddings(engine, embedder, settings.queue)
        self.suggestions = Suggestions()
        self.metrics = Metrics(self.admission)

    @property
    def fingerprint(self) -> str:
        """What answers depend on besides the request."""
        return f"edgespec-{__version__}-{self.engine.info.target}"

    async def tokenize(
        self, prompt: Prompt | None, messages: Messages | None, template: Mapping[str, Any]
    ) -> list[int]:
        """The tokens a request would be given. Raises as `Engine.tokenize`."""
        return await asyncio.to_thread(self.engine.tokenize, prompt, messages, **template)

    async def prepare(
        self,
        prompt: Prompt | None,
        options: Mapping[str, Any],
        *,
        client: str,
        short: bool = False,
        replaceable: bool = False,
    ) -> Answer:
        """Check and tokenize a request, which may take a while. Nothing is generated yet.

        options: as of `Engine.submit`. client, short, replaceable: see Kind.
        Raises ApiError when too many wait, and what `Engine.submit` raises.
        """
        kind = Kind(client, short, replaceable)
        promise = self.admission.promise(kind)
        answer = Answer(self, kind, promise)
        asked: dict[str, Any] = {**options, "notify": answer.notify}
        if asked.get("max_tokens") is None:
            asked["max_tokens"] = self.settings.max_tokens
        try:
            await asyncio.to_thread(answer.prepare, prompt, asked)
        except BaseException:
            self.admission.forget(promise)
            raise
        return answer

    def stop(self, grace: float) -> None:
        """Who waits is refused; answers in the making get so many seconds to end."""
        self.admission.close()
        self.embeddings.close()
        asyncio.get_running_loop().call_later(grace, self._end_answers)

    def _end_answers(self) -> None:
        for answer in list(self.answers):
            answer.give_up()


class Answer:
    """A request at work. Until it is read it holds only a promise, which ends with the task that
    has prepared it: it may just be dropped.

    opens_thought: its prompt ends where a thought has begun. Only for a prepared one.
    """

    generation: Generation
    opens_thought: bool

    def __init__(self, backend: Backend, kind: Kind, promise: asyncio.Task[Any]) -> None:
        self._backend = backend
        self._kind = kind
        self._promise = promise
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self._end_turn: Callable[[], None] = lambda: None
        self._over = False  # the engine is done with it
        self._tokens = 0

    def prepare(self, prompt: Prompt | None, options: Mapping[str, Any]) -> None:
        """On any thread. Raises as `Engine.prepare`."""
        engine = self._backend.engine
        self.generation = engine.prepare(prompt, **options)
        tail = engine.detokenize(self.generation.request.prompt[-_TAIL:], special=True)
        self.opens_thought = tail.rstrip().endswith(OPEN)

    def notify(self) -> None:
        """There is more to read; called on the engine's thread. Raises RuntimeError when the loop
        is closed, which ends the generation."""
        self._loop.call_soon_threadsafe(self._take)

    def give_up(self) -> None:
        """End it for whoever reads it."""
        self._arrived.put_nowait(unavailable("The server is shutting down.", retry_after=5))

    def state(self) -> dict[str, Any]:
        """For /slots."""
        return {
            "is_processing": True,
            "n_ctx": self._backend.engine.info.n_ctx,
            "n_prompt_tokens": len(self.generation.request.prompt),
            "n_decoded": self._tokens,
        }

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Wait for one's turn, then the chunks as they come; read it once. Closing it ends the
        generation. Raises ApiError, and what went wrong in the engine."""
        async with self._backend.admission.turn(self._kind, self._promise) as self._end_turn:
            self._backend.answers.append(self)
            try:
                self._backend.engine.start(self.generation)
                while True:
                    item = await self._arrived.get()
                    if isinstance(item, Exception):
                        raise item
                    yield item
                    if item.finish_reason is not None:
                        return
            finally:
                if not self._over:
                    self.generation.cancel()
                self._leave()

    async def completion(self) -> Completion:
        """The whole answer. Raises as `chunks`."""
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                if chunk.completion is not None:
                    return chunk.completion
        raise AssertionError("the last chunk carries the completion")

    def _take(self) -> None:
        """Take over what has come, also when nobody reads it any more."""
        try:
            while chunks := self.generation.ready():
                for chunk in chunks:
                    self._tokens += sum(len(step.tokens) for step in chunk.steps)
                    self._arrived.put_nowait(chunk)
                    if chunk.completion is not None:
                        self._backend.metrics.count(chunk.completion)
                        self._finish()
        except Exception as error:  # noqa: BLE001  raised where it is read
            self._arrived.put_nowait(error)
            self._finish()

    def _finish(self) -> None:
        """The engine is done. Others have their turn now, however slowly this one is read."""
        self._over = True
        self._end_turn()
        self._leave()

    def _leave(self) -> None:
        if self in self._backend.answers:
            self._backend.answers.remove(self)
