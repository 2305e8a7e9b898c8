"""What a client is told when a request fails, in the shape that its API knows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from edgespec.errors import ContextFullError, EngineClosedError, OptionError, TemplateError
from edgespec.server.encoding import JsonResponse

CONTEXT_CODE = "context_length_exceeded"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "unavailable_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_ROUTING = {
    404: ("There is nothing at this path.", "unknown_url"),
    405: ("This path does not take this method.", "method_not_allowed"),
}

_log = logging.getLogger("edgespec")


class ApiError(Exception):
    """An answer that is an error.

    type: the kind of error, by default what belongs to the status.
    code: for programs, such as "model_not_found".
    param: the field at fault, as a dotted path.
    headers: more headers of the answer.
    extra: more keys of the error object.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or _type(status)
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request makes no sense."""
    return ApiError(400, message, param=param, code=code)


def not_found(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """404: no such path or model."""
    return ApiError(404, message, param=param, code=code)


def forbidden(message: str, *, code: str) -> ApiError:
    """403: not from there."""
    return ApiError(403, message, code=code)


def not_supported(message: str, *, param: str | None = None) -> ApiError:
    """501: the model that is loaded cannot do this."""
    # Or else the clients' libraries take it for a failure that passes, and ask again.
    final = {"x-should-retry": "false"}
    return ApiError(501, message, param=param, code="not_supported", headers=final)


def unavailable(message: str, *, retry_after: int = 1, status: int = 503) -> ApiError:
    """503 or 429: not now; try again after so many seconds."""
    headers = {"retry-after": str(retry_after)}
    return ApiError(status, message, code="unavailable", headers=headers)


def context_full(prompt_tokens: int | None, n_ctx: int | None, param: str) -> ApiError:
    """400: the prompt does not fit. The words and keys are those that clients look for."""
    length = f"{n_ctx} tokens" if n_ctx else "too short for this prompt"
    prompt = f"The prompt of {prompt_tokens} tokens" if prompt_tokens else "The prompt"
    return ApiError(
        400,
        f"This model's maximum context length is {length}. {prompt} exceeds the available context"
        " size; shorten it, or start the server with a larger context.",
        type="exceed_context_size_error",
        code=CONTEXT_CODE,
        param=param,
        extra={"n_prompt_tokens": prompt_tokens, "n_ctx": n_ctx},
    )


def api_error(exception: Exception, *, param: str = "messages") -> ApiError:
    """What to answer for an exception. One that no request should cause is logged.

    param: the field that holds the prompt.
    """
    match exception:
        case ApiError():
            return exception
        case ContextFullError():
            # 0 stands for unknown.
            n_ctx = getattr(exception, "n_ctx", None) or None
            return context_full(getattr(exception, "prompt_tokens", None), n_ctx, param)
        case OptionError() | TemplateError():
            return bad_request(str(exception))
        case EngineClosedError():
            return unavailable("The server is shutting down or loading a model.", retry_after=5)
        case HTTPException():
            return _routing(exception)
        case ClientDisconnect():
            return bad_request("The client went away.", code="client_gone")  # nobody reads it
    _log.error("a request failed: %s", type(exception).__name__, exc_info=exception)
    return ApiError(500, "internal error; the server's log says more", code="internal_error")


@contextmanager
def prompt_in(param: str) -> Iterator[None]:
    """Around work on the prompt in this field: where it does not fit, the ApiError says so."""
    try:
        yield
    except ContextFullError as error:
        raise api_error(error, param=param) from None


def openai_body(error: ApiError) -> dict[str, Any]:
    """The body as OpenAI's API and llama.cpp's server have it."""
    known = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    return {"error": {**known, **error.extra}}


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """The body as Anthropic's API has it."""
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(error.status, fallback)
    message = error.message
    if error.code == CONTEXT_CODE:
        # Clients of this API look for these words, and some for the numbers.
        tokens, most = error.extra.get("n_prompt_tokens"), error.extra.get("n_ctx")
        numbers = f"{tokens} tokens > {most} maximum. " if tokens and most else ""
        message = f"prompt is too long: {numbers}{message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


def ollama_body(error: ApiError) -> dict[str, Any]:
    """The body as Ollama's API has it."""
    return {"error": error.message}


def error_response(error: ApiError, path: str) -> Response:
    """The answer, in the shape that clients of this path know."""
    return JsonResponse(_body(error, path), error.status, error.headers)


async def handle(request: Request, exception: Exception) -> Response:
    """For Starlette's `exception_handlers`."""
    return error_response(api_error(exception), request.scope["path"])


def _body(error: ApiError, path: str) -> dict[str, Any]:
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return anthropic_body(error)
    if path.startswith("/api/"):
        return ollama_body(error)
    return openai_body(error)


def _type(status: int) -> str:
    fallback = "server_error" if status >= 500 else "invalid_request_error"
    return _TYPES.get(status, fallback)


def _routing(exception: HTTPException) -> ApiError:
    message, code = _ROUTING.get(exception.status_code, (exception.detail, None))
    return ApiError(exception.status_code, message, code=code, headers=exception.headers)
