"""What Ollama's API tells of models: versions, lists, details. There is one, and it stays."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgespec import __version__
from edgespec.server.api.models import capabilities
from edgespec.server.api.ollama import name_of
from edgespec.server.backend import Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import not_supported
from edgespec.server.fields import Body

# Clients compare it with that of the Ollama from which on they work.
_VERSION = "0.12.0"
_NEVER = "9999-12-31T23:59:59Z"


class ShowBody(Body):
    """Which model is asked about."""

    name: str = ""  # as older clients call it


async def version(request: Request) -> Response:
    """A version of Ollama that has what is here; edgespec's own is beside it."""
    return JsonResponse({"version": _VERSION, "edgespec": __version__})


async def tags(request: Request) -> Response:
    """The models that can be used."""
    return JsonResponse({"models": [_listed(backend_of(request))]})


async def ps(request: Request) -> Response:
    """The models that are loaded."""
    backend = backend_of(request)
    more = {"expires_at": _NEVER, "context_length": backend.engine.info.n_ctx}
    return JsonResponse({"models": [{**_listed(backend), **more}]})


async def show(request: Request) -> Response:
    """What is known of the model."""
    body = await read(request, ShowBody)
    backend = backend_of(request)
    name_of(backend, body.model or body.name)
    card = backend.card
    architecture = card.architecture or "unknown"
    return JsonResponse(
        {
            "template": card.template,
            "details": _details(backend),
            "model_info": {
                "general.architecture": architecture,
                "general.parameter_count": card.parameters,
                # Clients take it for what a prompt may have, so it is what is loaded.
                f"{architecture}.context_length": backend.engine.info.n_ctx,
            },
            "capabilities": capabilities(backend),
            "modified_at": _started(backend),
        }
    )


async def unsupported(request: Request) -> Response:
    """What would change or fetch models. There is one, chosen when the server was started."""
    raise not_supported(
        "This server has one model, which it was started with; use `edgespec models pull` to"
        " fetch others."
    )


def _listed(backend: Backend) -> dict[str, Any]:
    name, card = backend.settings.model, backend.card
    known = f"{backend.engine.info.target} {card.size} {card.parameters}"
    return {
        "name": name,
        "model": name,
        "modified_at": _started(backend),
        "size": card.size,
        # Of what is known of the file, not of its bytes: there may be many.
        "digest": hashlib.sha256(known.encode()).hexdigest(),
        "details": _details(backend),
    }


def _details(backend: Backend) -> dict[str, Any]:
    card = backend.card
    # llama.cpp says architecture, size and quantization.
    words = card.description.split(maxsplit=2)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": card.architecture,
        "families": [card.architecture],
        "parameter_size": _size(card.parameters),
        "quantization_level": words[2] if len(words) > 2 else "unknown",
    }


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


def _started(backend: Backend) -> str:
    return datetime.fromtimestamp(backend.settings.created, UTC).isoformat().replace("+00:00", "Z")
