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
    def any_free(self) -> bool:
        """Whether one more sequence can run."""
        return bool(self._free)

    def take(self, prompt: Sequence[int], running: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """A slot for a prompt, and how many tokens of it are in memory there.

        running: what the slots that are not free hold; a prefix of theirs is copied.
        """
        # The last token is always decoded anew: its logits are needed.
        wanted = list(prompt[:-1])
        found = {
            slot: common_prefix(held, wanted)
            for slot, held in (*self._free.items(), *running.items())
        }
        source = max(found, key=found.__getitem__)  # a free one, if it is as good
        length = found[source]
        kept = self._free.get(source)
        if kept is not None and (2 * length >= len(kept) or len(self._free) == 1):
            del self._free[source]
            return source, self._cut(source, length, len(kept))
        # Most of it is another text, which may be asked for again.
        slot = self._least_missed(source)
        del self._free[slot]
        return slot, self._copy(source, slot, length)

    def _least_missed(self, source: int) -> int:
        """A free slot other than `source`: an empty one, else the least recently used."""
        others = [slot for slot in self._free if slot != source]
        return next((slot for slot in others if not self._free[slot]), others[0])

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
