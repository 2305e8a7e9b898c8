"""The prediction drafter: what the caller expects the answer to be, as far as it is followed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgespec.protocols import More
from edgespec.types import Draft, SamplingParams

_RUN = 3
"""Tokens in a row that must agree before the prediction is followed again."""
_TRUSTED = 8
"""At the first token nothing has agreed yet, but the caller says so: as good as such a match."""


@dataclass(frozen=True, slots=True)
class _Guide:
    """A prediction, where in it the answer is (None: elsewhere), and for how long they agree."""

    tokens: Sequence[int]
    places: Mapping[tuple[int, ...], list[int]]  # a run -> where it ends, in order
    at: int | None = 0
    agreed: int = _TRUSTED
    last: int = 0  # where it was left
    tail: tuple[int, ...] = ()

    def then(self, token: int) -> _Guide:
        """After one more token of the answer."""
        tail = (*self.tail, token)[-_RUN:]
        if self.at is not None and self.at < len(self.tokens) and self.tokens[self.at] == token:
            return replace(self, at=self.at + 1, agreed=self.agreed + 1, tail=tail)
        last = self.last if self.at is None else self.at
        return replace(self, at=self._found(tail, last), agreed=_RUN, last=last, tail=tail)

    def _found(self, tail: tuple[int, ...], last: int) -> int | None:
        """Where the run leads on, next to where the prediction was left: an edit inserts,
        replaces or leaves out a little."""
        ends = self.places.get(tail)
        if not ends:
            return None
        after = bisect_left(ends, last)
        near = ends[max(after - 1, 0) : after + 1]  # in a monotonous text there are thousands
        return min(near, key=lambda end: abs(end - last))


class PredictionDrafter:
    """Drafts what a request predicts its answer to be (OpenAI's `prediction`).

    It is free to be wrong: where the answer leaves the prediction, drafting stops until the last
    tokens of the answer occur in it again. `match_length` is for how many tokens they agree.
    """

    name = "prediction"
    copies = True

    def __init__(self) -> None:
        self._guides: dict[int, _Guide] = {}

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        self._guides.pop(sequence, None)
        if prediction:
            self._guides[sequence] = _Guide(tuple(prediction), _places(prediction))

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> dict[int, Draft]:
        drafts = {}
        for sequence, limit in limits.items():
            guide = self._guides.get(sequence)
            if guide is not None and (draft := _draft(guide, limit)) is not None:
                drafts[sequence] = draft
        return drafts

    def after(self, sequence: int, tail: Sequence[int], limit: int) -> Draft | None:
        guide = self._guides.get(sequence)
        if guide is None:
            return None
        for token in tail:
            guide = guide.then(token)
        return _draft(guide, limit)

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        guide = self._guides.get(sequence)
        if guide is not None:
            for token in emitted:
                guide = guide.then(token)
            self._guides[sequence] = guide

    def unread(self, sequence: int) -> int:
        return 0

    def knows_all(self, sequence: int) -> bool:
        return True

    def end(self, sequence: int) -> None:
        self._guides.pop(sequence, None)

    def forget(self) -> None:
        """Nothing is kept for other requests."""


def _draft(guide: _Guide, limit: int) -> Draft | None:
    if guide.at is None:
        return None
    tokens = tuple(guide.tokens[guide.at : guide.at + limit])
    if not tokens:
        return None
    return Draft(tokens, PredictionDrafter.name, (1.0,) * len(tokens), guide.agreed, 1)


def _places(tokens: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    places: dict[tuple[int, ...], list[int]] = {}
    for end in range(_RUN, len(tokens) + 1):
        places.setdefault(tuple(tokens[end - _RUN : end]), []).append(end)
    return places
