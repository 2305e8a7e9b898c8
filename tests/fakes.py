"""A strict toy model and drafters of known quality for tests of the core.

The model raises on everything the real one would get silently wrong: a gap or repetition of
positions, a rewind beyond what is held, and (by NaN) the use of logits after the next pass.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.errors import CannotRewindError, DecodeAbortedError, NoRoomError
from edgespec.protocols import Drafter, Logits, More, Plan, Row
from edgespec.types import NO_DRAFT, Draft, SamplingParams, Step

Table = Callable[[Sequence[int]], NDArray[np.float32]]


def hashed_logits(n_vocab: int, seed: int = 0, order: int = 3, scale: float = 2.0) -> Table:
    """Logits that depend on the last `order` tokens only, random but fixed."""
    memory: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def logits(tokens: Sequence[int]) -> NDArray[np.float32]:
        key = tuple(tokens[-order:])
        if key not in memory:
            generator = np.random.default_rng([seed, n_vocab, len(key), *key])
            memory[key] = generator.normal(0.0, scale, n_vocab).astype(np.float32)
        return memory[key]

    return logits


class FakeModel:
    """A `TokenModel` over a logits function of the whole context."""

    def __init__(
        self,
        logits: Table,
        n_vocab: int,
        *,
        n_ctx: int = 512,
        max_sequences: int = 4,
        max_rows: int = 512,
        rewind_depth: float = math.inf,
        cells: int | None = None,
    ) -> None:
        self._logits = logits
        self._cells = cells  # None: every sequence has a memory of its own
        self.n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.max_sequences = max_sequences
        self.max_rows = max_rows
        self.rewind_depth = rewind_depth
        self.memory: dict[int, list[int]] = {slot: [] for slot in range(max_sequences)}
        self.passes = 0
        self.rows_seen: list[int] = []
        self.fail_next: Exception | None = None
        self.aborted = False
        self._last: Logits | None = None

    def decode(self, rows: Sequence[Row]) -> Logits:
        assert 0 < len(rows) <= self.max_rows
        if self.aborted:
            raise DecodeAbortedError("aborted")
        held = sum(map(len, self.memory.values()))
        if self._cells is not None and held + len(rows) > self._cells:
            raise NoRoomError("full")
        if self._last is not None:
            self._last.fill(np.nan)
        self.passes += 1
        self.rows_seen.append(len(rows))
        wanted = []
        for i, row in enumerate(rows):
            memory = self.memory[row.sequence]
            assert row.position == len(memory), f"position {row.position}, holds {len(memory)}"
            assert row.position < self.n_ctx, "context overrun"
            assert 0 <= row.token < self.n_vocab
            memory.append(row.token)
            if self.fail_next is not None and i == len(rows) // 2:
                error, self.fail_next = self.fail_next, None
                raise error
            if row.want_logits:
                wanted.append(self._logits(memory))
        shape = (len(wanted), self.n_vocab)
        self._last = np.array(wanted, np.float32).reshape(shape)
        return self._last

    def rewind(self, sequence: int, length: int) -> None:
        held = self.memory[sequence]
        assert 0 <= length <= len(held), f"rewind to {length}, holds {len(held)}"
        if len(held) - length > self.rewind_depth:
            raise CannotRewindError("too deep for the fake")
        del held[length:]

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        held = len(self.memory[source])
        assert source != destination
        assert 0 <= length <= held, f"copy of {length}, holds {held}"
        if self.rewind_depth == 0 and 0 < length < held:
            raise CannotRewindError("a state is copied whole")
        self.memory[destination] = self.memory[source][:length]

    def drop(self, sequence: int) -> None:
        self.memory[sequence] = []

    def abort(self) -> None:
        self.aborted = True

    def allow(self) -> None:
        self.aborted = False


class FakeTokenizer:
    """One token per byte; a few ids above 255 are control tokens."""

    BOS, END, NAMED_END = 256, 257, 258

    size = 260
    bos = BOS
    adds_bos = True
    longest_piece = len("<|im_end|>")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = [self.BOS] if add_special else []
        parts = text.split("<|im_end|>") if parse_special else [text]
        for i, part in enumerate(parts):
            tokens += [self.NAMED_END] if i else []
            tokens += part.encode("utf-8")
        return tokens

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def name(self, token: int) -> str:
        names = {self.BOS: "<s>", self.END: "</s>", self.NAMED_END: "<|im_end|>"}
        return names.get(token, chr(token))

    def ends_generation(self, token: int) -> bool:
        return token in (self.END, self.NAMED_END)


class FakeDrafter:
    """Keeps the tokens of each sequence, and asks `guess(tokens, params)` for every token."""

    copies = False

    def __init__(self, name: str, guess: Callable[[list[int], SamplingParams], int | None]) -> None:
        self.name = name
        self._guess = guess
        self.tokens: dict[int, list[int]] = {}
        self._params: dict[int, SamplingParams] = {}

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        assert sequence not in self.tokens, "begin without end"
        self.tokens[sequence] = list(tokens)
        self._params[sequence] = params

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        drafts = {}
        for sequence, limit in limits.items():
            assert limit >= 1
            tokens: list[int] = []
            while len(tokens) < limit:
                context = self.tokens[sequence] + tokens
                token = self._guess(context, self._params[sequence])
                if token is None:
                    break
                tokens.append(token)
            if tokens:
                drafts[sequence] = Draft(tuple(tokens), self.name, (0.5,) * len(tokens))
        return drafts

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        self.tokens[sequence].extend(emitted)

    def unread(self, sequence: int) -> int:
        return 0

    def knows_all(self, sequence: int) -> bool:
        return True

    def end(self, sequence: int) -> None:
        del self.tokens[sequence]

    def forget(self) -> None:
        assert not self.tokens, "forget while a request runs"


class ChoosyPolicy:
    """A policy for tests: a drafter and k for each sequence, then a part of what was drafted."""

    def choose(self, slot: int) -> tuple[str, int]:
        raise NotImplementedError

    def trim(self, draft: Draft) -> Draft:
        return draft

    def plan(
        self, room: Mapping[int, int], drafters: Mapping[str, Drafter], others: int
    ) -> Mapping[int, Plan]:
        plans = {}
        limits: dict[str, dict[int, int]] = {}
        for slot, most in room.items():
            name, k = self.choose(slot)
            k = max(0, min(k, most))
            plans[slot] = Plan(NO_DRAFT, k, "choosy")
            if k:
                limits.setdefault(name, {})[slot] = k
        for name, limit in limits.items():
            for slot, draft in drafters[name].propose(limit).items():
                if not draft:
                    continue  # only read
                plans[slot] = plans[slot]._replace(draft=self.trim(draft))
        return plans

    def observe(self, steps: Sequence[Step]) -> None:
        pass


class ErraticPolicy(ChoosyPolicy):
    """Any drafter, any k, different at every step: what timing could do at worst."""

    def __init__(self, drafters: Sequence[str], seed: int, largest: int = 8) -> None:
        self._drafters = list(drafters)
        self._random = random.Random(seed)
        self._largest = largest

    def choose(self, slot: int) -> tuple[str, int]:
        return self._random.choice(self._drafters), self._random.randint(0, self._largest)

    def trim(self, draft: Draft) -> Draft:
        return draft.cut(self._random.randint(0, len(draft)))


class Ticks:
    """A clock that advances by so many seconds per look."""

    def __init__(self, tick: float = 1.0) -> None:
        self.now = 0.0
        self._tick = tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now
