"""`/v1/fim/completions`: fill in the middle by Mistral's API."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgespec.server.api.chat import StreamOptions
from edgespec.server.backend import Answer, Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse
from edgespec.server.errors import api_error, openai_body, prompt_in
from edgespec.server.fields import Sampling, known_as
from edgespec.server.filling import Filling
from edgespec.server.sse import DONE, EventStream, data, unless_disconnected
from edgespec.server.usage import finish_reason, timings, usage, without_prediction
from edgespec.text.fim import Gap
from edgespec.types import Completion


class FimBody(Sampling):
    """A request to fill the gap between prompt and suffix."""

    prompt: str
    suffix: str = ""
    seed: int | None = known_as("random_seed", "seed")
    stream: bool | None = None
    stream_options: StreamOptions | None = None


async def fim_completions(request: Request) -> Response:
    """Fill the gap between two texts; the answer has the form of a chat's."""
    body = await read(request, FimBody)
    backend = backend_of(request)
    work = _Fim(backend, body, model_of(backend, body.model))
    with prompt_in("prompt"):
        answers = await work.prepare(client_of(request))
    if body.stream:
        return EventStream(work.events(answers), heartbeat=backend.settings.heartbeat)
    return JsonResponse(await unless_disconnected(request, work.whole(answers)))


class _Fim:
    """One request at work."""

    def __init__(self, backend: Backend, body: FimBody, model: str) -> None:
        self._body = body
        self._filling = Filling(backend, Gap(body.prompt, body.suffix), param="suffix")
        self._frame = {
            "id": f"fimcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": backend.fingerprint,
        }

    async def prepare(self, client: str) -> list[Answer]:
        await self._filling.read()
        return [
            await self._filling.prepare(self._body.options(choice), client=client)
            for choice in range(self._body.n or 1)
        ]

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        completions = [await answer.completion() for answer in answers]
        self._filling.suggested(completions[0].text)
        return {
            **self._frame,
            "object": "chat.completion",
            "choices": [_choice(index, one) for index, one in enumerate(completions)],
            "usage": self._usage(completions),
            "timings": timings(completions[-1]),
        }

    async def events(self, answers: list[Answer]) -> AsyncIterator[bytes]:
        completions: list[Completion] = []
        try:
            for index, answer in enumerate(answers):
                yield self._event(index, {"role": "assistant", "content": ""})
                async with aclosing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        if chunk.text:
                            yield self._event(index, {"content": chunk.text})
                        if chunk.completion is not None:
                            completions.append(chunk.completion)
                            yield self._event(index, {}, chunk.completion)
            self._filling.suggested(completions[0].text)
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield data(openai_body(api_error(error, param="prompt")))
            return
        options = self._body.stream_options
        if options is not None and options.include_usage:
            yield data({**self._chunk([]), "usage": self._usage(completions)})
        yield DONE

    def _event(self, index: int, delta: dict[str, Any], end: Completion | None = None) -> bytes:
        reason = None if end is None else finish_reason(end)
        chunk = self._chunk([{"index": index, "delta": delta, "finish_reason": reason}])
        return data(chunk if end is None else {**chunk, "timings": timings(end)})

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._frame, "object": "chat.completion.chunk", "choices": choices}

    def _usage(self, completions: list[Completion]) -> dict[str, Any]:
        found = usage(completions)
        return found if self._body.prediction else without_prediction(found)


def _choice(index: int, completion: Completion) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": completion.text},
        "finish_reason": finish_reason(completion),
    }
