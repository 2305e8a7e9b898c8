"""Makes the record of one answer: counts, seconds, trace time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from edgespec.bench.answers import Answer
from edgespec.bench.loops import loop_share
from edgespec.bench.modes import Mode
from edgespec.bench.records import Cell, Conditions, Divergence
from edgespec.bench.suite import Prompt
from edgespec.bench.trace import native_seconds, trace_seconds
from edgespec.decoding import stats
from edgespec.decoding.costs import CostCurve
from edgespec.errors import EdgespecError
from edgespec.types import Step

_ENOUGH_FOR_P95 = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One answer, or why there is none, and what was seen right after it."""

    prompt: Prompt
    mode: Mode
    repetition: int
    order: int
    answer: Answer | EdgespecError
    energy_j: float | None
    rss_bytes: int
    conditions: Conditions


def cell_of(
    taken: Taken, *, divergence: Divergence | None, target: CostCurve, draft: CostCurve | None
) -> Cell:
    """The record of one answer."""
    failed = isinstance(taken.answer, EdgespecError)
    answer = Answer() if isinstance(taken.answer, EdgespecError) else taken.answer
    return Cell(
        question_id=taken.prompt.question_id,
        category=taken.prompt.category,
        mode=taken.mode.name,
        repetition=taken.repetition,
        order=taken.order,
        turns=len(taken.prompt.turns),
        prompt_tokens=sum(map(len, answer.prompts)),
        cached_tokens=answer.cached,
        completion_tokens=len(answer.tokens),
        finish_reason=answer.finish_reason,
        ttft_s=answer.ttft_s,
        prefill_s=answer.prefill_s,
        decode_s=answer.e2e_s - answer.ttft_s,
        e2e_s=answer.e2e_s,
        token_sha256=hashlib.sha256(json.dumps(answer.tokens).encode()).hexdigest(),
        divergence=divergence,
        loop_share=loop_share(answer.tokens),
        rss_bytes=taken.rss_bytes,
        energy_j=None if failed else taken.energy_j,
        conditions=taken.conditions,
        error=str(taken.answer) if failed else None,
        **_from_steps(answer, taken.mode, target, draft),
    )


def _from_steps(
    answer: Answer, mode: Mode, target: CostCurve, draft: CostCurve | None
) -> dict[str, Any]:
    sums = stats.collect(answer.steps)
    decoding = [step for step in answer.steps if not step.prefilled]
    passes, trace_s = sums.steps, trace_seconds(answer.steps, target, draft)
    if mode.native:  # llama.cpp's own loop makes no Steps
        passes = len(answer.tokens) - len(answer.lengths)
        trace_s = native_seconds([len(p) for p in answer.prompts], answer.lengths, target)
    return {
        "itl_p50_s": _percentile(decoding, 50),
        "itl_p95_s": _percentile(decoding, 95),
        "steps": passes,
        "drafted": sums.drafted,
        "accepted": sums.accepted,
        "draft_s": sums.draft_s,
        "verify_s": sums.verify_s,
        "sample_s": sums.sample_s,
        "other_s": sums.other_s,
        "per_step_drafted": [step.drafted for step in decoding],
        "per_step_accepted": [step.accepted for step in decoding],
        "by_drafter": dict(sums.by_drafter),
        "trace_s": trace_s,
    }


def _percentile(steps: Sequence[Step], percent: int) -> float | None:
    """Of the seconds between tokens: those of a step come together, after the whole step."""
    gaps: list[float] = []
    for step in steps:
        seconds = step.draft_s + step.verify_s + step.sample_s + step.other_s
        gaps += [seconds] + [0.0] * (len(step.tokens) - 1)
    if percent == 50:
        return median(gaps) if gaps else None
    return quantiles(gaps, n=100)[percent - 1] if len(gaps) >= _ENOUGH_FOR_P95 else None
