"""What a chat remembers of how it wants its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

from edgespec.errors import OptionError
from edgespec.types import MAX_DRAFT_TOKENS, SamplingParams

DraftTokens = int | Literal["auto"]

_DEFAULTS = SamplingParams()
_SAMPLING = tuple(field.name for field in fields(SamplingParams) if field.name != "logit_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Settings of one chat; the names of sampling are those of SamplingParams.

    system: the system prompt, "" for none. max_tokens: of an answer, 0 for no limit. k: draft
    tokens per step, "auto" as it pays, 0 for plain decoding. drafter: one of the loaded ones or
    "auto". Raises OptionError for values outside their range.
    """

    system: str = ""
    temperature: float = _DEFAULTS.temperature
    top_k: int = _DEFAULTS.top_k
    top_p: float = _DEFAULTS.top_p
    min_p: float = _DEFAULTS.min_p
    typical_p: float = _DEFAULTS.typical_p
    repeat_penalty: float = _DEFAULTS.repeat_penalty
    presence_penalty: float = _DEFAULTS.presence_penalty
    frequency_penalty: float = _DEFAULTS.frequency_penalty
    penalty_last_n: int = _DEFAULTS.penalty_last_n
    seed: int | None = None
    max_tokens: int = 1024
    k: DraftTokens = "auto"
    drafter: str = "auto"

    def __post_init__(self) -> None:
        self.params()
        if not isinstance(self.max_tokens, int) or self.max_tokens < 0:
            raise OptionError(f"max_tokens must be 0 (no limit) or more, not {self.max_tokens!r}.")
        whole = isinstance(self.k, int) and not isinstance(self.k, bool)
        if self.k != "auto" and not (whole and 0 <= int(self.k) <= MAX_DRAFT_TOKENS):
            raise OptionError(
                f"k must be auto or a number between 0 and {MAX_DRAFT_TOKENS}, not {self.k!r}."
            )

    def params(self) -> SamplingParams:
        """For the engine. Raises OptionError for values outside their range."""
        return SamplingParams(**{name: getattr(self, name) for name in _SAMPLING})

    def with_text(self, name: str, text: str) -> Self:
        """The same with one value read from what a user typed. Raises OptionError."""
        return replace(self, **{name: _read(name, text.strip())})

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Self:
        """What was kept by `to_dict`; values that are not usable any more are left out."""
        settings = cls()
        for name in (field.name for field in fields(cls)):
            if name in kept:
                try:
                    settings = replace(settings, **{name: kept[name]})
                except (OptionError, TypeError):
                    continue
        return settings


def _read(name: str, text: str) -> Any:
    if name in ("system", "drafter"):
        return text
    if (name, text) in (("k", "auto"), ("seed", ""), ("seed", "random")):
        return "auto" if name == "k" else None
    whole = name in ("top_k", "penalty_last_n", "seed", "max_tokens", "k")
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        also = {"k": "auto or ", "seed": "empty or "}.get(name, "")
        raise OptionError(f"{name} must be {also}{kind}, not {text!r}.") from None
