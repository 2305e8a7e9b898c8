"""Answers in the form of llama.cpp's own API, for /completion and /infill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import FailFast, Field
from starlette.requests import Request
from starlette.responses import Response

from edgespec.requests import MOST_LOGPROBS
from edgespec.server.backend import Answer, Backend
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import api_error, openai_body
from edgespec.server.fields import Sampling, known_as
from edgespec.server.lines import LineLimits
from edgespec.server.logprobs import chat_logprobs
from edgespec.server.settings import MOST_CHOICES
from edgespec.server.sse import EventStream, data, unless_disconnected
from edgespec.server.usage import timings
from edgespec.types import Chunk, Completion, Step

Record = dict[str, Any]


class NativeBody(Sampling):
    """What both kinds of requests have.

    n_indent, t_max_predict_ms: see LineLimits. response_fields: the only keys of the answer to
    send, as paths with slashes.
    """

    n: int | None = known_as("n_cmpl", "n")
    n_indent: int | None = None
    n_probs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    t_max_predict_ms: float | None = None
    response_fields: Annotated[list[str], FailFast()] = Field(default_factory=list)
    return_tokens: bool | None = None
    samplers: list[Any] | str | None = None
    stream: bool | None = None

    @property
    def choices(self) -> int:
        """How many answers; editors must not be refused for asking for more than there are."""
        return min(max(self.n or 1, 1), MOST_CHOICES)

    def request(self, choice: int) -> dict[str, Any]:
        """For `Engine.submit`."""
        return {**self.options(choice), "logprobs": self.n_probs or None}


class NativeAnswer:
    """One answer to such a request.

    ends: stop strings that the request does not know of. then: told the whole text.
    """

    def __init__(
        self,
        backend: Backend,
        body: NativeBody,
        answer: Answer,
        *,
        index: int,
        model: str,
        ends: Container[str] = (),
        then: Callable[[str], None] | None = None,
    ) -> None:
        self._backend = backend
        self._body = body
        self._answer = answer
        self._index = index
        self._model = model
        self._ends = ends
        self._then = then
        self._limits = LineLimits(body.n_indent or 0, (body.t_max_predict_ms or 0) / 1e3)
        self._predicted = 0

    async def whole(self) -> Record:
        """The record of all of it. Raises as `Answer.chunks`."""
        texts, tokens = [], []
        async with aclosing(self._run()) as parts:
            async for text, chunk in parts:
                texts.append(text)
                tokens += [token for step in chunk.steps for token in step.tokens]
                if chunk.completion is not None:
                    # Thousands of log-probabilities take long to write.
                    text = "".join(texts)
                    return await asyncio.to_thread(self._end, text, tokens, chunk.completion)
        raise AssertionError("the last chunk carries the completion")

    async def records(self) -> AsyncGenerator[Record, None]:
        """One for every part, then one without text for the whole. Raises as `Answer.chunks`."""
        async with aclosing(self._run()) as parts:
            async for text, chunk in parts:
                if text or (self._body.return_tokens and any(s.tokens for s in chunk.steps)):
                    yield self._part(text, chunk.steps)
                if chunk.completion is not None:
                    yield self._end("", [], chunk.completion)

    async def _run(self) -> AsyncGenerator[tuple[str, Chunk], None]:
        """The chunks, each with the text of it that is within the limits."""
        texts = []
        async with aclosing(self._answer.chunks()) as chunks:
            async for chunk in chunks:
                new = sum(len(step.tokens) for step in chunk.steps)
                self._predicted += new
                if new:
                    self._limits.start()
                text = self._limits.feed(chunk.text)
                if chunk.completion is not None:
                    text += self._limits.flush()
                elif self._limits.ended:
                    self._answer.generation.cancel()  # and read on: its last chunk comes soon
                texts.append(text)
                if chunk.completion is not None and self._then is not None:
                    self._then("".join(texts))
                yield text, chunk

    def _part(self, text: str, steps: Sequence[Step]) -> Record:
        tokens = [token for step in steps for token in step.tokens]
        found: Record = {
            "index": self._index,
            "content": text,
            "tokens": tokens if self._body.return_tokens else [],
            "stop": False,
            "id_slot": steps[0].sequence if steps else -1,
            "tokens_predicted": self._predicted,
            "tokens_evaluated": len(self._answer.generation.request.prompt),
        }
        return found | self._probabilities(steps)

    def _end(self, text: str, tokens: Sequence[int], completion: Completion) -> Record:
        usage, steps = completion.usage, completion.steps
        kind, word = self._stop(completion)
        found = {
            "index": self._index,
            "content": text,
            "tokens": tokens if self._body.return_tokens else [],
            "id_slot": steps[0].sequence if steps else -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": usage.completion_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "generation_settings": self._settings(),
            "has_new_line": self._limits.has_new_line,
            "truncated": completion.finish_reason == "context",
            "stop_type": kind,
            "stopping_word": word,
            # In memory; the last token of an answer never is.
            "tokens_cached": usage.prompt_tokens + max(0, usage.completion_tokens - 1),
            "timings": timings(completion),
        }
        if not self._body.stream:
            found |= self._probabilities(steps)
        return _picked(found, self._body.response_fields)

    def _stop(self, completion: Completion) -> tuple[str, str]:
        """Why it ended, in llama.cpp's words, and the stop string that did it."""
        if self._limits.ended or completion.finish_reason in ("length", "context"):
            return "limit", ""
        if completion.finish_reason != "stop":
            return "none", ""
        if completion.stop and completion.stop not in self._ends:
            return "word", completion.stop
        return "eos", ""

    def _settings(self) -> Record:
        params = self._answer.generation.request.params
        limit = self._body.max_tokens
        return {
            "n_ctx": self._backend.engine.info.n_ctx,
            "n_predict": -1 if limit is None else limit,
            "seed": params.seed,
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "min_p": params.min_p,
            "typical_p": params.typical_p,
            "repeat_last_n": params.penalty_last_n,
            "repeat_penalty": params.repeat_penalty,
            "presence_penalty": params.presence_penalty,
            "frequency_penalty": params.frequency_penalty,
            "stop": self._body.options().get("stop", []),
            "n_probs": self._body.n_probs or 0,
            "stream": bool(self._body.stream),
        }

    def _probabilities(self, steps: Sequence[Step]) -> Record:
        if not self._body.n_probs:
            return {}
        found = chat_logprobs(self._backend.engine, steps)["content"]
        return {"completion_probabilities": found}


async def respond(
    request: Request, backend: Backend, body: NativeBody, answers: list[NativeAnswer], param: str
) -> Response:
    """One after another: an object for one answer, an array for several, or a stream of all.

    param: the field with the prompt.
    """
    if body.stream:
        return EventStream(_events(answers, param), heartbeat=backend.settings.heartbeat)
    found = await unless_disconnected(request, _wholes(answers))
    return JsonResponse(found if len(found) > 1 else found[0])


async def _wholes(answers: list[NativeAnswer]) -> list[Record]:
    return [await answer.whole() for answer in answers]


async def _events(answers: list[NativeAnswer], param: str) -> AsyncIterator[bytes]:
    try:
        for answer in answers:
            async with aclosing(answer.records()) as records:
                async for record in records:
                    yield data(record)
    except Exception as error:  # noqa: BLE001  the client must hear of it
        yield data(openai_body(api_error(error, param=param)))


def _picked(record: Record, paths: Sequence[str]) -> Record:
    """What stands at the paths, under the paths themselves; the whole where there are none."""
    if not paths:
        return record
    found = {}
    for path in paths:
        value: Any = record
        for key in path.split("/"):
            value = value.get(key, _NOTHING) if isinstance(value, dict) else _NOTHING
        if value is not _NOTHING:
            found[path] = value
    return found


_NOTHING = object()
