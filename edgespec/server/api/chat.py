"""`/v1/chat/completions`: OpenAI's chat API, with the extras of llama.cpp's server."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, Field
from starlette.requests import Request
from starlette.responses import Response

from edgespec.requests import MOST_LOGPROBS
from edgespec.server.backend import Answer, Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import api_error, bad_request, not_supported, openai_body
from edgespec.server.fields import Sampling
from edgespec.server.logprobs import chat_logprobs
from edgespec.server.sse import DONE, EventStream, data, unless_disconnected
from edgespec.server.usage import finish_reason, timings, usage
from edgespec.text.thoughts import OPEN, Said, Thoughts
from edgespec.types import Chunk, Completion

_NO_TOOLS = "Tools are not supported yet; leave tools out, or send tool_choice none."
_NO_FORMATS = "Only text is supported as a response_format yet; ask for JSON in the prompt."


class StreamOptions(BaseModel):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None


class ChatBody(Sampling):
    """A request for an answer in a chat."""

    messages: Annotated[list[dict[str, Any]], FailFast(), Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    def template_options(self) -> dict[str, Any]:
        """Variables for the model's template."""
        found = dict(self.chat_template_kwargs or {})
        for name in ("add_generation_prompt", "continue_final_message", "reasoning_effort"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.reasoning_effort == "none":
            found.setdefault("enable_thinking", False)
        return found

    def check(self) -> None:
        """Raise ApiError for what cannot be honoured."""
        if self.tools and self.tool_choice != "none":
            raise not_supported(_NO_TOOLS, param="tools")
        if (self.response_format or {}).get("type", "text") != "text":
            raise not_supported(_NO_FORMATS, param="response_format")
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs: true.", param="top_logprobs")

    def request(self, choice: int) -> dict[str, Any]:
        """For `Engine.submit`."""
        return {
            **self.options(choice),
            "messages": self.messages,
            "template_options": self.template_options(),
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
        }


async def chat_completions(request: Request) -> Response:
    """Answer a chat, whole or as a stream."""
    body = await read(request, ChatBody)
    body.check()
    backend = backend_of(request)
    chat = _Chat(backend, body, model_of(backend, body.model))
    answers = await chat.prepare(client_of(request))
    if body.stream:
        return EventStream(chat.events(answers), heartbeat=backend.settings.heartbeat)
    return JsonResponse(await unless_disconnected(request, chat.whole(answers)))


async def input_tokens(request: Request) -> Response:
    """How many tokens a chat has."""
    body = await read(request, ChatBody)
    backend = backend_of(request)
    tokens = await backend.tokenize(None, body.messages, body.template_options())
    return JsonResponse({"object": "response.input_tokens", "input_tokens": len(tokens)})


class _Chat:
    """One request at work."""

    def __init__(self, backend: Backend, body: ChatBody, model: str) -> None:
        self._backend = backend
        self._body = body
        self._frame = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": backend.fingerprint,
        }

    async def prepare(self, client: str) -> list[Answer]:
        count = self._body.n or 1
        return [
            await self._backend.prepare(None, self._body.request(choice), client=client)
            for choice in range(count)
        ]

    def _thoughts(self) -> Thoughts:
        rendered = self._backend.engine.render(self._body.messages, **self._body.template_options())
        return Thoughts(open=rendered.rstrip().endswith(OPEN))

    # Whole.

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        completions = [await answer.completion() for answer in answers]
        return {
            **self._frame,
            "object": "chat.completion",
            "choices": [self._choice(i, one) for i, one in enumerate(completions)],
            "usage": usage(completions),
            "timings": timings(completions[-1]),
        }

    def _choice(self, index: int, completion: Completion) -> dict[str, Any]:
        thoughts = self._thoughts()
        first, last = thoughts.feed(completion.text), thoughts.flush()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": first.answer + last.answer,
            "refusal": None,
        }
        if thought := first.thought + last.thought:
            message["reasoning_content"] = thought
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(completion) if self._body.logprobs else None,
            "finish_reason": finish_reason(completion),
        }

    def _logprobs(self, part: Completion | Chunk) -> dict[str, Any]:
        return chat_logprobs(self._backend.engine, part.steps)

    # As a stream.

    async def events(self, answers: list[Answer]) -> AsyncIterator[bytes]:
        completions: list[Completion] = []
        try:
            for index, answer in enumerate(answers):
                yield self._event(index, {"role": "assistant", "content": ""})
                thoughts = self._thoughts()
                async with aclosing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        for event in self._deltas(index, chunk, thoughts):
                            yield event
                        if chunk.completion is not None:
                            completions.append(chunk.completion)
                            yield self._end(index, completions)
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield data(openai_body(api_error(error)))
            return
        options = self._body.stream_options
        if options is not None and options.include_usage:
            yield data({**self._chunk([]), "usage": usage(completions)})
        yield DONE

    def _deltas(self, index: int, chunk: Chunk, thoughts: Thoughts) -> Iterator[bytes]:
        said = thoughts.feed(chunk.text)
        if chunk.finish_reason is not None:
            rest = thoughts.flush()
            said = Said(said.thought + rest.thought, said.answer + rest.answer)
        logprobs = self._logprobs(chunk) if self._body.logprobs else None
        if said.thought:
            yield self._event(index, {"reasoning_content": said.thought})
        if said.answer or (logprobs and logprobs["content"]):
            yield self._event(index, {"content": said.answer}, logprobs=logprobs)

    def _end(self, index: int, completions: list[Completion]) -> bytes:
        chunk = self._chunk([self._delta(index, {}, finish_reason(completions[-1]))])
        return data({**chunk, "timings": timings(completions[-1])})

    def _event(
        self, index: int, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None
    ) -> bytes:
        return data(self._chunk([self._delta(index, delta, None, logprobs)]))

    @staticmethod
    def _delta(
        index: int,
        delta: dict[str, Any],
        reason: str | None,
        logprobs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._frame, "object": "chat.completion.chunk", "choices": choices}
