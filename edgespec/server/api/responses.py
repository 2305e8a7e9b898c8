"""`/v1/responses`: OpenAI's Responses API without its memory. Every request brings everything."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgespec.errors import ContextFullError
from edgespec.server.api.responses_body import ResponsesBody
from edgespec.server.api.responses_events import Output
from edgespec.server.api.responses_input import STATELESS, conversation
from edgespec.server.backend import Answer, Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import (
    CONTEXT_CODE,
    ApiError,
    api_error,
    not_found,
)
from edgespec.server.logprobs import chat_logprobs
from edgespec.server.speech import Event, spoken
from edgespec.server.sse import EventStream, event, unless_disconnected
from edgespec.server.tools import count
from edgespec.server.usage import thought_tokens, timings
from edgespec.text.thoughts import Thoughts
from edgespec.types import Chunk, Completion

_CUT = ("length", "context")


async def create(request: Request) -> Response:
    """Answer, whole or as a stream."""
    body = await read(request, ResponsesBody)
    body.check()
    backend = backend_of(request)
    reply = _Reply(backend, body, model_of(backend, body.model))
    try:
        await reply.prepare(client_of(request))
    except ContextFullError as error:
        full = _refused(error)
        if not body.stream:
            raise full from None
        # Codex looks for this error in a stream alone.
        return EventStream(reply.refusal(full))
    if body.stream:
        return EventStream(reply.events(), heartbeat=backend.settings.heartbeat)
    return JsonResponse(await unless_disconnected(request, reply.whole()))


async def input_tokens(request: Request) -> Response:
    """How many tokens an input has."""
    body = await read(request, ResponsesBody)
    messages = conversation(body.instructions, body.input)
    backend, options = backend_of(request), body.template_options()
    try:
        tokens = await count(backend, messages, options, body.functions)
    except ContextFullError as error:
        raise _refused(error) from None
    return JsonResponse({"object": "response.input_tokens", "input_tokens": tokens})


async def kept(request: Request) -> Response:
    """A response of the past, of which there is none."""
    raise not_found(STATELESS, code="response_not_found")


class _Reply:
    """One request at work."""

    _answer: Answer
    _thoughts: Thoughts

    def __init__(self, backend: Backend, body: ResponsesBody, model: str) -> None:
        self._backend = backend
        self._body = body
        self._model = model
        self._messages = conversation(body.instructions, body.input)
        self._output = Output()
        self._numbers = itertools.count()
        self._id = f"resp_{secrets.token_hex(24)}"
        self._created = int(time.time())

    async def prepare(self, client: str) -> None:
        """Raises what `Backend.prepare` does."""
        asked = self._body.request(self._messages)
        self._answer = await self._backend.prepare(None, asked, client=client)
        self._thoughts = Thoughts(open=self._answer.opens_thought)

    async def whole(self) -> dict[str, Any]:
        """The response."""
        response: dict[str, Any] = {}
        async with aclosing(self._told()) as told:
            async for one in told:
                response = one.get("response", response)
        return response

    async def events(self) -> AsyncIterator[bytes]:
        """The response as it comes."""
        yield self._sent(self._status("created", "in_progress"))
        yield self._sent(self._status("in_progress", "in_progress"))
        try:
            async with aclosing(self._told()) as told:
                async for one in told:
                    yield self._sent(one)
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield self._failed(_refused(error))

    async def refusal(self, error: ApiError) -> AsyncIterator[bytes]:
        """A stream about a request that was not begun."""
        yield self._sent(self._status("created", "in_progress"))
        yield self._failed(error)

    async def _told(self) -> AsyncGenerator[Event, None]:
        """Events; the last one carries the response."""
        async with aclosing(spoken(self._answer, self._thoughts)) as speech:
            async for said, chunk in speech:
                for one in self._output.say(said, self._logprobs(chunk)):
                    yield one
                if chunk.completion is not None:
                    cut = chunk.completion.finish_reason in _CUT
                    for one in self._output.end(cut=cut):
                        yield one
                    yield await self._final(chunk.completion, cut)

    def _logprobs(self, chunk: Chunk) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = chat_logprobs(self._backend.engine, chunk.steps)["content"]
        return found

    async def _final(self, completion: Completion, cut: bool) -> Event:
        status = "incomplete" if cut else "completed"
        return self._status(
            status,
            status,
            output=self._output.parts,
            completed_at=None if cut else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            usage=await self._usage(completion),
            timings=timings(completion),
        )

    async def _usage(self, completion: Completion) -> dict[str, Any]:
        used = completion.usage
        thought = 0
        if self._output.parts[0]["type"] == "reasoning":
            engine = self._backend.engine
            thought = await asyncio.to_thread(thought_tokens, engine, completion)
        return {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": used.prompt_tokens + used.completion_tokens,
        }

    def _failed(self, error: ApiError) -> bytes:
        told = {"code": _code(error), "message": error.message}
        return self._sent(self._status("failed", "failed", output=self._output.parts, error=told))

    def _sent(self, one: Event) -> bytes:
        return event(one["type"], {**one, "sequence_number": next(self._numbers)})

    def _status(self, name: str, status: str, **more: Any) -> Event:
        return {"type": f"response.{name}", "response": {**self._frame(status), **more}}

    def _frame(self, status: str) -> dict[str, Any]:
        """A response of which nothing is known but the request."""
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "model": self._model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **self._body.echo(),
        }


def _refused(error: Exception) -> ApiError:
    return api_error(error, param="input")


def _code(error: ApiError) -> str:
    """The word that clients of this API know."""
    if error.code == CONTEXT_CODE:
        return CONTEXT_CODE
    if error.status in (429, 503):
        return "rate_limit_exceeded"  # which means: try again later
    return "server_error" if error.status >= 500 else "invalid_prompt"
