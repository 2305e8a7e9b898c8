"""`/v1/chat/completions`: OpenAI's chat API, with the extras of llama.cpp's server."""

from __future__ import annotations

import asyncio
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
from edgespec.server.speech import spoken
from edgespec.server.sse import DONE, EventStream, data, unless_disconnected
from edgespec.server.usage import finish_reason, thought_tokens, timings, usage
from edgespec.text.thoughts import Said, Thoughts
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
    return await unless_disconnected(request, chat.whole(answers))


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
        """All choices. The first one's prompt is that of the others."""
        first = await self._backend.prepare(None, self._body.request(0), client=client)
        prompt = first.generation.request.prompt
        answers = [first]
        for choice in range(1, self._body.n or 1):
            asked = {**self._body.request(choice), "messages": None}
            answers.append(await self._backend.prepare(prompt, asked, client=client))
        return answers

    # Whole.

    async def whole(self, answers: list[Answer]) -> Response:
        completions = [await answer.completion() for answer in answers]
        # Thousands of log-probabilities take long to write.
        return await asyncio.to_thread(self._response, answers, completions)

    def _response(self, answers: list[Answer], completions: list[Completion]) -> Response:
        choices = [
            self._choice(index, one, Thoughts(open=answer.opens_thought))
            for index, (answer, one) in enumerate(zip(answers, completions, strict=True))
        ]
        thought = ["reasoning_content" in choice["message"] for choice in choices]
        return JsonResponse(
            {
                **self._frame,
                "object": "chat.completion",
                "choices": choices,
                "usage": self._usage(completions, thought),
                "timings": timings(completions[-1]),
            }
        )

    def _choice(self, index: int, completion: Completion, thoughts: Thoughts) -> dict[str, Any]:
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

    def _usage(self, completions: list[Completion], thought: list[bool]) -> dict[str, Any]:
        """thought: which of them began with a thought."""
        engine = self._backend.engine
        tokens = (
            thought_tokens(engine, one)
            for one, begins in zip(completions, thought, strict=True)
            if begins
        )
        return usage(completions, reasoning_tokens=sum(tokens))

    def _logprobs(self, part: Completion | Chunk) -> dict[str, Any]:
        return chat_logprobs(self._backend.engine, part.steps)

    # As a stream.

    async def events(self, answers: list[Answer]) -> AsyncIterator[bytes]:
        completions: list[Completion] = []
        thought = [False] * len(answers)
        try:
            for index, answer in enumerate(answers):
                yield self._event(index, {"role": "assistant", "content": ""})
                speech = spoken(answer, Thoughts(open=answer.opens_thought))
                async with aclosing(speech) as parts:
                    async for said, chunk in parts:
                        thought[index] |= bool(said.thought)
                        for event in self._deltas(index, said, chunk):
                            yield event
                        if chunk.completion is not None:
                            completions.append(chunk.completion)
                            yield self._end(index, completions)
            options = self._body.stream_options
            if options is not None and options.include_usage:
                used = await asyncio.to_thread(self._usage, completions, thought)
                yield data({**self._chunk([]), "usage": used})
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield data(openai_body(api_error(error)))
            return
        yield DONE

    def _deltas(self, index: int, said: Said, chunk: Chunk) -> Iterator[bytes]:
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
