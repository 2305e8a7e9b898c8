"""What every endpoint asks of a request: the backend, who is calling, and for which model."""

from __future__ import annotations

from starlette.requests import Request

from edgespec.server.backend import Backend
from edgespec.server.errors import bad_request, not_found

MOST_NAMED = 1024  # characters of a model's name: it stands in every part of an answer


def backend_of(request: Request) -> Backend:
    """The one that the application was made with."""
    backend: Backend = request.app.state.backend
    return backend


def client_of(request: Request) -> str:
    """Who is calling, as far as that can be told: the key and the program, from this address."""
    address = request.client.host if request.client else ""
    headers = request.headers
    key = headers.get("authorization") or headers.get("x-api-key") or headers.get("api-key", "")
    return f"{address} {key} {headers.get('user-agent', '')}"


def model_of(backend: Backend, asked: str) -> str:
    """The name to answer with. Raises ApiError where only the right name is taken."""
    settings = backend.settings
    if len(asked) > MOST_NAMED:
        raise bad_request(
            f"The name of a model has at most {MOST_NAMED} characters.", param="model"
        )
    if asked and settings.strict_model and asked != settings.model:
        raise not_found(
            f"There is no model {asked[:100]!r} here, only {settings.model!r}.",
            param="model",
            code="model_not_found",
        )
    return asked or settings.model
