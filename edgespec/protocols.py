"""The seams of edgespec: what a model, a drafter and a policy must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgespec.types import Draft, SamplingParams, Step

Logits = NDArray[np.float32]


class Row(NamedTuple):
    """One token of a pass. `position` counts from 0 within its sequence."""

    sequence: int
    position: int
    token: int
    want_logits: bool


class TokenModel(Protocol):
    """A model that works on token ids of several sequences, each with its own memory."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int:
        """Tokens one sequence can hold, and all of them together: they share the memory."""

    @property
    def max_sequences(self) -> int: ...

    @property
    def max_rows(self) -> int:
        """Rows one pass can take."""

    @property
    def rewind_depth(self) -> float:
        """How many tokens `rewind` can drop: math.inf, a number, or 0."""

    def decode(self, rows: Sequence[Row]) -> Logits:
        """One pass over `rows`. Returns float32 logits, shape (rows that want them, n_vocab),
        valid until the next call.

        The rows of one sequence must continue it without a gap. Raises NoRoomError when memory
        is full; nothing was done then. Raises DecodeAbortedError when interrupted and
        BackendError when the pass fails; memory then holds a part of the rows, and the caller
        rewinds.
        """

    def rewind(self, sequence: int, length: int) -> None:
        """Keep the first `length` tokens of the sequence. Raises CannotRewindError."""

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """Make `destination` hold the first `length` tokens of `source`."""

    def drop(self, sequence: int) -> None:
        """Forget the sequence."""

    def abort(self) -> None:
        """Make the running pass, or the next, raise DecodeAbortedError. From any thread."""

    def allow(self) -> None:
        """Let passes run again after `abort`."""


class Tokenizer(Protocol):
    """Text to token ids and back, for one model."""

    @property
    def size(self) -> int: ...

    @property
    def bos(self) -> int: ...

    @property
    def adds_bos(self) -> bool: ...

    @property
    def longest_piece(self) -> int:
        """Bytes of the longest text a token can stand for, at least."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """add_special: add BOS/EOS as the model asks. parse_special: read control tokens such as
        <|im_end|> in the text as such."""

    def piece(self, token: int) -> bytes:
        """The bytes `token` adds to a text; b"" for control tokens."""

    def name(self, token: int) -> str:
        """How the token is written in the vocabulary, control tokens included."""

    def ends_generation(self, token: int) -> bool:
        """Whether the model says with `token` that it is done."""


More = Callable[[int, Sequence[int], Sequence[float]], bool]
"""Asked while a draft grows: (sequence, its tokens so far, their confidence) -> go on?"""


class Drafter(Protocol):
    """Whoever proposes the next tokens. May be wrong: costs time, never correctness."""

    @property
    def name(self) -> str:
        """Shown to the user and stored with every token it placed."""

    @property
    def copies(self) -> bool:
        """Whether it copies known text, in microseconds; such a drafter has `after` as well."""

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        """A request starts with this prompt. `params.seed` is set. prediction: what the caller
        expects the answer to be."""

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        """Drafts of at most `limits[sequence]` tokens, for all sequences at once.

        A sequence may be left out. Limits are at least 1. more: asked by drafters to whom every
        token costs time, before the next one.
        """

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        """The target emitted these tokens, whoever drafted them."""

    def unread(self, sequence: int) -> int:
        """How many tokens it must read before it can draft, besides the last one."""

    def knows_all(self, sequence: int) -> bool:
        """Whether its drafts follow from the whole text, or only from the end of it."""

    def end(self, sequence: int) -> None:
        """The request is over; its memory may be kept for the next prompt."""

    def forget(self) -> None:
        """Let go of what was kept for next prompts. Called while no request runs."""


class Copier(Drafter, Protocol):
    """A drafter that copies known text: so cheap that it is asked at every step."""

    def after(self, sequence: int, tail: Sequence[int], limit: int) -> Draft | None:
        """What it would propose if the sequence went on with `tail`."""


class Plan(NamedTuple):
    """A policy's answer for one sequence: the draft to verify, how long it was meant to be, and
    why."""

    draft: Draft
    k: int
    reason: str


class DraftPolicy(Protocol):
    """Decides how much to draft and from whom, and has it drafted."""

    def plan(
        self, room: Mapping[int, int], drafters: Mapping[str, Drafter], others: int
    ) -> Mapping[int, Plan]:
        """One Plan for every decoding sequence. room: the most tokens each can use.

        drafters: those it may ask, all of which know the sequences. others: rows that the pass
        will hold for sequences which are not in `room`.
        """

    def observe(self, steps: Sequence[Step]) -> None:
        """What came of it: the Steps of one pass, those of prompts included."""
