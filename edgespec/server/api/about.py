"""What this is: a page for people, and a description of the API for programs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from edgespec import __version__
from edgespec.server.calls import backend_of
from edgespec.server.encoding import JsonResponse


async def page(request: Request) -> Response:
    """What is served here, and where."""
    settings = backend_of(request).settings
    lines = [
        f"edgespec {__version__} serves the model {settings.model}.",
        "",
        "OpenAI's API begins at /v1, Anthropic's is at /v1/messages.",
        "All paths are described at /openapi.json.",
    ]
    if settings.ollama:
        lines.insert(3, "Ollama's API begins at /api.")
    return PlainTextResponse("\n".join(lines) + "\n")


async def openapi(request: Request) -> Response:
    """The API as an OpenAPI 3.1 document."""
    return JsonResponse(request.app.state.document())
