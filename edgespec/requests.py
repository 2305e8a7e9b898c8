"""What can be asked of one request, and whether it makes sense."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypedDict

from edgespec.errors import OptionError
from edgespec.policies import DraftTokens
from edgespec.types import SamplingParams

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int]
"""Text to continue, or its tokens."""

MOST_LOGPROBS = 100


class RequestOptions(TypedDict, total=False):
    """What can be asked of one request; all of it is optional.

    messages: a chat, put into the model's own template, instead of a prompt.
    template_options: more variables for that template. max_tokens: None for as many as the
    context holds, 0 to read the prompt only, for a later request that begins alike. stop:
    strings that end the answer. num_draft_tokens, drafter: k and one of the loaded drafters for
    this request alone; 0 is plain decoding. prediction: what the answer is expected to be, which
    makes it faster as far as it is right. stop_tokens: tokens that end the answer and are no part
    of it, besides the model's own. logprobs: of every token, with so many of the best
    beside it. prompt_logprobs: of the prompt's tokens as well. cache_prompt: False reads the
    whole prompt anew, though a part of it may be in memory. notify: called on the engine's
    thread whenever there is more to read.
    Sampling: `params`, or the fields of SamplingParams as keywords.
    """

    messages: Messages | None
    template_options: Mapping[str, Any]
    max_tokens: int | None
    stop: Sequence[str] | None
    stop_tokens: Container[int]
    num_draft_tokens: DraftTokens
    drafter: str
    prediction: str
    logprobs: int | None
    prompt_logprobs: bool
    cache_prompt: bool
    notify: Callable[[], None] | None
    params: SamplingParams | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_last_n: int
    logit_bias: Mapping[int, float]
    seed: int | None


_SAMPLING = [field.name for field in fields(SamplingParams)]
_NOT_SAMPLING = frozenset(RequestOptions.__annotations__).difference(_SAMPLING)


def check(options: RequestOptions) -> None:
    """Raise OptionError for numbers out of range."""
    _check_number("max_tokens", options.get("max_tokens"), 0, None)
    _check_number("logprobs", options.get("logprobs"), 0, MOST_LOGPROBS)


def limit_of(options: RequestOptions, most: int) -> int:
    """The tokens an answer may have; `most` where no limit is asked for."""
    limit = options.get("max_tokens")
    return most if limit is None else limit


def sampling_of(options: RequestOptions) -> SamplingParams:
    """How to sample, with a seed. Raises OptionError for what nobody knows."""
    asked = {name: value for name, value in options.items() if name not in _NOT_SAMPLING}
    for name in asked:
        if name not in _SAMPLING:
            near = difflib.get_close_matches(name, _SAMPLING, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_SAMPLING)}."
            raise OptionError(f"There is no option {name}: {hint}")
    changes: dict[str, Any] = asked
    params = replace(options.get("params") or SamplingParams(), **changes)
    return params if params.seed is not None else replace(params, seed=secrets.randbits(32))


def _check_number(name: str, value: object, least: int, most: int | None) -> None:
    if value is None:
        return
    number = value if isinstance(value, int) and not isinstance(value, bool) else least - 1
    if number < least or (most is not None and number > most):
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} must be a whole number {bounds}, not {value!r}.")
