"""A machine of known speed for tests of the benchmark: the real engine on a model that costs
virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgespec.bench.records import ModelFile
from edgespec.bench.subject import Subject
from edgespec.bench.suite import Prompt, Suite
from edgespec.decoding.scheduler import Scheduler
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine, EngineInfo
from edgespec.policies import Policies
from edgespec.protocols import Drafter, Logits, More, Row
from edgespec.text.template import ChatTemplate
from edgespec.types import Draft, SamplingParams
from tests.fakes import FakeDrafter, FakeModel, FakeTokenizer, Table, hashed_logits
from tests.tiny_gguf import CHATML

V = FakeTokenizer.size
Cost = Callable[[int], float]
"""Seconds of a pass over n rows."""


class VirtualClock:
    """Time that passes only when work is done. noise: sigma of the logarithm of every piece of
    work; drift: how much slower the machine is after `horizon` seconds of work."""

    def __init__(self, noise: float = 0.0, drift: float = 0.0, horizon: float = 1.0) -> None:
        self.now = 0.0
        self._random = random.Random(7)
        self._noise = noise
        self._drift = drift
        self._horizon = horizon

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        slower = 1.0 + self._drift * self.now / self._horizon
        self.now += seconds * slower * math.exp(self._random.gauss(0.0, self._noise))


class TimedModel(FakeModel):
    """growth: how much dearer a pass gets with every token in memory, as a share."""

    def __init__(
        self, logits: Table, clock: VirtualClock, cost: Cost, growth: float = 0.0, **options: Any
    ) -> None:
        super().__init__(logits, V, **{"n_ctx": 2048, "max_sequences": 1, **options})
        self._clock = clock
        self._cost = cost
        self._growth = growth

    def decode(self, rows: Sequence[Row]) -> Logits:
        self._clock.work(self._cost(len(rows)) * (1.0 + self._growth * rows[0].position))
        return super().decode(rows)


class TimedDrafter(FakeDrafter):
    """Right where the position says so, at a price per token."""

    def __init__(self, name: str, table: Table, clock: VirtualClock, price: float) -> None:
        super().__init__(name, lambda tokens, params: self._answer(tokens))
        self._table = table
        self._clock = clock
        self._price = price

    def _answer(self, tokens: Sequence[int]) -> int:
        best = int(self._table(tokens).argmax())
        return best if right(len(tokens)) else (best + 1) % 256

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        drafts = super().propose(limits)
        self._clock.work(self._price * sum(map(len, drafts.values())))
        return drafts


def right(position: int) -> bool:
    """Where `TimedDrafter` guesses right: 7 of 10 tokens."""
    return position * 7 % 10 < 7


def letters(seed: int = 0) -> Table:
    """Letters only, so that no answer ends early."""
    table = hashed_logits(V, seed=seed, order=64)  # reaches back to where prompts differ

    def logits(tokens: Sequence[int]) -> Logits:
        row = np.full(V, -100.0, np.float32)
        row[97:123] = table(tokens)[97:123]
        return row

    return logits


class FakeAnswer(NamedTuple):
    tokens: tuple[int, ...]
    cached: int
    first_s: float
    total_s: float


class FakeNative:
    """llama.cpp's own loop, on the fake; `slower` times as slow as the engine."""

    def __init__(self, model: FakeModel, clock: VirtualClock, slower: float = 1.0) -> None:
        self._model = model
        self._clock = clock
        self._slower = slower
        self.forgot = 0

    def forget(self) -> None:
        self.forgot += 1

    def stop(self) -> None:
        self.forgot = -1

    def generate(self, prompt: Sequence[int], max_tokens: int) -> FakeAnswer:
        began = self._clock()
        self._model.drop(0)
        tokens = [self._decode(0, prompt)]
        first = self._clock()
        while len(tokens) < max_tokens and tokens[-1] < 256:
            tokens.append(self._decode(len(prompt) + len(tokens) - 1, tokens[-1:]))
        work = (self._clock() - first) * (self._slower - 1.0)
        self._clock.now += work
        return FakeAnswer(tuple(tokens), 0, first - began, self._clock() - began)

    def _decode(self, start: int, tokens: Sequence[int]) -> int:
        last = start + len(tokens) - 1
        rows = [Row(0, i, token, i == last) for i, token in enumerate(tokens, start)]
        return int(self._model.decode(rows)[-1].argmax())


def model_file(name: str) -> ModelFile:
    return ModelFile(
        name=name,
        size_bytes=1000,
        sha256="0" * 64,
        description="a fake",
        parameters=10,
        n_ctx_train=2048,
        vocabulary=V,
    )


def fake_subject(
    clock: VirtualClock,
    cost: Cost,
    *,
    table: Table | None = None,
    price: float = 0.0,
    draft: tuple[Table, Cost] | None = None,
    exact: frozenset[int] | None = None,
    auto_k: int = 3,
    slower_native: float = 1.0,
    target: FakeModel | None = None,
    **options: Any,
) -> Subject:
    """A subject whose passes cost `cost(n)`. With `draft`, the real draft-model drafter."""
    table = table or letters()
    model = target or TimedModel(table, clock, cost, **options)
    drafters: dict[str, Drafter] = {"n-gram": TimedDrafter("n-gram", table, clock, price)}
    small = TimedModel(draft[0], clock, draft[1], **options) if draft else None
    if small:
        drafters = {"model": ModelDrafter(small, V), **drafters}
    first = next(iter(drafters))
    policies = Policies(
        drafters=tuple(drafters), drafter=first, k=auto_k, widths=exact, clock=clock
    )
    engine = Engine(
        model=model,
        tokenizer=FakeTokenizer(),
        scheduler=Scheduler(model, drafters, policies.usual, clock),
        policies=policies,
        template=ChatTemplate(CHATML, bos="<s>", eos="</s>"),
        info=EngineInfo(
            target="fake",
            draft="fake draft" if small else "",
            drafter=first,
            drafters=tuple(drafters),
            num_draft_tokens=auto_k,
            n_ctx=model.n_ctx,
            threads=2,
            devices=("fake",),
            exact_widths=exact,
        ),
        close=lambda: None,
        clock=clock,
    )
    return Subject(
        engine=engine,
        tokenizer=FakeTokenizer(),
        target=model,
        draft=small,
        native=FakeNative(model, clock, slower_native),
        target_file=model_file("target.gguf"),
        draft_file=model_file("draft.gguf") if small else None,
        repacked=False,
        gpu_layers=None,
        exact="auto",
        system_info="none",
    )


def made_suite(count: int = 12, turns: int = 1, words: int = 4) -> Suite:
    """`count` short prompts in three categories."""
    prompts = tuple(
        Prompt(
            question_id=f"q-{i:02}",
            category=("code-edit", "reason", "chat")[i % 3],
            turns=tuple(f"question {i:02} turn {turn} " + "word " * words for turn in range(turns)),
        )
        for i in range(count)
    )
    return Suite(name="made", prompts=prompts, sha256="1" * 64, builtin=False)


GREEDY = SamplingParams(temperature=0.0, seed=0)
