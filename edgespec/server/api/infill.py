"""`/infill`: fill in the middle by llama.cpp's own API, for llama.vim and llama.vscode."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, FailFast, Field
from starlette.requests import Request
from starlette.responses import Response

from edgespec.server.backend import Backend
from edgespec.server.bodies import read
from edgespec.server.calls import backend_of, client_of, model_of
from edgespec.server.errors import prompt_in
from edgespec.server.filling import Filling
from edgespec.server.native import NativeAnswer, NativeBody, respond
from edgespec.server.prompts import limit_of
from edgespec.text.fim import ExtraFile, Gap, Room

_USUAL_ANSWER = 128  # tokens that editors ask for


class Extra(BaseModel):
    """A part of another file."""

    text: str = ""
    filename: str = ""


class InfillBody(NativeBody):
    """A request to fill the gap at the cursor. prompt: the line of the cursor, up to it."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[list[Extra], FailFast()] = Field(default_factory=list)
    prompt: str = ""

    def gap(self) -> Gap:
        """What is to be filled."""
        extra = [ExtraFile(one.text, one.filename) for one in self.input_extra]
        return Gap(self.input_prefix, self.input_suffix, self.prompt, extra)

    def room(self, backend: Backend) -> Room:
        """How long the prompt may become.

        A warm-up gets the prompt of the request that it prepares for.
        """
        limit = limit_of(backend, self.max_tokens)
        return Room(backend.engine.info.n_ctx, -1 if limit is None else limit or _USUAL_ANSWER)

    def request(self, choice: int) -> dict[str, Any]:
        """For `Engine.submit`."""
        found = super().request(choice)
        # llama.cpp's sampler of this name picks what is most likely, unless it is in doubt. The
        # first answer is the most likely one; others would be the same without a temperature.
        if self.temperature is None and "infill" in (self.samplers or ()) and choice == 0:
            found["temperature"] = 0.0
        return found

    @property
    def warms_up(self) -> bool:
        """Whether it only reads what later requests begin with."""
        return self.max_tokens == 0


async def infill(request: Request) -> Response:
    """Fill the gap at the cursor of an editor, as llama.cpp's server does.

    More than one answer (`n_cmpl`) comes as an array. `n_predict` 0 reads the other files only.
    """
    body = await read(request, InfillBody)
    backend = backend_of(request)
    model = model_of(backend, body.model)
    filling = Filling(backend, body.gap(), param="input_prefix")
    client = client_of(request)
    if body.warms_up:
        client += " warming up"  # or it would take the place of a request that matters
    with prompt_in("input_prefix"):
        await filling.read(body.room(backend))
        prepared = [
            # A second choice comes late, and must not take the place of a newer request.
            await filling.prepare(body.request(choice), client=client, replaceable=choice == 0)
            for choice in range(1 if body.warms_up else body.choices)
        ]
    answers = [
        NativeAnswer(
            backend,
            body,
            answer,
            index=index,
            model=model,
            ends=filling.ends,
            then=filling.suggested if index == 0 else None,
        )
        for index, answer in enumerate(prepared)
    ]
    return await respond(request, backend, body, answers, "input_prefix")
