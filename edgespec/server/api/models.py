"""What is served, and how the server is: models, properties, slots, metrics, health."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgespec import __version__
from edgespec.server.backend import Backend
from edgespec.server.calls import backend_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import not_found
from edgespec.server.metrics import CONTENT_TYPE
from edgespec.text.fim import Fim


async def health(request: Request) -> Response:
    """It answers while the engine is busy, too."""
    return JsonResponse({"status": "ok"})


async def listed(request: Request) -> Response:
    """OpenAI's list, with an Ollama-like one beside it for clients that look there."""
    backend = backend_of(request)
    name = backend.settings.model
    beside = {"name": name, "model": name, "capabilities": capabilities(backend)}
    return JsonResponse({"object": "list", "data": [_model(backend)], "models": [beside]})


async def one(request: Request) -> Response:
    """The model, by its name."""
    backend = backend_of(request)
    name = request.path_params["name"]
    if name != backend.settings.model:
        raise not_found(f"There is no model {name[:100]!r} here.", code="model_not_found")
    return JsonResponse(_model(backend))


async def props(request: Request) -> Response:
    """As llama.cpp's server has them."""
    backend = backend_of(request)
    info, settings = backend.engine.info, backend.settings
    return JsonResponse(
        {
            "default_generation_settings": {"n_ctx": info.n_ctx},
            "total_slots": settings.parallel,
            "model_path": info.target,
            "model_alias": settings.model,
            "chat_template": backend.card.template,
            "chat_template_caps": {"supports_tools": False, "supports_tool_calls": False},
            "modalities": {"vision": False, "audio": False},
            "build_info": f"edgespec {__version__}",
            "n_ctx": info.n_ctx,
        }
    )


async def slots(request: Request) -> Response:
    """What is being answered now; to be read only."""
    backend = backend_of(request)
    busy = [answer.state() for answer in backend.answers]
    places = max(backend.settings.parallel + backend.settings.short_lane, len(busy))
    idle = {"is_processing": False, "n_ctx": backend.engine.info.n_ctx}
    listed = [{"id": i, **state} for i, state in enumerate(busy)]
    return JsonResponse(listed + [{"id": i, **idle} for i in range(len(busy), places)])


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    return Response(backend_of(request).metrics.text(), media_type=CONTENT_TYPE)


def capabilities(backend: Backend) -> list[str]:
    """What the model can do, in Ollama's words."""
    found = ["completion"]
    if isinstance(backend.engine.fim, Fim):
        found.append("insert")
    if backend.embeddings.possible:
        found.append("embedding")
    return found


def _model(backend: Backend) -> dict[str, Any]:
    info, card = backend.engine.info, backend.card
    return {
        "id": backend.settings.model,
        "object": "model",
        "created": backend.settings.created,
        "owned_by": "edgespec",
        "context_length": info.n_ctx,
        "meta": {
            "n_ctx": info.n_ctx,
            "n_ctx_train": card.n_ctx_train,
            "n_params": card.parameters,
            "n_vocab": card.n_vocab,
            "size": card.size,
        },
        "edgespec": {
            "target": info.target,
            "draft": info.draft,
            "drafters": list(info.drafters),
            "num_draft_tokens": info.num_draft_tokens,
            "chat": backend.engine.has_template,
            "notes": list(info.notes),
        },
    }
