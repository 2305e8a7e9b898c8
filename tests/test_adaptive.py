"""The adaptive policy on a machine of known cost and texts of known kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from edgespec.decoding.adaptive import Adaptive
from edgespec.decoding.costs import CostCurve, LiveCosts
from edgespec.decoding.knowledge import Knowledge
from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.protocols import Drafter, DraftPolicy, Logits, Row
from edgespec.types import SamplingParams, Step
from tests.fakes import FakeModel, Table

V = 300
GREEDY = SamplingParams(temperature=0.0)
PROMPT = 40
TARGET = {1: 1.0, 2: 1.25, 3: 1.45, 4: 1.6, 5: 2.1, 8: 2.8, 16: 4.6, 32: 8.6}
DRAFT = {1: 0.15, 2: 0.18, 32: 1.2, 64: 2.4}


def curve(seconds: Mapping[int, float]) -> CostCurve:
    return CostCurve(0, dict(seconds), {})


@dataclass
class Machine:
    """Time by the curves; `slower` from a moment on."""

    target: Mapping[int, float] = field(default_factory=lambda: TARGET)
    draft: Mapping[int, float] = field(default_factory=lambda: DRAFT)
    slower: Callable[[float], float] = lambda now: 1.0
    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds * self.slower(self.now)


class Timed(FakeModel):
    def __init__(
        self, machine: Machine, seconds: Mapping[int, float], table: Table, **options: int
    ):
        super().__init__(table, V, **{"n_ctx": 4096, **options})
        self._machine = machine
        self._curve = curve(seconds)

    def decode(self, rows: Sequence[Row]) -> Logits:
        self._machine.work(self._curve.at(len(rows)))
        return super().decode(rows)


def scripted(texts: Sequence[Sequence[int]], sure: float, right: Callable[[int], bool]) -> Table:
    """Continues the text whose number is the first token; where `right` says no, wrongly."""

    def logits(tokens: Sequence[int]) -> Logits:
        text = texts[tokens[0]]
        at = len(tokens)
        token = text[at] if at < len(text) else 0
        if not right(at):
            token = (token + 1) % V
        row = np.full(V, np.log((1.0 - sure) / (V - 1)), np.float32)
        row[token] = np.log(sure)
        return row

    return logits


def prose(length: int, seed: int) -> list[int]:
    """Tokens without order, frequent ones more often: short matches abound, and mislead."""
    draw = random.Random(seed)
    return [min(int(draw.paretovariate(0.7)), V - 1) for _ in range(length)]


def text_of(*pieces: Sequence[int], number: int = 0) -> list[int]:
    return [number, *(token for piece in pieces for token in piece)]


def always(at: int) -> bool:
    return True


@dataclass
class Run:
    seconds: float
    steps: list[Step]

    @property
    def decoding(self) -> list[Step]:
        return [step for step in self.steps if not step.prefilled]


def seconds_of(steps: Sequence[Step]) -> float:
    return sum(s.draft_s + s.verify_s + s.sample_s + s.other_s for s in steps)


def run(
    texts: Sequence[Sequence[int]],
    policy: Callable[[Machine], DraftPolicy],
    *,
    machine: Machine | None = None,
    right: Callable[[int], bool] | None = None,
    sure: float = 0.9,
) -> Run:
    """All texts at once, after their first 40 tokens; with a draft model if `right` is given."""
    machine = machine or Machine()
    count = len(texts)
    target = Timed(machine, machine.target, scripted(texts, 0.9, always), max_sequences=count)
    drafters: dict[str, Drafter] = {"n-gram": NgramDrafter()}
    if right is not None:
        table = scripted(texts, sure, right)
        small = Timed(machine, machine.draft, table, max_sequences=count)
        drafters["model"] = ModelDrafter(small, V)
    scheduler = Scheduler(target, drafters, policy(machine), machine)
    for number, text in enumerate(texts):
        prompt, most = tuple(text[:PROMPT]), len(text) - PROMPT
        ends: Callable[[int], bool] = lambda token: False  # noqa: E731
        scheduler.submit(
            Request(id=number, prompt=prompt, params=GREEDY, max_tokens=most, ends=ends)
        )
    steps: list[Step] = []
    while scheduler.busy:
        steps += scheduler.step()
    for number, text in enumerate(texts):
        emitted = [t for step in steps if step.request == number for t in step.tokens]
        assert emitted == list(text[PROMPT:])
    return Run(machine.now, steps)


def adaptive(widths: frozenset[int] | None = None, model: bool = True, only: str = ""):  # type: ignore[no-untyped-def]
    def make(machine: Machine) -> Adaptive:
        draft = LiveCosts(curve(machine.draft)) if model else None
        knowledge = Knowledge(LiveCosts(curve(machine.target)), draft)
        return Adaptive(knowledge, clock=machine, widths=widths, only=only)

    return make


def plain(machine: Machine) -> DraftPolicy:
    return Fixed(0, "")


# Never slower.


@pytest.mark.parametrize("seed", range(4))
def test_prose_without_a_draft_model_runs_at_plain_speed(seed: int) -> None:
    """Short matches abound and mislead: catches a policy that believes them."""
    text = text_of(prose(600, seed))
    assert run([text], adaptive(model=False)).seconds <= 1.02 * run([text], plain).seconds


@pytest.mark.parametrize("sure", [0.5, 0.9, 0.99])
def test_a_useless_draft_model_is_found_out(sure: float) -> None:
    """Sure of itself and never right: after twenty askings it is asked no more than probing
    allows."""
    text = text_of(prose(1500, 1))
    went = run([text], adaptive(), right=lambda at: False, sure=sure)
    asked = [i for i, step in enumerate(went.decoding) if step.draft_passes]
    assert sum(i > 100 for i in asked) <= len(went.decoding) // 20
    assert went.seconds <= 1.02 * run([text], plain).seconds


def test_a_draft_model_that_becomes_useless_is_dropped_within_twenty_steps() -> None:
    text = text_of(prose(1600, 2))
    went = run([text], adaptive(), right=lambda at: at < 800)
    late = [step for step in went.decoding if step.position > 800]
    wrong = [step for step in late if step.drafter == "model"]
    assert sum(step.drafted for step in wrong[:1]) > 0  # it was in use until then
    assert len(wrong) <= 20 + len(late) // 50
    assert sum(step.drafter == "model" for step in late[20:100]) <= 10
    assert seconds_of(late) <= 1.06 * sum(len(step.tokens) for step in late)
    assert went.seconds < 0.9 * run([text], plain).seconds


def test_a_dear_draft_model_is_only_probed() -> None:
    """Right most of the time, but as slow as the target."""
    machine = Machine(draft={1: 0.9, 2: 1.0, 32: 6.0})
    text = text_of(prose(1500, 3))
    went = run([text], adaptive(), machine=machine, right=lambda at: at % 10 < 7)
    assert went.seconds <= 1.02 * run([text], plain).seconds
    assert sum(step.draft_s for step in went.decoding) <= 0.03 * went.seconds


# As fast as can be.


def best_fixed(texts: list[list[int]], right: Callable[[int], bool] | None) -> float:
    """Of plain decoding and every fixed k of both drafters."""
    seconds = [run(texts, plain, right=right).seconds]
    for k in (1, 2, 3, 4, 7):
        for name in ("n-gram", *(("model",) if right else ())):
            made: Callable[[Machine], DraftPolicy] = lambda m, k=k, name=name: Fixed(k, name)  # type: ignore[misc]  # noqa: E731
            seconds.append(run(texts, made, right=right).seconds)
    return min(seconds)


def mixed(seed: int, number: int = 0, length: int = 200) -> list[int]:
    """Prose, then most of it again with changes, then prose."""
    first = prose(length, seed)
    again = [token if i % 17 else V - 2 for i, token in enumerate(first[20 : length - 20])]
    return text_of(first, again, prose(3 * length // 4, seed + 100), number=number)


@pytest.mark.parametrize("seed", range(3))
def test_copying_with_a_draft_model_beats_every_fixed_choice(seed: int) -> None:
    draw = random.Random(seed)
    good = [draw.random() < 0.75 for _ in range(2000)]

    def right(at: int) -> bool:
        return good[at]

    text = mixed(seed)
    assert run([text], adaptive(), right=right).seconds <= best_fixed([text], right)


def test_prose_to_copy_to_prose_is_followed_within_twenty_steps() -> None:
    first = prose(240, 5)
    text = text_of(first, first[:200], prose(200, 6))
    went = run([text], adaptive(model=False))
    copying = [step for step in went.decoding if 241 <= step.position < 441]
    assert len(copying) < 40  # for 200 tokens
    assert sum(len(step.tokens) for step in copying[10:]) > 8 * len(copying[10:])
    after = [step for step in went.decoding if step.position >= 442]
    assert seconds_of(after[20:]) <= 1.03 * sum(len(step.tokens) for step in after[20:])
    assert went.seconds < run([text], plain).seconds


@pytest.mark.parametrize("load", [1, 2, 3, 4])
def test_with_company_the_total_is_no_worse_than_any_fixed_choice(load: int) -> None:
    """The pass is shared, so k has to shrink with the load: catches lengths chosen as if each
    sequence were alone."""
    draw = random.Random(9)
    good = [draw.random() < 0.7 for _ in range(2000)]

    def right(at: int) -> bool:
        return good[at]

    texts = [mixed(number, number, length=400) for number in range(load)]
    assert run(texts, adaptive(), right=right).seconds <= 1.01 * best_fixed(texts, right)


# The machine changes.


def test_throttling_is_followed_and_costs_nothing() -> None:
    """All passes take twice as long from some moment on."""
    text = text_of(prose(300, 7), prose(300, 7)[:250], prose(300, 8))

    def slower(now: float) -> float:
        return 2.0 if now > 250.0 else 1.0

    made: list[Adaptive] = []

    def policy(machine: Machine) -> Adaptive:
        made.append(adaptive(model=False)(machine))
        return made[-1]

    went = run([text], policy, machine=Machine(slower=slower))
    assert went.seconds <= 1.02 * run([text], plain, machine=Machine(slower=slower)).seconds
    assert made[0]._known.target.at(1, 0) == pytest.approx(2.0, rel=0.1)


def test_a_mismeasured_curve_is_corrected() -> None:
    """Two rows were thought to cost little more than one, but cost nearly two."""
    machine = Machine(target={1: 1.0, 2: 1.95, 3: 2.9, 4: 3.8, 32: 30.0})

    def policy(machine: Machine) -> Adaptive:
        return Adaptive(Knowledge(LiveCosts(curve(TARGET))), clock=machine)

    text = text_of(prose(1200, 4))
    assert (
        run([text], policy, machine=machine).seconds
        <= 1.02 * run([text], plain, machine=machine).seconds
    )


# What it may and may not do.


@pytest.mark.parametrize("widths", [frozenset({1}), frozenset({1, 2, 3}), frozenset({1, 2, 5, 9})])
def test_exact_mode_uses_identical_widths_only(widths: frozenset[int]) -> None:
    text = mixed(1)
    went = run([text], adaptive(widths), right=always)
    assert {step.rows for step in went.decoding} <= widths
    assert len({step.rows for step in went.decoding}) > len(widths) // 2


@pytest.mark.parametrize("only", ["n-gram", "model"])
def test_one_drafter_can_be_asked_for(only: str) -> None:
    went = run([mixed(2)], adaptive(only=only), right=always)
    assert {step.drafter for step in went.decoding} <= {only, ""}
    assert any(step.drafter == only for step in went.decoding)


def test_a_model_hands_over_to_a_copy() -> None:
    """Both together go further than either: the sources of the tokens say so."""
    went = run([mixed(3)], adaptive(), right=lambda at: at % 5 != 0)
    joined = [step for step in went.decoding if step.drafter == "model+n-gram"]
    assert joined
    for step in joined:
        sources = [source for source in step.sources if source != "target"]
        assert sources == sorted(sources)  # first the model, then the copy


def test_every_step_says_why() -> None:
    went = run([mixed(4)], adaptive(), right=lambda at: at % 3 != 0)
    for step in went.decoding:
        assert step.reason.startswith(f"{step.k} token" if step.k else "plain: ")
        assert step.k == step.drafted


def test_what_was_learned_is_kept() -> None:
    """A second request profits from the first: catches knowledge that dies with a sequence."""
    machine = Machine()
    knowledge = Knowledge(LiveCosts(curve(TARGET)), LiveCosts(curve(DRAFT)))

    def policy(machine: Machine) -> Adaptive:
        return Adaptive(knowledge, clock=machine)

    text = text_of(prose(700, 1))
    first = run([text], policy, machine=machine, right=lambda at: False, sure=0.99)
    again = run([text], policy, machine=Machine(), right=lambda at: False, sure=0.99)
    assert sum(step.draft_s for step in again.decoding) <= 0.02 * again.seconds
    assert again.seconds < first.seconds
