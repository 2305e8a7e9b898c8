"""`/api/chat` and `/api/generate`: Ollama's API, for clients that know no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import FailFast, Field
from starlette.requests import Request
from starlette.responses import Response

from edgespec.requests import Messages
from edgespec.server.backend import Answer, Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.encoding import JsonResponse, compact
from edgespec.server.errors import api_error, bad_request, not_supported, ollama_body, prompt_in
from edgespec.server.fields import Body, Sampling, known_as
from edgespec.server.filling import Filling
from edgespec.server.prompts import encoded, is_short
from edgespec.server.speech import spoken
from edgespec.server.sse import EventStream, unless_disconnected
from edgespec.server.usage import finish_reason
from edgespec.text.fim import Gap
from edgespec.text.thoughts import Said, Thoughts
from edgespec.types import Completion

_NDJSON = "application/x-ndjson"
_NO_TOOLS = "Tools are not supported yet; leave tools out."
_NO_FORMATS = "Only text is supported as a format yet; ask for JSON in the prompt."
_NO_TEMPLATES = "Templates of requests are not supported; send raw: true with the whole prompt."


class Options(Sampling):
    """How tokens are chosen, by Ollama's names."""

    max_tokens: int | None = known_as("num_predict")


class _Asked(Body):
    """What both kinds of requests have."""

    stream: bool = True
    format: Any = None
    options: Options | None = None
    think: bool | str | None = None

    def template_options(self) -> dict[str, Any]:
        """Variables for the model's template."""
        if self.think is None:
            return {}
        if isinstance(self.think, bool):
            return {"enable_thinking": self.think}
        return {"enable_thinking": self.think != "none", "reasoning_effort": self.think}

    def sampling(self) -> dict[str, Any]:
        """For `Engine.submit`. Raises ApiError."""
        return (self.options or Options()).options()

    def check(self) -> None:
        """Raise ApiError for what cannot be honoured."""
        if self.format not in (None, ""):
            raise not_supported(_NO_FORMATS, param="format")


class OllamaChatBody(_Asked):
    """A request for an answer in a chat."""

    messages: Annotated[list[dict[str, Any]], FailFast()] = Field(default_factory=list)
    tools: list[Any] | None = None

    def check(self) -> None:
        super().check()
        if self.tools:
            raise not_supported(_NO_TOOLS, param="tools")
        for index, message in enumerate(self.messages):
            _check_images(message.get("images"), f"messages.{index}.images")


class OllamaGenerateBody(_Asked):
    """A request to answer a prompt, to continue it (raw), or to fill the gap before a suffix."""

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    raw: bool = False
    images: Any = None

    def check(self) -> None:
        super().check()
        _check_images(self.images, "images")
        if self.template:
            raise not_supported(_NO_TEMPLATES, param="template")

    def messages(self) -> list[dict[str, Any]]:
        """The prompt as a chat."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.prompt}]


async def chat(request: Request) -> Response:
    """Answer a chat, line by line unless stream is false."""
    body = await read(request, OllamaChatBody)
    body.check()
    backend = backend_of(request)
    reply = _Reply(backend, name_of(backend, body.model), _message)
    if not body.messages:
        return JsonResponse(reply.loaded())
    await reply.chat(body, body.messages, client_of(request))
    return await _answered(request, reply, body)


async def generate(request: Request) -> Response:
    """Answer or continue a prompt, or fill in its middle, line by line unless stream is false."""
    body = await read(request, OllamaGenerateBody)
    body.check()
    backend = backend_of(request)
    reply = _Reply(backend, name_of(backend, body.model), _response)
    if not body.prompt and not body.suffix:
        return JsonResponse(reply.loaded())
    client = client_of(request)
    with prompt_in("prompt"):
        if body.suffix:
            await reply.fill_in(body, client)
        elif backend.engine.has_template and not body.raw:
            await reply.chat(body, body.messages(), client)
        elif body.system:
            why = "A raw prompt" if body.raw else "A model without a chat template"
            raise bad_request(f"{why} takes no system; put it into the prompt.", param="system")
        else:
            await reply.go_on(body, client)
    return await _answered(request, reply, body)


def name_of(backend: Backend, asked: str) -> str:
    """The name to answer with; a tag that says nothing may be left out. Raises as `model_of`."""
    bare = asked.removesuffix(":latest")
    model_of(backend, bare if bare == backend.settings.model else asked)
    return asked or backend.settings.model


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class _Thoughtless(Thoughts):
    """For texts that are continued: nothing in them is a thought."""

    def feed(self, text: str) -> Said:
        return Said("", text)

    def flush(self) -> Said:
        return Said("", "")


class _Reply:
    """One request at work. say: what was said, in the form of the endpoint."""

    _answer: Answer
    _thoughts: Thoughts

    def __init__(self, backend: Backend, model: str, say: Callable[[Said], dict[str, Any]]) -> None:
        self._backend = backend
        self._model = model
        self._say = say

    # Three ways to prepare. Each raises what `Backend.prepare` does.

    async def chat(self, body: _Asked, messages: Messages, client: str) -> None:
        template = body.template_options()
        asked = {**body.sampling(), "messages": messages, "template_options": template}
        self._answer = await self._backend.prepare(None, asked, client=client)
        self._thoughts = Thoughts(open=self._answer.opens_thought)

    async def go_on(self, body: OllamaGenerateBody, client: str) -> None:
        tokens = await encoded(self._backend, body.prompt)
        asked = body.sampling()
        short = is_short(self._backend, asked.get("max_tokens"))
        self._answer = await self._backend.prepare(tokens, asked, client=client, short=short)
        self._thoughts = _Thoughtless()

    async def fill_in(self, body: OllamaGenerateBody, client: str) -> None:
        filling = Filling(self._backend, Gap(body.prompt, body.suffix), param="suffix")
        await filling.read()
        self._answer = await filling.prepare(body.sampling(), client=client)
        self._thoughts = _Thoughtless()

    # The answer.

    def loaded(self) -> dict[str, Any]:
        """For a request without a prompt, by which clients have the model loaded."""
        return {**self._part(Said("", "")), "done": True, "done_reason": "load"}

    async def whole(self) -> dict[str, Any]:
        said: list[Said] = []
        end: dict[str, Any] = {}
        async with aclosing(spoken(self._answer, self._thoughts)) as parts:
            async for one, chunk in parts:
                said.append(one)
                if chunk.completion is not None:
                    end = _end(chunk.completion)
        thought, answer = ("".join(one) for one in zip(*said, strict=True))
        return {**self._part(Said(thought, answer)), **end}

    async def lines(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(spoken(self._answer, self._thoughts)) as parts:
                async for said, chunk in parts:
                    if said.thought or said.answer:
                        yield _line({**self._part(said), "done": False})
                    if chunk.completion is not None:
                        yield _line({**self._part(Said("", "")), **_end(chunk.completion)})
        except Exception as error:  # noqa: BLE001  the client must hear of it
            yield _line(ollama_body(api_error(error)))

    def _part(self, said: Said) -> dict[str, Any]:
        return {"model": self._model, "created_at": now(), **self._say(said)}


async def _answered(request: Request, reply: _Reply, body: _Asked) -> Response:
    if body.stream:
        return EventStream(reply.lines(), media_type=_NDJSON, comment=None)
    return JsonResponse(await unless_disconnected(request, reply.whole()))


def _message(said: Said) -> dict[str, Any]:
    thinking = {"thinking": said.thought} if said.thought else {}
    return {"message": {"role": "assistant", "content": said.answer, **thinking}}


def _response(said: Said) -> dict[str, Any]:
    return {"response": said.answer, **({"thinking": said.thought} if said.thought else {})}


def _end(completion: Completion) -> dict[str, Any]:
    """What the last line has besides text; times in nanoseconds."""
    usage, stats = completion.usage, completion.stats
    return {
        "done": True,
        "done_reason": finish_reason(completion),
        "total_duration": _ns(completion.total_s),
        "load_duration": 0,
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": _ns(stats.prefill_s),
        "eval_count": usage.completion_tokens,
        "eval_duration": _ns(stats.decode_s),
    }


def _ns(seconds: float) -> int:
    # Clients divide by it.
    return max(1, round(1e9 * seconds))


def _line(value: object) -> bytes:
    return compact(value) + b"\n"


def _check_images(images: object, where: str) -> None:
    if images:
        raise bad_request(f"{where}: this model reads only text.", param=where)
