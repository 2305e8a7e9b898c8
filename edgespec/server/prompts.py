"""Raw prompts: texts, tokens, or both mixed, as OpenAI's and llama.cpp's servers take them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

from pydantic import WithJsonSchema

from edgespec.engine import Engine
from edgespec.server.backend import Backend
from edgespec.server.errors import bad_request

Mixed = str | list[str | int]
"""One prompt: a text, or texts and token ids in order."""

_MOST_PROMPTS = 64
_MOST_TEXTS = 4096  # in one mixed prompt
_SHORT = 256  # tokens

_TOKENS = {"type": "array", "items": {"type": "integer"}}
_TEXTS = {"type": "array", "items": {"type": "string"}}

# Checked here, because pydantic would collect a fault for every token of a long list.
Prompts = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {**_TEXTS, "minItems": 1, "maxItems": _MOST_PROMPTS},
                {**_TOKENS, "minItems": 1},
                {"type": "array", "items": _TOKENS, "minItems": 1, "maxItems": _MOST_PROMPTS},
            ]
        }
    ),
]
"""A field with one prompt or several."""


def is_short(backend: Backend, max_tokens: int | None) -> bool:
    """Whether an answer of so many tokens at most may pass long ones by; see Kind."""
    limit = limit_of(backend, max_tokens)
    return limit is not None and limit <= _SHORT


def limit_of(backend: Backend, max_tokens: int | None) -> int | None:
    """The most tokens that the answer to such a request may have; None: as many as fit."""
    usual = backend.settings.max_tokens
    return usual if max_tokens is None or max_tokens < 0 else max_tokens


def several(value: object, param: str) -> list[Mixed] | None:
    """The prompts in a list of them, None where the value is one prompt. Raises ApiError."""
    if not isinstance(value, list) or _is_mixed(value):
        return None
    if not value:
        raise bad_request(f"{param} is an empty array; give at least one prompt.", param=param)
    if len(value) > _MOST_PROMPTS:
        raise bad_request(
            f"{param} has {len(value)} prompts; at most {_MOST_PROMPTS} are taken at once.",
            param=param,
        )
    return [one(prompt, f"{param}.{index}") for index, prompt in enumerate(value)]


def one(value: object, param: str) -> Mixed:
    """A single prompt. Raises ApiError."""
    if isinstance(value, str):
        return value
    kinds = Counter(map(type, value)) if isinstance(value, list) else {}
    if not isinstance(value, list) or not kinds.keys() <= {str, int}:
        message = f"{param} must be a string or an array of token ids."
        raise bad_request(message, param=param)
    if kinds[str] > _MOST_TEXTS:
        raise bad_request(f"{param} has more than {_MOST_TEXTS} texts; join them.", param=param)
    return value


def _is_mixed(value: list[Any]) -> bool:
    """Whether a list is one prompt: with a token id in it, it cannot be several."""
    return any(type(part) is int for part in value)


async def encoded(backend: Backend, prompt: Mixed) -> list[int]:
    """The tokens of a prompt to be continued. Its author has put it into the model's own form, so
    control tokens in it count. Raises as `Engine.encode`."""
    return await asyncio.to_thread(
        encode, backend.engine, prompt, add_special=True, parse_special=True
    )


def encode(engine: Engine, prompt: Mixed, *, add_special: bool, parse_special: bool) -> list[int]:
    """The tokens of a prompt; see `Engine.encode` for the rest. BOS is added to a text at its
    beginning only."""
    tokens: list[int] = []
    for index, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        if isinstance(part, str):
            first = add_special and index == 0
            tokens += engine.encode(part, add_special=first, parse_special=parse_special)
        else:
            tokens.append(part)
    return tokens
