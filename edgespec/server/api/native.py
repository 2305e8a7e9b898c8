"""llama.cpp's own API: /completion, /tokenize, /detokenize, /apply-template."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, FailFast
from starlette.requests import Request
from starlette.responses import Response

from edgespec.server.api.chat import ChatBody
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import prompt_in
from edgespec.server.native import NativeAnswer, NativeBody, respond
from edgespec.server.prompts import Prompts, encode, encoded, is_short, one, several


class NativeCompletionBody(NativeBody):
    """A request to continue a text, tokens, or both mixed; or several of them."""

    prompt: Prompts


class TokenizeBody(BaseModel):
    """A text, or texts and token ids mixed. parse_special: control tokens in it count."""

    content: Prompts = ""
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(BaseModel):
    """Tokens whose text is wanted."""

    tokens: Annotated[list[int], FailFast()] = []


async def completion(request: Request) -> Response:
    """Continue a text as llama.cpp's server does. Several answers come as an array."""
    body = await read(request, NativeCompletionBody)
    backend = backend_of(request)
    model, client = model_of(backend, body.model), client_of(request)
    short = is_short(backend, body.max_tokens)
    answers: list[NativeAnswer] = []
    with prompt_in("prompt"):
        for prompt in several(body.prompt, "prompt") or [one(body.prompt, "prompt")]:
            tokens = await encoded(backend, prompt)
            for choice in range(body.choices):
                answer = await backend.prepare(
                    tokens, body.request(choice), client=client, short=short
                )
                answers.append(NativeAnswer(backend, body, answer, index=len(answers), model=model))
    return await respond(request, backend, body, answers, "prompt")


async def tokenize(request: Request) -> Response:
    """The tokens of a text."""
    body = await read(request, TokenizeBody)
    engine = backend_of(request).engine

    def work() -> list[Any]:
        tokens = encode(
            engine,
            one(body.content, "content"),
            add_special=body.add_special,
            parse_special=body.parse_special,
        )
        if not body.with_pieces:
            return tokens
        return [
            {"id": token, "piece": _shown(engine.piece(token, special=True))} for token in tokens
        ]

    with prompt_in("content"):
        return JsonResponse({"tokens": await asyncio.to_thread(work)})


async def detokenize(request: Request) -> Response:
    """The text of tokens."""
    body = await read(request, DetokenizeBody)
    engine = backend_of(request).engine
    text = await asyncio.to_thread(engine.detokenize, body.tokens, special=True)
    return JsonResponse({"content": text})


async def apply_template(request: Request) -> Response:
    """The prompt that a chat becomes."""
    body = await read(request, ChatBody)
    body.check()
    engine = backend_of(request).engine
    text = await asyncio.to_thread(engine.render, body.messages, **body.template_options())
    return JsonResponse({"prompt": text})


def _shown(piece: bytes) -> str | list[int]:
    """As a text, or as bytes where it is half a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
