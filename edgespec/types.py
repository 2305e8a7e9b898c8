"""The records that travel between layers: frozen, slotted, without behaviour beyond arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Literal, NamedTuple

from edgespec.errors import OptionError

FinishReason = Literal["stop", "length", "context", "cancelled"]
"""stop: end of generation or a stop string; length: max_tokens; context: no room left."""

_REALS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_LARGEST_BIAS = 1e6  # -inf bans a token; +inf would leave nothing to compare

TARGET = "target"
"""The source of a token that no draft proposed."""

MAX_DRAFT_TOKENS = 32
"""The longest draft that one step can verify."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the target chooses tokens. Names, order and meaning are those of llama.cpp's samplers.

    `seed=None` lets the engine draw one; the seed in use is reported in `Completion.seed`.
    Raises OptionError for values outside their range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("top_k", "penalty_last_n", *(("seed",) if self.seed is not None else ())):
            _check_kind(name, getattr(self, name), Integral)
        for name in _REALS:
            _check_kind(name, getattr(self, name), Real)
        if self.temperature != 0.0 and not 1e-6 <= self.temperature <= 100.0:
            # Logits divided by smaller ones overflow.
            raise OptionError(
                f"temperature must be 0, or between 1e-06 and 100, not {self.temperature:g}."
            )
        _require("top_k", self.top_k, 0, math.inf)
        _require("top_p", self.top_p, 0.0, 1.0)
        _require("min_p", self.min_p, 0.0, 1.0)
        _require("typical_p", self.typical_p, 0.0, 1.0)
        _require("repeat_penalty", self.repeat_penalty, 0.01, 100.0)
        _require("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _require("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        _require("penalty_last_n", self.penalty_last_n, 0, math.inf)
        if self.seed is not None:
            _require("seed", self.seed, 0, 2**64 - 1)
        for token, bias in self.logit_bias.items():
            if token < 0 or not bias <= _LARGEST_BIAS:
                raise OptionError(
                    f"logit_bias {bias} for token {token} makes no sense: token ids start at 0, "
                    f"and a bias is at most {_LARGEST_BIAS:g}."
                )


def _check_kind(name: str, value: object, kind: type) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        what = "a whole number" if kind is Integral else "a number"
        raise OptionError(f"{name} must be {what}, not {value!r}.")


def _require(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also catches NaN
        bounds = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {_exact(high)}"
        raise OptionError(f"{name} must be {bounds}, not {_exact(value)}.")


def _exact(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens a drafter proposes for one sequence, with its evidence for them.

    confidence: one value in 0..1 per token, comparable only within one drafter.
    match_length: for copying drafters, how many tokens of context matched.
    candidates: for copying drafters, how many earlier places were considered.
    passes: for draft models, the rows of each pass that was made for it.
    sources: who proposed each token, where that was not one alone.
    """

    tokens: tuple[int, ...]
    source: str
    confidence: tuple[float, ...]
    match_length: int = 0
    candidates: int = 0
    passes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    def cut(self, length: int) -> Draft:
        """The first `length` tokens of this draft."""
        if length >= len(self.tokens):
            return self
        sources = self.sources[:length]
        return replace(
            self,
            tokens=self.tokens[:length],
            confidence=self.confidence[:length],
            sources=sources,
            source="+".join(dict.fromkeys(sources)) if sources else self.source,
        )

    def then(self, other: Draft) -> Draft:
        """This draft, continued by another drafter's."""
        sources = (self.source,) * len(self) + (other.source,) * len(other)
        return replace(
            self,
            tokens=self.tokens + other.tokens,
            confidence=self.confidence + other.confidence,
            sources=sources,
            source="+".join(dict.fromkeys(sources)),
        )

    def by(self, index: int) -> str:
        """Who proposed the token at `index`."""
        return self.sources[index] if self.sources else self.source


NO_DRAFT = Draft((), "", ())


class TokenLogprob(NamedTuple):
    """A token's log-probability in the model's own distribution, and the best ones there."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one target pass did for one sequence.

    Seconds are this sequence's share of the pass, by rows, so that adding up the Steps of all
    sequences gives the time that went by. The whole pass took `verify_s * pass_rows / rows`.
    A pass over a piece of the prompt has `prefilled > 0`; only the last one emits a token.
    """

    sequence: int
    request: int
    position: int  # length of the sequence before this step
    cached: int  # prompt tokens of this request that were already in memory
    k: int  # draft length the policy asked for
    drafter: str  # who drafted; "" when nothing was drafted
    drafted: int
    accepted: int
    tokens: tuple[int, ...]  # emitted tokens, in order
    sources: tuple[str, ...]  # per emitted token: TARGET or the drafter's name
    prefilled: int
    rows: int
    pass_rows: int
    sequences: int  # how many sequences shared the pass
    draft_s: float
    verify_s: float
    sample_s: float
    other_s: float
    reason: str  # why k is what it is
    finish_reason: FinishReason | None = None
    draft_passes: tuple[int, ...] = ()  # rows of each pass of the draft model, used or not
    rejected: tuple[int, ...] = ()  # what was drafted beyond the accepted tokens
    logprobs: tuple[TokenLogprob, ...] = ()  # of the emitted tokens, if asked for
    # Of the prompt's tokens after the first, in order, if asked for.
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counters over Steps (see `decoding.stats`). Names follow the field (DESIGN section 2)."""

    steps: int = 0  # decoding passes, prompt passes not counted
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    emitted_while_decoding: int = 0  # without the token that ends the prefill
    prefilled: int = 0
    prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    sample_s: float = 0.0
    other_s: float = 0.0
    by_drafter: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # drafter -> (drafted, accepted)
    lengths: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    # drafted length -> steps

    @property
    def decode_s(self) -> float:
        """Seconds spent decoding, drafting included, prefill excluded."""
        return self.draft_s + self.verify_s + self.sample_s + self.other_s

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens per target pass, bonus token included; None before the first step."""
        return self.emitted_while_decoding / self.steps if self.steps else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding speed; None before the first step."""
        return self.emitted_while_decoding / self.decode_s if self.decode_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one request. `cached_tokens` of the prompt were already in memory."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Piece(NamedTuple):
    """Text that one token brought, and who proposed that token: TARGET or a drafter's name."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a streamed answer: text that will not change any more, and its Steps.

    pieces: the same text, token by token. A character of several tokens, and text that was held
    back for a stop string, belongs to the token that completed it.
    """

    text: str
    pieces: tuple[Piece, ...] = ()
    steps: tuple[Step, ...] = ()
    finish_reason: FinishReason | None = None
    completion: Completion | None = None  # on the last chunk only


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished answer.

    seed: the seed in use, drawn if none was given.
    stop: the stop string that ended it, if one did.
    claim: "identical" when every pass used a width measured to be bit-identical to plain
        decoding, else "same distribution" (DESIGN section 6).
    steps: how it came about, pass by pass.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    stats: Stats
    seed: int
    claim: Literal["identical", "same distribution"]
    time_to_first_token_s: float
    total_s: float
    stop: str | None = None
    steps: tuple[Step, ...] = field(default=(), repr=False)
