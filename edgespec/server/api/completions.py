"""`/v1/completions`: OpenAI's older API, which continues a text or fills in its middle."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import Response

from edgespec.requests import MOST_LOGPROBS
from edgespec.server.api.chat import StreamOptions
from edgespec.server.backend import Answer, Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import api_error, bad_request, openai_body, prompt_in
from edgespec.server.fields import Sampling
from edgespec.server.filling import Filling
from edgespec.server.logprobs import TextLogprobs
from edgespec.server.prompts import Mixed, Prompts, encoded, is_short, one, several
from edgespec.server.sse import DONE, EventStream, data, unless_disconnected
from edgespec.server.usage import (
    finish_reason,
    timings,
    usage_of_prompts,
    without_prediction,
)
from edgespec.text.fim import Gap
from edgespec.types import Completion, Step


class CompletionBody(Sampling):
    """A request to continue texts, or to fill the gap between each and a suffix."""

    prompt: Prompts
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @field_validator("logprobs", mode="before")
    @classmethod
    def _none_for_false(cls, value: object) -> object:
        # Some clients send what the chat API takes; 0 would mean something else.
        return None if value is False else value

    def prompts(self) -> list[Mixed]:
        """At least one. Raises ApiError."""
        return several(self.prompt, "prompt") or [one(self.prompt, "prompt")]

    def check(self) -> None:
        """Raise ApiError for what makes no sense together."""
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise bad_request("best_of must not be less than n.", param="best_of")
        if self.suffix and self.echo and self.logprobs is not None:
            raise bad_request(
                "With a suffix, echo and logprobs do not go together: leave one of them out.",
                param="echo",
            )

    def request(self, choice: int) -> dict[str, Any]:
        """For `Engine.submit`."""
        return {
            **self.options(choice),
            "logprobs": self.logprobs,
            "prompt_logprobs": bool(self.echo) and self.logprobs is not None,
        }


async def completions(request: Request) -> Response:
    """Continue texts, or fill in their middle, whole or as a stream.

    Every prompt gets `n` choices; those for the first prompt come first.
    """
    body = await read(request, CompletionBody)
    body.check()
    backend = backend_of(request)
    work = _Completions(backend, body, model_of(backend, body.model))
    with prompt_in("prompt"):
        await work.prepare(client_of(request))
    if body.stream:
        return EventStream(work.events(), heartbeat=backend.settings.heartbeat)
    return JsonResponse(await unless_disconnected(request, work.whole()))


class _Choice:
    """One answer: its text, with the prompt before it if that is to be echoed."""

    def __init__(
        self,
        index: int,
        answer: Answer,
        echo: str,
        logprobs: TextLogprobs | None,
        filling: Filling | None,
    ) -> None:
        self._index = index
        self._answer = answer
        self._echo = echo
        self._logprobs = logprobs
        self._filling = filling

    async def whole(self) -> tuple[dict[str, Any], Completion]:
        completion = await self._answer.completion()
        # Thousands of log-probabilities take long to write.
        part = await asyncio.to_thread(self._part, completion.text, completion.steps, completion)
        return part, completion

    async def parts(self) -> AsyncGenerator[tuple[dict[str, Any], Completion | None], None]:
        """As they come; the last one brings the completion."""
        async with aclosing(self._answer.chunks()) as chunks:
            async for chunk in chunks:
                part = self._part(chunk.text, chunk.steps, None)
                if part["text"] or (part["logprobs"] and part["logprobs"]["tokens"]):
                    yield part, None
                if chunk.completion is not None:
                    yield self._part("", (), chunk.completion), chunk.completion

    def _part(self, text: str, steps: Sequence[Step], end: Completion | None) -> dict[str, Any]:
        if end is not None and self._filling is not None:
            self._filling.suggested(end.text)
        text, self._echo = self._echo + text, ""
        return {
            "text": text,
            "index": self._index,
            "logprobs": self._logprobs.take(steps) if self._logprobs and steps else None,
            "finish_reason": None if end is None else finish_reason(end),
        }


class _Completions:
    """One request at work."""

    def __init__(self, backend: Backend, body: CompletionBody, model: str) -> None:
        self._backend = backend
        self._body = body
        self._choices: list[list[_Choice]] = []  # by prompt
        self._frame = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": backend.fingerprint,
        }

    async def prepare(self, client: str) -> None:
        for prompt in self._body.prompts():
            if self._body.suffix:
                await self._fill_in(prompt, self._body.suffix, client)
            else:
                await self._continue(prompt, client)

    async def _continue(self, prompt: Mixed, client: str) -> None:
        backend, body = self._backend, self._body
        tokens = await encoded(backend, prompt)
        short = is_short(backend, body.max_tokens)
        answers = [
            await backend.prepare(tokens, body.request(choice), client=client, short=short)
            for choice in range(body.n or 1)
        ]
        text = prompt if isinstance(prompt, str) else ""
        if body.echo and not text:
            text = await asyncio.to_thread(backend.engine.detokenize, tokens)
        self._add(answers, text, tokens)

    async def _fill_in(self, prompt: Mixed, suffix: str, client: str) -> None:
        if not isinstance(prompt, str):
            raise bad_request("With a suffix, a prompt must be a string.", param="prompt")
        filling = Filling(self._backend, Gap(prompt, suffix), param="suffix")
        await filling.read()
        answers = [
            await filling.prepare(self._body.request(choice), client=client)
            for choice in range(self._body.n or 1)
        ]
        self._add(answers, prompt, (), filling)

    def _add(
        self,
        answers: Sequence[Answer],
        text: str,
        tokens: Sequence[int],
        filling: Filling | None = None,
    ) -> None:
        """Choices for one prompt."""
        if not self._body.echo:
            text, tokens = "", ()
        choices: list[_Choice] = []
        for index, answer in enumerate(answers, sum(map(len, self._choices))):
            logprobs = None
            if self._body.logprobs is not None:
                logprobs = TextLogprobs(self._backend.engine, text, tokens)
            choices.append(_Choice(index, answer, text, logprobs, None if choices else filling))
        self._choices.append(choices)

    async def whole(self) -> dict[str, Any]:
        found = await self._all()
        completions = [[completion for _, completion in choices] for choices in found]
        return {
            **self._frame,
            "choices": [part for choices in found for part, _ in choices],
            "usage": self._usage(completions),
            "timings": timings(completions[-1][-1]),
        }

    async def _all(self) -> list[list[tuple[dict[str, Any], Completion]]]:
        """Several prompts at a time, but the choices for one after another: they share it."""
        places = asyncio.Semaphore(self._backend.settings.parallel)

        async def of_prompt(choices: list[_Choice]) -> list[tuple[dict[str, Any], Completion]]:
            async with places:
                return [await choice.whole() for choice in choices]

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(of_prompt(choices)) for choices in self._choices]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def events(self) -> AsyncIterator[bytes]:
        completions: list[list[Completion]] = []
        try:
            for choices in self._choices:
                completions.append([])
                for choice in choices:
                    async with aclosing(choice.parts()) as parts:
                        async for part, completion in parts:
                            yield self._event(part, completion)
                            if completion is not None:
                                completions[-1].append(completion)
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield data(openai_body(api_error(error, param="prompt")))
            return
        options = self._body.stream_options
        if options is not None and options.include_usage:
            yield data({**self._frame, "choices": [], "usage": self._usage(completions)})
        yield DONE

    def _event(self, part: dict[str, Any], completion: Completion | None) -> bytes:
        chunk = {**self._frame, "choices": [part]}
        return data(chunk if completion is None else {**chunk, "timings": timings(completion)})

    def _usage(self, completions: list[list[Completion]]) -> dict[str, Any]:
        found = usage_of_prompts(completions)
        return found if self._body.prediction else without_prediction(found)
