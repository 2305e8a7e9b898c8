"""The table of all endpoints: paths, handlers, and what their bodies are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from edgespec.server.api import (
    about,
    chat,
    completions,
    embeddings,
    fim,
    infill,
    messages,
    models,
    native,
    ollama,
    ollama_embed,
    ollama_models,
    responses,
)
from edgespec.server.api.responses_body import ResponsesBody


class Endpoint(NamedTuple):
    """One operation; the handler's docstring is its description in the OpenAPI document.

    body: the model that the handler reads, None where it reads none. streams: the answer may be a
    stream if the body has a field `stream`. media: the type of a whole answer.
    """

    method: str
    paths: tuple[str, ...]
    handler: Callable[[Request], Awaitable[Response]]
    body: type[BaseModel] | None = None
    media: str = "application/json"
    streams: bool = True


ROUTES = [
    Endpoint("GET", ("/",), about.page, media="text/plain"),
    Endpoint("GET", ("/openapi.json",), about.openapi),
    Endpoint("GET", ("/health", "/v1/health"), models.health),
    Endpoint("GET", ("/v1/models", "/models"), models.listed),
    Endpoint("GET", ("/v1/models/{name:path}",), models.one),
    Endpoint("GET", ("/props",), models.props),
    Endpoint("GET", ("/slots",), models.slots),
    Endpoint("GET", ("/metrics",), models.metrics, media="text/plain"),
    Endpoint(
        "POST",
        ("/v1/chat/completions", "/chat/completions"),
        chat.chat_completions,
        chat.ChatBody,
    ),
    Endpoint(
        "POST",
        ("/v1/chat/completions/input_tokens",),
        chat.input_tokens,
        chat.ChatBody,
        streams=False,
    ),
    Endpoint(
        "POST",
        ("/v1/completions", "/completions"),
        completions.completions,
        completions.CompletionBody,
    ),
    Endpoint("POST", ("/v1/fim/completions", "/fim/completions"), fim.fim_completions, fim.FimBody),
    Endpoint("POST", ("/infill",), infill.infill, infill.InfillBody),
    Endpoint("POST", ("/completion",), native.completion, native.NativeCompletionBody),
    Endpoint("POST", ("/tokenize",), native.tokenize, native.TokenizeBody),
    Endpoint("POST", ("/detokenize",), native.detokenize, native.DetokenizeBody),
    Endpoint("POST", ("/apply-template",), native.apply_template, chat.ChatBody, streams=False),
    Endpoint("POST", ("/v1/responses", "/responses"), responses.create, ResponsesBody),
    Endpoint(
        "POST",
        ("/v1/responses/input_tokens",),
        responses.input_tokens,
        ResponsesBody,
        streams=False,
    ),
    *(
        Endpoint(method, ("/v1/responses/{id:path}", "/responses/{id:path}"), responses.kept)
        for method in ("GET", "POST", "DELETE")
    ),
    Endpoint("POST", ("/v1/messages",), messages.create, messages.MessagesBody),
    Endpoint(
        "POST",
        ("/v1/messages/count_tokens",),
        messages.count_tokens,
        messages.MessagesBody,
        streams=False,
    ),
    Endpoint(
        "POST",
        ("/v1/embeddings", "/embeddings"),
        embeddings.embeddings,
        embeddings.EmbeddingsBody,
    ),
]

OLLAMA_ROUTES = [
    Endpoint("GET", ("/api/version",), ollama_models.version),
    Endpoint("GET", ("/api/tags",), ollama_models.tags),
    Endpoint("GET", ("/api/ps",), ollama_models.ps),
    Endpoint("POST", ("/api/show",), ollama_models.show, ollama_models.ShowBody),
    Endpoint("POST", ("/api/chat",), ollama.chat, ollama.OllamaChatBody),
    Endpoint("POST", ("/api/generate",), ollama.generate, ollama.OllamaGenerateBody),
    Endpoint("POST", ("/api/embed",), ollama_embed.embed, ollama_embed.EmbedBody),
    Endpoint(
        "POST", ("/api/copy", "/api/create", "/api/pull", "/api/push"), ollama_models.unsupported
    ),
    Endpoint("DELETE", ("/api/delete",), ollama_models.unsupported),
]


def endpoints(*, like_ollama: bool) -> list[Endpoint]:
    """All that are served. like_ollama: those of Ollama's API, too."""
    return [*ROUTES, *(OLLAMA_ROUTES if like_ollama else ())]
