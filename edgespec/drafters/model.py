"""A small model drafts for a large one, with the same sampler and the same noise.

Its memory is kept between steps: after a step it is cut to what the target kept, and only the
tokens it has not seen are read, one or two a step. All sequences advance in one pass per depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgespec.decoding.sampling import LogitRow, Sampler
from edgespec.decoding.sequence import common_prefix
from edgespec.errors import CannotRewindError
from edgespec.protocols import Row, TokenModel
from edgespec.types import Draft, SamplingParams

# Tokens read per step while catching up with a long prompt, so that other sequences never wait
# long for a draft.
CATCH_UP = 256

# Logits this far below the best add nothing to a confidence worth knowing.
_NEGLIGIBLE = 10.0


@dataclass(slots=True)
class _Mirror:
    """What one sequence holds: the target's tokens, and what the draft model has read of them."""

    tokens: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    sampler: Sampler | None = None
    foreign: bool = False  # holds a token that the draft model does not have
    drafted: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)


class ModelDrafter:
    """Drafts with a `TokenModel` of its own.

    n_vocab: the target's vocabulary size; ids beyond it are never proposed.
    """

    name = "model"

    def __init__(self, model: TokenModel, n_vocab: int) -> None:
        self._model = model
        self._n_vocab = min(n_vocab, model.n_vocab)
        self._mirrors = [_Mirror() for _ in range(model.max_sequences)]

    def begin(self, sequence: int, tokens: Sequence[int], params: SamplingParams) -> None:
        mirror = self._mirrors[sequence]
        mirror.tokens = list(tokens)
        mirror.sampler = Sampler(params)
        mirror.foreign = self._has_foreign(tokens)
        self._cut(sequence, common_prefix(mirror.held, mirror.tokens))

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        mirror = self._mirrors[sequence]
        known = len(mirror.tokens)
        mirror.foreign = mirror.foreign or self._has_foreign(emitted)
        mirror.tokens.extend(emitted)
        # What is held of the tokens known before is right; only the draft may be wrong.
        self._cut(sequence, known + common_prefix(mirror.held[known:], emitted))

    def end(self, sequence: int) -> None:
        self._mirrors[sequence].sampler = None

    def forget(self) -> None:
        for sequence in range(len(self._mirrors)):
            self._cut(sequence, 0)

    def propose(self, limits: Mapping[int, int]) -> Mapping[int, Draft]:
        depths = {sequence: self._room(sequence, limit) for sequence, limit in limits.items()}
        active = [sequence for sequence, depth in depths.items() if depth > 0]
        for sequence in active:
            self._mirrors[sequence].drafted = []
            self._mirrors[sequence].confidence = []
        rows = self._catch_up(active)
        while rows:
            self._advance(rows)
            rows = [
                row
                for row in (self._next(sequence, depths[sequence]) for sequence in active)
                if row is not None
            ]
        return {
            sequence: Draft(tuple(mirror.drafted), self.name, tuple(mirror.confidence))
            for sequence in active
            if (mirror := self._mirrors[sequence]).drafted
        }

    def _room(self, sequence: int, limit: int) -> int:
        """The last drafted token is not decoded, so it needs no place in memory."""
        mirror = self._mirrors[sequence]
        if mirror.foreign:
            return 0
        return min(limit, self._model.n_ctx - len(mirror.tokens) + 1)

    def _has_foreign(self, tokens: Sequence[int]) -> bool:
        """Vocabularies of a pair may differ in size; a draft model cannot read what it lacks."""
        return max(tokens, default=0) >= self._model.n_vocab

    def _catch_up(self, active: Sequence[int]) -> list[Row]:
        rows: list[Row] = []
        for sequence in active:
            mirror = self._mirrors[sequence]
            # One token at least: its logits are needed.
            start = min(len(mirror.held), len(mirror.tokens) - 1)
            if start < len(mirror.held):
                self._cut(sequence, start)
                start = len(mirror.held)
            most = min(CATCH_UP, self._model.max_rows - len(rows))
            unread = mirror.tokens[start : start + most]
            last = len(mirror.tokens) - 1
            rows += [
                Row(sequence, start + i, token, start + i == last) for i, token in enumerate(unread)
            ]
        return rows

    def _advance(self, rows: Sequence[Row]) -> None:
        """One pass; every row with logits adds a token to its sequence's draft."""
        logits = self._model.decode(rows)
        for row in rows:
            self._mirrors[row.sequence].held.append(row.token)
        wanting = [row.sequence for row in rows if row.want_logits]
        for sequence, line in zip(wanting, logits, strict=True):
            self._draw(self._mirrors[sequence], line[: self._n_vocab])

    @staticmethod
    def _draw(mirror: _Mirror, logits: LogitRow) -> None:
        assert mirror.sampler is not None, "propose between begin and end"
        length = len(mirror.tokens)
        mirror.tokens.extend(mirror.drafted)
        token = mirror.sampler.sample(logits, mirror.tokens)
        del mirror.tokens[length:]
        mirror.drafted.append(token)
        mirror.confidence.append(_probability(logits, token))

    def _next(self, sequence: int, depth: int) -> Row | None:
        mirror = self._mirrors[sequence]
        if not mirror.drafted or len(mirror.drafted) >= depth:
            return None
        return Row(sequence, len(mirror.held), mirror.drafted[-1], True)

    def _cut(self, sequence: int, length: int) -> None:
        mirror = self._mirrors[sequence]
        if length >= len(mirror.held):
            return
        try:
            self._model.rewind(sequence, length)
        except CannotRewindError:
            self._model.drop(sequence)
            length = 0
        del mirror.held[length:]


def _probability(logits: LogitRow, token: int) -> float:
    """The draft's own probability of `token` at temperature 1, from the logits that matter."""
    largest = logits.max()
    near = logits[logits > largest - np.float32(_NEGLIGIBLE)]
    weights = np.exp(near - largest)
    return float(np.exp(logits[token] - largest) / weights.sum())
