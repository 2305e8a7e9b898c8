"""`/v1/embeddings`: texts as vectors, by OpenAI's API."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from edgespec.requests import Prompt
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import bad_request
from edgespec.server.fields import Body
from edgespec.server.sse import unless_disconnected

MOST_INPUTS = 256


_TOKENS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
_TEXT = {"type": "string", "minLength": 1}

# What is in the lists is checked here and by the engine: pydantic would collect every fault.
Inputs = Annotated[
    str | list[Any],
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT,
                _TOKENS,
                {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_INPUTS},
                {"type": "array", "items": _TOKENS, "minItems": 1, "maxItems": MOST_INPUTS},
            ]
        }
    ),
]


class EmbeddingsBody(Body):
    """Texts, or their tokens, whose vectors are wanted."""

    input: Inputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None

    def prompts(self) -> list[Prompt]:
        """One for each vector. Raises ApiError."""
        given = self.input
        one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
        found: list[Any] = [given] if one else list(given)
        check_inputs(found)
        return found


def check_inputs(found: Sequence[Any]) -> None:
    """Raise ApiError unless these are some texts, or lists of tokens, and not too many."""
    if not 1 <= len(found) <= MOST_INPUTS:
        raise bad_request(
            f"input must be 1 to {MOST_INPUTS} texts, not {len(found)}.", param="input"
        )
    for index, one in enumerate(found):
        # What is in the lists is looked at when they are tokenized.
        if not isinstance(one, str | list):
            raise bad_request(
                f"input.{index} must be a text or a list of tokens.", param=f"input.{index}"
            )
        if not one:
            raise bad_request(f"input.{index} is empty.", param=f"input.{index}")


async def embeddings(request: Request) -> Response:
    """The vectors of some texts, each of length 1."""
    body = await read(request, EmbeddingsBody)
    backend = backend_of(request)
    model = model_of(backend, body.model)
    prompts = body.prompts()
    size = backend.embeddings.embedder.size
    if body.dimensions not in (None, size):
        raise bad_request(
            f"The vectors have {size} dimensions, not {body.dimensions}.", param="dimensions"
        )
    work = backend.embeddings.of(prompts, client_of(request))
    vectors, tokens = await unless_disconnected(request, work)
    encode = _base64 if body.encoding_format == "base64" else list
    data = [
        {"object": "embedding", "index": index, "embedding": encode(vector)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JsonResponse({"object": "list", "data": data, "model": model, "usage": usage})


def _base64(vector: Sequence[float]) -> str:
    """As clients of OpenAI expect it: 32-bit floats, the low byte first."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
