"""`/v1/messages`: Anthropic's Messages API."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import FailFast, Field
from starlette.requests import Request
from starlette.responses import Response

from edgespec.server.api.messages_events import Blocks
from edgespec.server.api.messages_input import conversation, function
from edgespec.server.backend import Answer, Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import anthropic_body, api_error, not_supported
from edgespec.server.fields import Sampling
from edgespec.server.parts import objects
from edgespec.server.speech import Event, spoken
from edgespec.server.sse import EventStream, event, unless_disconnected
from edgespec.server.tools import count
from edgespec.server.usage import timings
from edgespec.text.thoughts import Thoughts
from edgespec.types import Completion

_NO_TOOLS = "Tools are not supported yet; leave tools out, or send tool_choice none."
_NO_FORMATS = "Only text is supported as an output format yet; ask for JSON in the prompt."
_PING = event("ping", {"type": "ping"})
_REASONS = {"length": "max_tokens", "context": "max_tokens"}


class MessagesBody(Sampling):
    """A request for the next message, or for the tokens of a conversation."""

    messages: Annotated[list[dict[str, Any]], FailFast(), Field(min_length=1)]
    system: str | list[Any] | None = None
    stream: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def template_options(self) -> dict[str, Any]:
        """Variables for the model's template."""
        found = dict(self.chat_template_kwargs or {})
        wish = (self.thinking or {}).get("type")
        if wish in ("disabled", "enabled"):  # "adaptive" leaves it to the model
            found.setdefault("enable_thinking", wish == "enabled")
        return found

    def chat(self) -> list[dict[str, Any]]:
        """The messages for the template. Raises ApiError."""
        return conversation(self.system, self.messages)

    def functions(self) -> list[dict[str, Any]]:
        """The tools for the template. Raises ApiError."""
        tools = objects(self.tools or [], "tools")
        return [function(tool, f"tools.{index}") for index, tool in enumerate(tools)]

    def check(self) -> None:
        """Raise ApiError for what cannot be honoured."""
        choice = self.tool_choice
        kind = choice.get("type") if isinstance(choice, dict) else choice
        if self.tools and kind != "none":
            raise not_supported(_NO_TOOLS, param="tools")
        if self.output_format or (self.output_config or {}).get("format"):
            raise not_supported(_NO_FORMATS, param="output_config.format")


async def create(request: Request) -> Response:
    """Answer, whole or as a stream."""
    body = await read(request, MessagesBody)
    body.check()
    backend = backend_of(request)
    reply = _Reply(backend, body, model_of(backend, body.model))
    await reply.prepare(client_of(request))
    if body.stream:
        heartbeat = backend.settings.heartbeat
        return EventStream(reply.events(), heartbeat=heartbeat, comment=_PING)
    return JsonResponse(await unless_disconnected(request, reply.whole()))


async def count_tokens(request: Request) -> Response:
    """How many tokens a conversation has, roughly where there are tools."""
    body = await read(request, MessagesBody)
    options, tools = body.template_options(), body.functions()
    tokens = await count(backend_of(request), body.chat(), options, tools)
    return JsonResponse({"input_tokens": tokens})


class _Reply:
    """One request at work."""

    _answer: Answer
    _thoughts: Thoughts

    def __init__(self, backend: Backend, body: MessagesBody, model: str) -> None:
        self._backend = backend
        self._body = body
        self._blocks = Blocks()
        self._message = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    async def prepare(self, client: str) -> None:
        """Raises what `Backend.prepare` does, and ApiError."""
        messages, template = self._body.chat(), self._body.template_options()
        asked = {**self._body.options(), "messages": messages, "template_options": template}
        self._answer = await self._backend.prepare(None, asked, client=client)
        self._thoughts = Thoughts(open=self._answer.opens_thought)

    async def whole(self) -> dict[str, Any]:
        """The message."""
        end: Event = {}
        async with aclosing(self._told()) as told:
            async for one in told:
                end = one if one["type"] == "message_delta" else end
        known = {name: end[name] for name in ("usage", "timings")}
        return {**self._message, "content": self._blocks.parts, **end["delta"], **known}

    async def events(self) -> AsyncIterator[bytes]:
        """The message as it comes."""
        try:
            async with aclosing(self._told()) as told:
                async for one in told:
                    yield event(one["type"], one)
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield event("error", anthropic_body(api_error(error)))

    async def _told(self) -> AsyncGenerator[Event, None]:
        yield self._start()
        async with aclosing(spoken(self._answer, self._thoughts)) as speech:
            async for said, chunk in speech:
                for one in self._blocks.add(said):
                    yield one
                if chunk.completion is not None:
                    cut = chunk.completion.finish_reason in _REASONS
                    for one in self._blocks.end(cut=cut):
                        yield one
                    yield _end(chunk.completion)
        yield {"type": "message_stop"}

    def _start(self) -> Event:
        # What of it is in memory already shows when its turn has come; the end tells.
        tokens = len(self._answer.generation.request.prompt)
        empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        message = {**self._message, **empty, "usage": _usage(tokens, 0, 0)}
        return {"type": "message_start", "message": message}


def _end(completion: Completion) -> Event:
    used = completion.usage
    reason = _REASONS.get(completion.finish_reason)
    stop = completion.stop if reason is None else None
    reason = reason or ("end_turn" if stop is None else "stop_sequence")
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": stop},
        "usage": _usage(used.prompt_tokens, used.cached_tokens, used.completion_tokens),
        "timings": timings(completion),
    }


def _usage(prompt: int, cached: int, answer: int) -> dict[str, int]:
    """In this API, what was in memory already is no part of the input."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer,
    }
