"""The engine for asyncio: requests wait for their turn, stream, and end when nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from edgespec import __version__
from edgespec.engine import Engine
from edgespec.generation import Generation
from edgespec.requests import Messages, Prompt
from edgespec.server.admission import Admission
from edgespec.server.card import Card
from edgespec.server.metrics import Metrics
from edgespec.server.settings import Settings
from edgespec.types import Chunk, Completion


class Backend:
    """What the endpoints work with. For one event loop; the engine has a thread of its own."""

    def __init__(self, engine: Engine, settings: Settings, card: Card) -> None:
        self.engine = engine
        self.settings = settings
        self.card = card
        self.answers: list[Answer] = []  # in the making
        self.admission = Admission(
            settings.parallel, settings.queue, short_lane=settings.short_lane
        )
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

        options: as of `Engine.submit`. client, short, replaceable: see Admission.
        Raises ApiError when too many wait, and what `Engine.submit` raises.
        """
        self.admission.check()
        answer = Answer(self, client, short, replaceable)
        asked: dict[str, Any] = {**options, "notify": answer.notify}
        if asked.get("max_tokens") is None:
            asked["max_tokens"] = self.settings.max_tokens
        answer.generation = await asyncio.to_thread(self.engine.prepare, prompt, **asked)
        return answer


class Answer:
    """A prepared request. Holds nothing until it is read: it may just be dropped."""

    generation: Generation

    def __init__(self, backend: Backend, client: str, short: bool, replaceable: bool) -> None:
        self._backend = backend
        self._client = client
        self._short = short
        self._replaceable = replaceable
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        self._tokens = 0

    def notify(self) -> None:
        """There is more to read; called on the engine's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._more.set)

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
        turn = self._backend.admission.turn(
            self._client, short=self._short, replaceable=self._replaceable
        )
        async with turn:
            self._backend.answers.append(self)
            try:
                self._backend.engine.start(self.generation)
                while True:
                    await self._more.wait()
                    self._more.clear()
                    for chunk in self.generation.ready():
                        self._tokens += sum(len(step.tokens) for step in chunk.steps)
                        if chunk.completion is not None:
                            self._backend.metrics.count(chunk.completion)
                        yield chunk
                        if chunk.finish_reason is not None:
                            return
            finally:
                self.generation.cancel()
                self._backend.answers.remove(self)

    async def completion(self) -> Completion:
        """The whole answer. Raises as `chunks`."""
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                if chunk.completion is not None:
                    return chunk.completion
        raise AssertionError("the last chunk carries the completion")
