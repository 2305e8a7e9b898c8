"""Runs a prompt in all modes back to back, so that every comparison is paired."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from edgespec.bench.answers import Answer, ask
from edgespec.bench.cells import Taken, cell_of
from edgespec.bench.divergence import Classifier
from edgespec.bench.modes import Mode
from edgespec.bench.records import BASELINE, Cell, Conditions, Skipped
from edgespec.bench.subject import Subject
from edgespec.bench.suite import Prompt
from edgespec.catalog.hardware import EnergyMeter, memory_in_use, moment
from edgespec.decoding.costs import CostCurve
from edgespec.errors import ContextFullError, EdgespecError
from edgespec.types import SamplingParams

WARM_UP_TOKENS = 32

Announce = Callable[[Prompt, Mode], None]
"""Called before a prompt is asked in a mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is the same for all prompts."""

    subject: Subject
    modes: tuple[Mode, ...]
    repetitions: int
    max_tokens: int
    params: SamplingParams
    cooldown_s: float
    target_curve: CostCurve
    draft_curve: CostCurve | None
    clock: Callable[[], float]
    sleep: Callable[[float], None] = time.sleep


def order(modes: Sequence[Mode], index: int, repetitions: int) -> list[tuple[Mode, int]]:
    """The modes for the index-th prompt with their repetition: A B C, then C B A, and so on.

    Going back the way it came cancels a drift that is linear in time. The start rotates and every
    other prompt goes backwards, so that no mode is always first even in a single repetition.
    """
    start = (index // 2) % len(modes)
    turn = [*modes[start:], *modes[:start]]
    if index % 2:
        turn.reverse()
    return [
        (mode, repetition)
        for repetition in range(repetitions)
        for mode in (turn[::-1] if repetition % 2 else turn)
    ]


def run_prompt(
    run: Run, prompt: Prompt, index: int, first_order: int, announce: Announce
) -> list[Cell] | Skipped:
    """All cells of one prompt. One that does not fit into the context is skipped in all modes."""
    meter = EnergyMeter()
    taken: list[Taken] = []
    for place, (mode, repetition) in enumerate(order(run.modes, index, run.repetitions)):
        announce(prompt, mode)
        if run.cooldown_s:
            run.sleep(run.cooldown_s)
        meter.joules()  # from here on
        answer = _ask(run, prompt, mode)
        if isinstance(answer, ContextFullError):
            return Skipped(
                question_id=prompt.question_id, category=prompt.category, reason=str(answer)
            )
        taken.append(
            Taken(
                prompt=prompt,
                mode=mode,
                repetition=repetition,
                order=first_order + place,
                answer=answer,
                energy_j=meter.joules(),
                rss_bytes=memory_in_use(),
                conditions=conditions(),
            )
        )
    baseline = _baseline(taken)
    classifier = Classifier(run.subject, run.params)
    return [
        cell_of(
            one,
            # llama.cpp's own loop computes in another context, and may round otherwise.
            divergence=None if one.mode.native else classifier.classify(baseline, one.answer),
            target=run.target_curve,
            draft=run.draft_curve,
        )
        for one in taken
    ]


def warm_up(run: Run, prompt: Prompt, announce: Announce) -> None:
    """Every mode once, not counted: caches, clocks and threads get going."""
    tokens = min(WARM_UP_TOKENS, run.max_tokens)
    with suppress(EdgespecError):  # it will be seen when it counts
        for mode in run.modes:
            announce(prompt, mode)
            ask(run.subject, prompt, mode, run.params, tokens, run.clock)


def conditions() -> Conditions:
    """How the machine is doing now."""
    return Conditions(**asdict(moment()))


def _ask(run: Run, prompt: Prompt, mode: Mode) -> Answer | EdgespecError:
    try:
        return ask(run.subject, prompt, mode, run.params, run.max_tokens, run.clock)
    except EdgespecError as error:
        return error


def _baseline(taken: Sequence[Taken]) -> Answer | None:
    for one in taken:
        if one.mode.name == BASELINE and isinstance(one.answer, Answer):
            return one.answer
    return None
