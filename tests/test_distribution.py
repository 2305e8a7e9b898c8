"""Lossless as a matter of statistics: counts of emitted tokens against exact probabilities.

An adversary picks the drafter, k and what is kept of a draft, and may look at everything the
draft says, token by token. Rejection sampling would not survive that (algorithms.md 1.4b);
coupled sampling must. The exact law is the chain's softmax after the last one or two tokens,
computed by the slow reference of test_sampling.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgespec.decoding import scheduler as scheduler_module
from edgespec.decoding.noise import gumbel
from edgespec.decoding.sampling import LogitRow, Sampler
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request
from edgespec.decoding.stats import collect
from edgespec.decoding.verify import Verdict, verify
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.protocols import Drafter, Logits, More
from edgespec.types import Draft, SamplingParams, Step
from tests.fakes import ChoosyPolicy, FakeDrafter, FakeModel, Table, Ticks, hashed_logits
from tests.test_sampling import slow_law

Floats = NDArray[np.float64]
Verify = Callable[[Sequence[int], Logits, Sampler, list[int], Callable[[int], bool]], Verdict]

SEQUENCES = 16
LENGTH = 500  # tokens of one answer
LARGEST = 6  # k

WARM = SamplingParams(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0)


@dataclass(frozen=True)
class World:
    """A vocabulary, a target and a draft model, and parameters under which the law of a token
    depends on the last `order` tokens only."""

    size: int
    order: int
    target: Table
    draft: Table
    filtered: SamplingParams


def world(size: int, order: int) -> World:
    target = hashed_logits(size, seed=4, order=order, scale=1.5)
    other = hashed_logits(size, seed=5, order=order, scale=0.8)
    filtered = SamplingParams(
        temperature=1.2,
        top_k=size * 3 // 4,
        typical_p=0.98,
        top_p=0.95,
        min_p=0.02,
        repeat_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        penalty_last_n=order,
        logit_bias={1: 0.7, size - 1: -0.5},
    )
    return World(size, order, target, lambda tokens: target(tokens) + other(tokens), filtered)


SMALL = world(8, 2)
LARGE = world(64, 1)


# --- drafters and the adversary ---------------------------------------------------------------


class Weighed(FakeDrafter):
    """A fake drafter whose confidence is the target's own probability: all there is to know."""

    def __init__(self, name: str, here: World, guess: Callable[..., int | None]) -> None:
        super().__init__(name, guess)
        self._here = here
        self._known: dict[tuple[int, ...], float] = {}

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        drafts = super().propose(limits)
        return {
            slot: replace(draft, confidence=self._weigh(self.tokens[slot], draft.tokens))
            for slot, draft in drafts.items()
        }

    def _weigh(self, context: Sequence[int], draft: Sequence[int]) -> tuple[float, ...]:
        order = self._here.order
        tokens = (*context[-order:], *draft)
        return tuple(self._share(tokens[i : i + order + 1]) for i in range(len(draft)))

    def _share(self, tokens: tuple[int, ...]) -> float:
        if tokens not in self._known:
            self._known[tokens] = softmax(self._here.target(tokens[:-1]), WARM)[tokens[-1]]
        return self._known[tokens]


def truth(here: World, tokens: list[int], params: SamplingParams) -> int:
    if params.top_k:
        return Sampler(params).sample(here.target(tokens), tokens)
    # The same without the sampler, whose time this test has to pay 200,000 times anyway.
    noise = gumbel(params.seed or 0, len(tokens), np.arange(here.size))
    return int((here.target(tokens).astype(np.float64) / params.temperature + noise).argmax())


def all_drafters(here: World) -> dict[str, Drafter]:
    known: dict[tuple[int | None, int, tuple[int, ...]], int] = {}

    def perfect(tokens: list[int], params: SamplingParams) -> int:
        key = (params.seed, len(tokens), tuple(tokens[-here.order :]))
        if key not in known:
            known[key] = truth(here, tokens, params)
        return known[key]

    def wrong(tokens: list[int], params: SamplingParams) -> int:
        return (perfect(tokens, params) + 1) % here.size

    def half(tokens: list[int], params: SamplingParams) -> int:
        return perfect(tokens, params) if len(tokens) % 3 else wrong(tokens, params)

    def arbitrary(tokens: list[int], params: SamplingParams) -> int:
        return hash(tuple(tokens[-3:])) % here.size

    small = FakeModel(here.draft, here.size, n_ctx=LENGTH + 8, max_sequences=SEQUENCES)
    return {
        "perfect": Weighed("perfect", here, perfect),
        "wrong": FakeDrafter("wrong", wrong),
        "half": Weighed("half", here, half),
        "random": Weighed("random", here, arbitrary),
        "silent": FakeDrafter("silent", lambda tokens, params: None),
        "n-gram": NgramDrafter(min_match=here.order),
        "model": ModelDrafter(small, here.size),
    }


class Adversary(ChoosyPolicy):
    """Chooses by what the last draft said and what became of it; trims by token and confidence."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        # The good ones more often: what is drafted right saves this test a pass.
        self._names = [*names, "perfect", "perfect", "perfect", "half"]
        self._random = random.Random(seed)
        self._confidence = 0.0
        self._accepted: dict[int, int] = {}
        self.dropped = 0

    def choose(self, slot: int) -> tuple[str, int]:
        k = self._random.randint(0, LARGEST)
        if self._random.random() < 0.5:
            # Long after an unlikely draft, short after a likely one, none after a success.
            k = round(LARGEST * (1 - self._confidence))
            k = 0 if self._accepted.get(slot, 0) > 2 else k
        return self._random.choice(self._names), k

    def trim(self, draft: Draft) -> Draft:
        gate = self._random.choice([lows, highs, small_ids, up_to_an_odd_one] + [everything] * 4)
        kept = draft.cut(gate(draft, self._random.random()))
        self.dropped += len(draft) - len(kept)
        self._confidence = draft.confidence[-1]
        return kept

    def observe(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._accepted[step.sequence] = step.accepted


def first(flags: Sequence[bool]) -> int:
    return next((i for i, flag in enumerate(flags) if flag), len(flags))


def lows(draft: Draft, level: float) -> int:
    return first([value < level for value in draft.confidence])


def highs(draft: Draft, level: float) -> int:
    return first([value > level for value in draft.confidence])


def small_ids(draft: Draft, level: float) -> int:
    return first([token < 4 for token in draft.tokens])


def up_to_an_odd_one(draft: Draft, level: float) -> int:
    return len(draft) - first([token % 2 == 1 for token in reversed(draft.tokens)])


def everything(draft: Draft, level: float) -> int:
    return len(draft)


class OneGate(ChoosyPolicy):
    """Always the draft model; drops tokens it was not sure of: harmless under coupling only."""

    def __init__(self, level: float) -> None:
        self._level = level

    def choose(self, slot: int) -> tuple[str, int]:
        return "model", 3

    def trim(self, draft: Draft) -> Draft:
        return draft.cut(lows(draft, self._level))


# --- running and counting ---------------------------------------------------------------------


@dataclass
class Counts:
    """How often each token followed each context, and the exact probabilities of it."""

    seen: Floats  # (contexts, size)
    law: Floats

    @property
    def total(self) -> int:
        return int(self.seen.sum())

    def z(self) -> float:
        """Pooled chi-square of all contexts, standardised with its exact variance."""
        excess = variance = 0.0
        for seen, law in zip(self.seen, self.law, strict=True):
            count = seen.sum()
            if count < 50:
                continue
            rare = law * count < 5
            cells = np.append(seen[~rare], seen[rare].sum())
            shares = np.append(law[~rare], law[rare].sum())
            if shares[-1] * count < 1:  # too little to be a cell of its own
                cells[-2:] = [0.0, cells[-2:].sum()]
                shares[-2:] = [0.0, shares[-2:].sum()]
            cells, shares = cells[shares > 0], shares[shares > 0]
            chi = float(((cells - count * shares) ** 2 / (count * shares)).sum())
            n = len(cells)
            excess += chi - (n - 1)
            variance += 2 * (n - 1) + (float((1 / shares).sum()) - n * n - 2 * n + 2) / count
        return excess / math.sqrt(variance)

    def distance(self) -> float:
        """Total variation from the law, over what chance alone would give on average."""
        counts = self.seen.sum(axis=1, keepdims=True)
        found = np.abs(self.seen - counts * self.law).sum()
        chance = np.sqrt(2 / math.pi * counts * self.law * (1 - self.law)).sum()
        return float(found / chance)

    def impossible(self) -> int:
        return int(self.seen[self.law == 0].sum())


def laws(here: World, params: SamplingParams) -> Floats:
    result = np.zeros((here.size**here.order, here.size))
    for context in range(len(result)):
        tokens = [context // here.size**i % here.size for i in reversed(range(here.order))]
        for token, share in slow_law(here.target(tokens), tokens, params).items():
            result[context, token] = share
    return result


def count(here: World, params: SamplingParams, answers: Sequence[Sequence[int]]) -> Counts:
    seen = np.zeros((here.size**here.order, here.size))
    for answer in answers:
        tokens = np.array(answer)
        context = np.zeros(len(tokens) - here.order, np.int64)
        for shift in range(here.order):
            context = context * here.size + tokens[shift : shift - here.order]
        np.add.at(seen, (context, tokens[here.order :]), 1)
    return Counts(seen, laws(here, params))


def answers_of(
    here: World,
    policy: Adversary | OneGate,
    every: Sequence[SamplingParams],
    drafters: Mapping[str, Drafter],
) -> tuple[list[list[int]], list[Step]]:
    """Prompt and answer for each of `every`, many at a time, and what happened."""
    target = FakeModel(here.target, here.size, n_ctx=LENGTH + 8, max_sequences=SEQUENCES)
    scheduler = Scheduler(target, drafters, policy, Ticks())
    answers = []
    for i, params in enumerate(every):
        prompt = (i % here.size, i // here.size % here.size)[: here.order]
        scheduler.submit(
            Request(id=i, prompt=prompt, params=params, max_tokens=LENGTH, ends=lambda token: False)
        )
        answers.append(list(prompt))
    steps = []
    while scheduler.busy:
        for step in scheduler.step():
            answers[step.request].extend(step.tokens)
            steps.append(step)
    return answers, steps


@pytest.mark.parametrize("here", [SMALL, LARGE], ids=["V=8", "V=64"])
def test_an_adversary_cannot_bend_the_distribution(here: World) -> None:
    """Catches any bias in what is emitted: noise that is not fresh for every position, a
    verification that looks at more than equality, rows or penalties off by one.

    False alarm: about 1e-5 for each z (a chi-square of 400 and more degrees of freedom), far
    less for the distance. The streams are fixed by their seeds, so it can only happen once.
    """
    drafters = all_drafters(here)
    policy = Adversary(list(drafters), seed=here.size)
    plain, filtered = 384, 16  # the whole chain is slow in Python
    kinds = [WARM] * plain + [here.filtered] * filtered
    every = [replace(params, seed=1000 + i) for i, params in enumerate(kinds)]
    answers, steps = answers_of(here, policy, every, drafters)

    groups = [count(here, WARM, answers[:plain]), count(here, here.filtered, answers[plain:])]
    assert sum(counts.total for counts in groups) >= 200_000
    for counts in groups:
        assert abs(counts.z()) < 4.5
        assert counts.distance() < 3.0
        assert counts.impossible() == 0

    # The adversary did all it could: every kind of draft was tried, kept and thrown away.
    stats = collect(steps)
    assert policy.dropped > 20_000
    assert set(stats.lengths) == set(range(LARGEST + 1))
    by_drafter = dict(stats.by_drafter)
    assert set(by_drafter) == {"perfect", "wrong", "half", "random", "n-gram", "model"}
    for name, (drafted, accepted) in by_drafter.items():
        assert drafted > 3_000
        assert {"perfect": drafted, "wrong": 0}.get(name, accepted) == accepted
        assert accepted > 20 or name == "wrong"


# --- verifications that are wrong, and must be found out -----------------------------------------


def fresh_after_the_draft(here: World) -> Verify:
    """Own noise for the token after a draft. Where a gate dropped a token that the shared noise
    had chosen, another one is drawn in its place, so gated tokens become rare (1.4b)."""

    def wrong(
        draft: Sequence[int],
        logits: Logits,
        sampler: Sampler,
        history: list[int],
        ends: Callable[[int], bool],
    ) -> Verdict:
        start = len(history)
        for token, row in zip(draft, logits, strict=False):
            history.append(sampler.sample(row, history))
            if history[-1] != token:
                return Verdict(history[start:], len(history) - start - 1, False)
        seed = (sampler.params.seed or 0) + 10**9
        history.append(Sampler(replace(sampler.params, seed=seed)).sample(logits[-1], history))
        return Verdict(history[start:], len(draft), False)

    return wrong


def ratio_with_shared_noise(here: World) -> Verify:
    """Accept with probability p/q, else draw from what is left: right with fresh randomness,
    biased with the noise that already chose the draft (1.4a)."""

    def wrong(
        draft: Sequence[int],
        logits: Logits,
        sampler: Sampler,
        history: list[int],
        ends: Callable[[int], bool],
    ) -> Verdict:
        start, params = len(history), sampler.params
        for i, token in enumerate(draft):
            p, q = softmax(logits[i], params), softmax(here.draft(history), params)
            noise = gumbel(params.seed or 0, len(history), np.arange(here.size))
            if np.exp(-np.exp(-noise[token])) < p[token] / q[token]:
                history.append(token)
                continue
            with np.errstate(divide="ignore"):
                history.append(int((np.log(np.maximum(p - q, 0.0)) + noise).argmax()))
            return Verdict(history[start:], i, False)
        history.append(sampler.sample(logits[-1], history))
        return Verdict(history[start:], len(draft), False)

    return wrong


def likely_enough(here: World) -> Verify:
    """Keep a draft token that the target finds likely enough ("typical acceptance")."""

    def wrong(
        draft: Sequence[int],
        logits: Logits,
        sampler: Sampler,
        history: list[int],
        ends: Callable[[int], bool],
    ) -> Verdict:
        start = len(history)
        for i, token in enumerate(draft):
            own = sampler.sample(logits[i], history)
            stands = softmax(logits[i], sampler.params)[token] > 2 / here.size
            history.append(token if stands else own)
            if history[-1] != token:
                return Verdict(history[start:], i, False)
        history.append(sampler.sample(logits[-1], history))
        return Verdict(history[start:], len(draft), False)

    return wrong


def right(here: World) -> Verify:
    return verify


def softmax(row: LogitRow, params: SamplingParams) -> Floats:
    weights: Floats = np.exp((row - row.max()).astype(np.float64) / params.temperature)
    weights /= weights.sum()
    return weights


@pytest.mark.parametrize(
    ("make", "here", "level", "requests", "flagged"),
    [
        (right, SMALL, 0.2, 12, False),
        (fresh_after_the_draft, SMALL, 0.0, 12, False),  # harmless without a gate
        (fresh_after_the_draft, SMALL, 0.2, 12, True),
        (ratio_with_shared_noise, SMALL, 0.2, 12, True),
        (likely_enough, SMALL, 0.2, 12, True),
        (fresh_after_the_draft, LARGE, 0.06, 20, True),
        (ratio_with_shared_noise, LARGE, 0.06, 20, True),
    ],
)
def test_a_wrong_verification_is_found_out(
    make: Callable[[World], Verify],
    here: World,
    level: float,
    requests: int,
    flagged: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards the guard: the same statistic, a twentieth of the tokens, one gate. The right one
    passes here too, so it is not the setting that is flagged. False alarm: 1e-5."""
    monkeypatch.setattr(scheduler_module, "verify", make(here))
    every = [replace(WARM, seed=i) for i in range(requests)]
    answers, _ = answers_of(here, OneGate(level), every, {"model": all_drafters(here)["model"]})
    z = count(here, WARM, answers).z()
    assert z > 10 if flagged else abs(z) < 4.5
