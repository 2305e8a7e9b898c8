"""One target, one draft model, and generation under any policy on the same loaded weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgespec.catalog.hardware import physical_cores
from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.protocols import Drafter, Logits, Row
from edgespec.text.template import ChatTemplate
from edgespec.types import SamplingParams, Step


class ArgmaxDrafter(ModelDrafter):
    """A draft model that proposes its favourite token, as llama.cpp's does."""

    name = "argmax"

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        super().begin(sequence, tokens, replace(params, temperature=0.0))


class Recorder:
    """A target that keeps a copy of the last logits it gave."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.last: Logits = np.empty((0, 0), np.float32)

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def decode(self, rows: Sequence[Row]) -> Logits:
        logits = self._context.decode(rows)
        self.last = logits.copy()
        return logits


class Laboratory:
    """Loads once, generates often; every generation starts from empty memory."""

    def __init__(
        self,
        target: Path,
        draft: Path | None,
        *,
        repack: bool = True,
        mixed_cache: bool = False,
        n_ctx: int = 1024,
        threads: int | None = None,
    ) -> None:
        threads = threads or physical_cores()
        self.model = Model(target, repack=repack)
        self.context = Context(self.model, n_ctx=n_ctx, threads=threads, mixed_cache=mixed_cache)
        self.recorder = Recorder(self.context)
        self.draft_model = Model(draft) if draft else None
        self.draft_context = (
            Context(self.draft_model, n_ctx=n_ctx, threads=threads) if self.draft_model else None
        )
        vocabulary = self.model.vocabulary
        bos = vocabulary.name(vocabulary.bos)
        self._template = ChatTemplate(self.model.chat_template or "", bos=bos)

    def prompt(self, text: str) -> tuple[int, ...]:
        """The tokens of a one-message chat."""
        chat = self._template.render([{"role": "user", "content": text}])
        return tuple(self.model.vocabulary.tokenize(chat, add_special=False, parse_special=True))

    def generate(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        k: int,
        drafter: str = "",
        max_tokens: int,
        widths: frozenset[int] | None = None,
    ) -> list[Step]:
        """All Steps of one answer."""
        self.context.drop(0)
        scheduler = Scheduler(
            self.recorder,  # type: ignore[arg-type]
            {drafter: self._drafter(drafter)} if drafter else {},
            Fixed(k, drafter, widths),
            time.perf_counter,
        )
        ends = self.model.vocabulary.ends_generation
        scheduler.submit(
            Request(id=0, prompt=tuple(prompt), params=params, max_tokens=max_tokens, ends=ends)
        )
        steps: list[Step] = []
        while scheduler.busy:
            steps += scheduler.step()
        return steps

    def _drafter(self, name: str) -> Drafter:
        if name == "n-gram":
            return NgramDrafter()
        assert self.draft_context is not None, "needs a draft model"
        self.draft_context.drop(0)
        kind = ArgmaxDrafter if name == "argmax" else ModelDrafter
        return kind(self.draft_context, self.model.vocabulary.size)

    def close(self) -> None:
        for held in (self.draft_context, self.draft_model, self.context, self.model):
            if held is not None:
                held.close()


def tokens_of(steps: Sequence[Step]) -> list[int]:
    """What the steps emitted."""
    return [token for step in steps for token in step.tokens]
