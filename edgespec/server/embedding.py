"""Vectors of texts, made between the passes of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from edgespec.engine import Engine
from edgespec.errors import EdgespecError
from edgespec.requests import Prompt
from edgespec.server.admission import Admission, Kind
from edgespec.server.errors import api_error, not_supported


class Embedder(Protocol):
    """What makes a vector of `size` numbers, on the engine's thread."""

    size: int

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """Raises ContextFullError for a text that is too long."""


class Vectors(NamedTuple):
    """One of each text, and how many tokens the texts have together."""

    vectors: list[list[float]]
    tokens: int


class Embeddings:
    """Has one text read at a time, between two passes of the engine; clients take turns.

    embedder: or why there is none.
    """

    def __init__(self, engine: Engine, embedder: Embedder | str, queue: int) -> None:
        self._engine = engine
        self._embedder = embedder
        self._admission = Admission(1, queue, short_lane=False)

    @property
    def possible(self) -> bool:
        """Whether the model makes any."""
        return not isinstance(self._embedder, str)

    @property
    def embedder(self) -> Embedder:
        """Raises ApiError where there is none."""
        if isinstance(self._embedder, str):
            raise not_supported(f"There are no embeddings here: {self._embedder}")
        return self._embedder

    async def of(self, prompts: Sequence[Prompt], client: str) -> Vectors:
        """The vectors of some texts. Raises ApiError."""
        embedder = self.embedder
        kind = Kind(client)
        promise = self._admission.promise(kind)

        async def made(text: list[int]) -> list[float]:
            async with self._admission.turn(kind, promise):
                work = self._engine.between(partial(embedder.embed, text))
                return await asyncio.wrap_future(work)

        try:
            texts = [await asyncio.to_thread(self._engine.tokenize, one) for one in prompts]
            vectors = [await made(text) for text in texts]
        except EdgespecError as error:
            raise api_error(error, param="input") from error
        return Vectors(vectors, sum(map(len, texts)))

    def close(self) -> None:
        """No vectors for those who wait, or come yet."""
        self._admission.close()
