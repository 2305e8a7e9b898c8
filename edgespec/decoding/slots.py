"""Whose tokens the model's memory holds: slots, prefixes that are found again, and room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgespec.decoding.sequence import common_prefix
from edgespec.errors import CannotRewindError
from edgespec.protocols import TokenModel


class Slots:
    """The sequences of a model's memory. A slot nobody runs in keeps its tokens for a prompt that
    begins alike, until its place is needed: the least recently used goes first."""

    def __init__(self, model: TokenModel) -> None:
        self._model = model
        # What each free slot holds; the least recently used first.
        self._free: dict[int, list[int]] = {slot: [] for slot in range(model.max_sequences)}

    @property
    def held(self) -> dict[int, list[int]]:
        """What the free slots hold, the least recently used first."""
        return dict(self._free)

    def fill(self, held: Mapping[int, list[int]]) -> None:
        """Memory was given these tokens, in slots that are free."""
        self._free.update(held)

    @property
    def any_free(self) -> bool:
        """Whether one more sequence can run."""
        return bool(self._free)

    def take(self, prompt: Sequence[int], running: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """A slot for a prompt, and how many tokens of it are in memory there.

        running: what the slots that are not free hold; a prefix of theirs is copied.
        """
        # The last token is always decoded anew: its logits are needed.
        wanted = list(prompt[:-1])
        held = {**self._free, **running}
        found = {slot: common_prefix(tokens, wanted) for slot, tokens in held.items()}
        # Of several as good a free one, and of those the one that holds the least besides.
        source = max(held, key=lambda slot: (found[slot], slot in self._free, -len(held[slot])))
        length = found[source]
        # If most of it is another text, that may be asked for again.
        in_place = source in self._free and 2 * length >= len(held[source])
        slot = source if in_place else self._least_missed()
        kept = self._free.pop(slot)
        if slot == source:
            return slot, self._cut(slot, length, len(kept))
        return slot, self._copy(source, slot, length)

    def _least_missed(self) -> int:
        """An empty free slot, else the least recently used."""
        return next((slot for slot, held in self._free.items() if not held), next(iter(self._free)))

    def _cut(self, slot: int, length: int, held: int) -> int:
        try:
            if length < held:
                self._model.rewind(slot, length)
        except CannotRewindError:
            self._model.drop(slot)
            return 0
        return length

    def _copy(self, source: int, slot: int, length: int) -> int:
        self._model.drop(slot)
        try:
            self._model.copy_prefix(source, slot, length)
        except CannotRewindError:
            return 0
        return length

    def give_back(self, slot: int, tokens: list[int]) -> None:
        """Nobody runs in the slot any more; its memory holds `tokens`."""
        self._free[slot] = tokens

    def evict(self) -> bool:
        """Drop what the least recently used free slot holds; False when all are empty."""
        for slot, held in self._free.items():
            if held:
                self._model.drop(slot)
                self._free[slot] = []
                return True
        return False

    def forget(self) -> None:
        """Empty all free slots."""
        for slot in self._free:
            self._model.drop(slot)
            self._free[slot] = []
