"""A small model drafts for a large one, with the same sampler and the same noise.

Its memory is kept between steps: after a step it is cut to what the target kept, and only the
tokens it has not seen are read, one or two a step. All sequences advance in one pass per depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgespec.decoding.sampling import LogitRow, Sampler
from edgespec.decoding.sequence import common_prefix
from edgespec.errors import CannotRewindError, NoRoomError
from edgespec.protocols import More, Row, TokenModel
from edgespec.types import Draft, SamplingParams

# Tokens read per step while catching up with a long prompt, so that other sequences never wait
# long for a draft.
CATCH_UP = 256

# Logits this far below the best add nothing to a confidence worth knowing.
_NEGLIGIBLE = 10.0


@dataclass(slots=True)
class _Mirror:
    """What one sequence holds: the target's tokens, and what the draft model has read of them,
    which begins with token `start`."""

    tokens: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    start: int = 0
    sampler: Sampler | None = None
    foreign: bool = False  # holds a token that the draft model does not have
    drafted: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens it holds when it has read all."""
        return len(self.tokens) - self.start

    @property
    def behind(self) -> int:
        """Tokens it has not read; 1 at least, as the last one is read to draft."""
        return max(1, self.length - len(self.held))


class ModelDrafter:
    """Drafts with a `TokenModel` of its own.

    n_vocab: the target's vocabulary size; ids beyond it are never proposed.
    window: with more than twice as many unread tokens it reads only the last `window` of them,
    and drafts as if the text began there. A draft needs little context, and on a CPU reading a
    long prompt with the draft model may cost more time than all its drafts save. 0: read all.
    longest: tokens of a text it was trained to read; None for as many as memory holds.
    """

    name = "model"
    copies = False

    def __init__(
        self, model: TokenModel, n_vocab: int, *, window: int = 0, longest: int | None = None
    ) -> None:
        self._model = model
        self._longest = min(longest or model.n_ctx, model.n_ctx)
        self._window = min(window, self._longest // 2)
        self._n_vocab = min(n_vocab, model.n_vocab)
        self._mirrors = [_Mirror() for _ in range(model.max_sequences)]

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        mirror = self._mirrors[sequence]
        mirror.tokens = list(tokens)
        mirror.sampler = Sampler(params)
        mirror.foreign = self._has_foreign(tokens)
        kept = common_prefix(mirror.held, mirror.tokens[mirror.start :])
        self._cut(sequence, kept)
        mirror.start = mirror.start if kept else 0

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        mirror = self._mirrors[sequence]
        known = mirror.length
        mirror.foreign = mirror.foreign or self._has_foreign(emitted)
        mirror.tokens.extend(emitted)
        # What is held of the tokens known before is right; only the draft may be wrong.
        self._cut(sequence, known + common_prefix(mirror.held[known:], emitted))

    def unread(self, sequence: int) -> int:
        mirror = self._mirrors[sequence]
        return (self._window if self._skips(mirror) else mirror.behind) - 1

    def knows_all(self, sequence: int) -> bool:
        mirror = self._mirrors[sequence]
        return mirror.start == 0 and not self._skips(mirror)

    def _skips(self, mirror: _Mirror) -> bool:
        full = mirror.length > self._longest
        return 0 < self._window < mirror.length and (full or mirror.behind > 2 * self._window)

    def _skip(self, sequence: int) -> None:
        """Begin again with the last `window` tokens, if that is better than reading on."""
        mirror = self._mirrors[sequence]
        if self._skips(mirror):
            self._cut(sequence, 0)
            mirror.start = len(mirror.tokens) - self._window

    def end(self, sequence: int) -> None:
        self._mirrors[sequence].sampler = None

    def forget(self) -> None:
        for sequence, mirror in enumerate(self._mirrors):
            self._cut(sequence, 0)
            mirror.start = 0

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        for sequence in limits:
            self._skip(sequence)
        depths = {sequence: self._room(sequence, limit) for sequence, limit in limits.items()}
        active = [sequence for sequence, depth in depths.items() if depth > 0]
        for sequence in active:
            self._mirrors[sequence].drafted = []
            self._mirrors[sequence].confidence = []
        rows, growing = self._catch_up(active), active
        passes: dict[int, list[int]] = {sequence: [] for sequence in active}
        while rows:
            if not self._advance(rows):
                break
            for sequence, its_rows in Counter(row.sequence for row in rows).items():
                passes[sequence].append(its_rows)
            growing = [
                sequence
                for sequence in growing
                if 0 < len((mirror := self._mirrors[sequence]).drafted) < depths[sequence]
                and (more is None or more(sequence, mirror.drafted, mirror.confidence))
            ]
            rows = [self._next(sequence) for sequence in growing]
        return {
            sequence: Draft(
                tuple(mirror.drafted),
                self.name,
                tuple(mirror.confidence),
                passes=tuple(passes[sequence]),
            )
            for sequence in active
            for mirror in [self._mirrors[sequence]]
        }

    def _room(self, sequence: int, limit: int) -> int:
        """The last drafted token is not decoded, so it needs no place in memory."""
        mirror = self._mirrors[sequence]
        if mirror.foreign:
            return 0
        return min(limit, self._longest - mirror.length + 1)

    def _has_foreign(self, tokens: Sequence[int]) -> bool:
        """Vocabularies of a pair may differ in size; a draft model cannot read what it lacks."""
        return max(tokens, default=0) >= self._model.n_vocab

    def _catch_up(self, active: Sequence[int]) -> list[Row]:
        rows: list[Row] = []
        for sequence in active:
            mirror = self._mirrors[sequence]
            last = mirror.length - 1
            # One token at least: its logits are needed.
            self._cut(sequence, last)
            first = len(mirror.held)
            begin = mirror.start + first
            unread = mirror.tokens[begin : begin + min(CATCH_UP, self._model.max_rows - len(rows))]
            rows += [
                Row(sequence, first + i, token, first + i == last) for i, token in enumerate(unread)
            ]
        return rows

    def _advance(self, rows: Sequence[Row]) -> bool:
        """One pass; every row with logits adds a token to its sequence's draft. False when
        memory is full: it is emptied then, to be read again as far as that pays."""
        try:
            logits = self._model.decode(rows)
        except NoRoomError:
            self.forget()
            return False
        for row in rows:
            self._mirrors[row.sequence].held.append(row.token)
        wanting = [row.sequence for row in rows if row.want_logits]
        for sequence, line in zip(wanting, logits, strict=True):
            self._draw(self._mirrors[sequence], line[: self._n_vocab])
        return True

    @staticmethod
    def _draw(mirror: _Mirror, logits: LogitRow) -> None:
        assert mirror.sampler is not None, "propose between begin and end"
        length = len(mirror.tokens)
        mirror.tokens.extend(mirror.drafted)
        token = mirror.sampler.sample(logits, mirror.tokens)
        del mirror.tokens[length:]
        mirror.drafted.append(token)
        mirror.confidence.append(_probability(logits, token))

    def _next(self, sequence: int) -> Row:
        mirror = self._mirrors[sequence]
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
