"""Request fields that many endpoints share, under all the names that clients use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from edgespec.server.errors import bad_request
from edgespec.server.settings import MOST_CHOICES
from edgespec.types import MAX_DRAFT_TOKENS

_MOST_STOPS, _LONGEST_STOP = 256, 4096
_MOST_BIASES = 4096
_ALL_TOKENS = 2**31 - 1  # more than any context has


_SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty"),
    *("presence_penalty", "frequency_penalty", "penalty_last_n"),
)


def known_as(*names: str) -> Any:
    """A field that clients call by any of these names; the first of them that is there counts."""
    return Field(default=None, validation_alias=AliasChoices(*names))


class Body(BaseModel):
    """What every request accepts: unknown fields are ignored."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    model: str = ""


class Speculative(BaseModel):
    """How much may be drafted for this request: 0 is plain decoding."""

    num_draft_tokens: Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)] | Literal["auto"] = "auto"


class Text(BaseModel):
    """A part of a content."""

    type: str = "text"
    text: str = ""


class Prediction(BaseModel):
    """What the answer is expected to be."""

    type: Literal["content"] = "content"
    content: str | list[Text] = ""

    @property
    def text(self) -> str:
        """As one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class Sampling(Body):
    """How tokens are chosen, and how long the answer may get."""

    max_tokens: int | None = known_as(
        "max_completion_tokens", "max_output_tokens", "n_predict", "max_tokens"
    )
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = known_as("typical_p", "typ_p")
    repeat_penalty: float | None = known_as("repeat_penalty", "repetition_penalty")
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_last_n: int | None = known_as("penalty_last_n", "repeat_last_n")
    seed: int | None = None
    stop: str | list[str] | None = known_as("stop", "stop_sequences")
    logit_bias: dict[str, float] | list[Any] | None = None
    speculative: Speculative | None = None
    prediction: Prediction | None = None
    cache_prompt: bool | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None

    def options(self, choice: int = 0) -> dict[str, Any]:
        """For `Engine.submit`. choice: which of the `n` answers. Raises ApiError."""
        found = {name: getattr(self, name) for name in _SAMPLING}
        found["stop"] = stops(self.stop)
        found["logit_bias"] = _biases(self.logit_bias)
        found["max_tokens"] = self.max_tokens if (self.max_tokens or 0) >= 0 else None
        if self.seed is not None and self.seed >= 0:  # -1: any
            found["seed"] = (self.seed + choice) % 2**64
        found["cache_prompt"] = self.cache_prompt
        if self.speculative is not None:
            found["num_draft_tokens"] = self.speculative.num_draft_tokens
        if self.prediction is not None:
            found["prediction"] = self.prediction.text
        if (self.top_k or 0) < 0:
            found["top_k"] = 0
        if (self.penalty_last_n or 0) < 0:
            found["penalty_last_n"] = _ALL_TOKENS
        return {name: value for name, value in found.items() if value is not None}


def stops(given: str | Sequence[str] | None) -> list[str] | None:
    """As a list. Raises ApiError for more or longer ones than make sense."""
    if given is None:
        return None
    found = [given] if isinstance(given, str) else list(given)
    if len(found) > _MOST_STOPS or any(len(one) > _LONGEST_STOP for one in found):
        raise bad_request(
            f"At most {_MOST_STOPS} stop strings of {_LONGEST_STOP} characters are taken.",
            param="stop",
        )
    return [one for one in found if one]


def _biases(given: dict[str, float] | list[Any] | None) -> dict[int, float] | None:
    """By token. OpenAI's clients send an object, llama.cpp's a list of pairs; false: never."""
    if given is None:
        return None
    pairs: list[Any] = list(given.items()) if isinstance(given, dict) else given
    found = {}
    for pair in pairs[: _MOST_BIASES + 1]:
        try:
            token, value = pair
            found[int(token)] = -1e9 if value is False else float(value)
        except (TypeError, ValueError, OverflowError):
            raise bad_request(
                "logit_bias must map token ids to numbers, or be a list of such pairs.",
                param="logit_bias",
            ) from None
    if len(found) > _MOST_BIASES:
        raise bad_request(f"At most {_MOST_BIASES} biases are taken.", param="logit_bias")
    return found
