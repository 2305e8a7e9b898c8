"""Fill in the middle, for all endpoints that offer it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from edgespec.server.backend import Answer, Backend
from edgespec.server.errors import not_supported
from edgespec.text.fim import Fim, Gap, Room


class Filling:
    """One gap to be filled by the model of the backend.

    param: the field by which the request asks for it. Raises ApiError when the model cannot.
    """

    def __init__(self, backend: Backend, gap: Gap, *, param: str) -> None:
        fim = backend.engine.fim
        if not isinstance(fim, Fim):
            raise not_supported(fim, param=param)
        self._backend = backend
        self._fim = fim
        self._gap = gap
        self._before = gap.prefix + gap.prompt
        self._tokens: list[int] = []

    @property
    def ends(self) -> frozenset[str]:
        """Stop strings that stand for the end of an answer."""
        return frozenset(self._fim.stop_strings)

    async def read(self, room: Room | None = None) -> None:
        """Make the prompt; room: what does not fit is left out. Raises as `Engine.fill_in`."""
        self._tokens = await asyncio.to_thread(self._backend.engine.fill_in, self._gap, room)

    async def prepare(
        self, options: Mapping[str, Any], *, client: str, replaceable: bool = False
    ) -> Answer:
        """An answer to what was read. Arguments and errors as of `Backend.prepare`."""
        asked = {
            **options,
            "stop": [*options.get("stop", ()), *self._fim.stop_strings],
            "stop_tokens": self._fim.stop_tokens,
        }
        rest = self._backend.suggestions.rest(self._before, self._gap.suffix)
        if rest and "prediction" not in asked:
            asked["prediction"] = rest
        return await self._backend.prepare(
            self._tokens, asked, client=client, short=True, replaceable=replaceable
        )

    def suggested(self, text: str) -> None:
        """Remember an answer."""
        self._backend.suggestions.add(self._before, self._gap.suffix, text)
