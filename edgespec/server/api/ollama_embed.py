"""`/api/embed`: texts as vectors, by Ollama's API."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgespec.server.api.embeddings import check_inputs
from edgespec.server.api.ollama import name_of
from edgespec.server.backend import Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of
from edgespec.server.embedding import Vectors
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import CONTEXT_CODE, ApiError, bad_request
from edgespec.server.fields import Body
from edgespec.server.sse import unless_disconnected


class EmbedBody(Body):
    """Texts whose vectors are wanted."""

    input: str | list[Any]
    truncate: bool = True
    dimensions: int | None = None


async def embed(request: Request) -> Response:
    """The vectors of some texts. What is too long loses its end, unless truncate is false."""
    began = time.perf_counter_ns()
    body = await read(request, EmbedBody)
    backend = backend_of(request)
    model = name_of(backend, body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    check_inputs(texts)
    if not all(isinstance(text, str) for text in texts):
        raise bad_request("input must be a text or a list of texts.", param="input")
    if body.dimensions not in (None, backend.embeddings.embedder.size):
        raise bad_request("The vectors have another number of dimensions.", param="dimensions")
    work = _all(backend, texts, client_of(request), body.truncate)
    made = await unless_disconnected(request, work)
    return JsonResponse(
        {
            "model": model,
            "embeddings": [vector for one in made for vector in one.vectors],
            "total_duration": time.perf_counter_ns() - began,
            "load_duration": 0,
            "prompt_eval_count": sum(one.tokens for one in made),
        }
    )


async def _all(backend: Backend, texts: list[str], client: str, cut: bool) -> list[Vectors]:
    return [await _one(backend, text, client, cut) for text in texts]


async def _one(backend: Backend, text: str, client: str, cut: bool) -> Vectors:
    """The vector of a text, or of as much of its beginning as fits."""
    while True:
        try:
            return await backend.embeddings.of([text], client)
        except ApiError as error:
            if error.code != CONTEXT_CODE or not cut:
                raise
            tokens, most = error.extra["n_prompt_tokens"], error.extra["n_ctx"]
            # Too long to be counted, or in proportion: always shorter than before.
            text = text[: len(text) * most // tokens if tokens else len(text) // 2]
