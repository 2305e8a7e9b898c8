"""Trace time: what the measured cost curves say the same steps would take.

Wall clock on a shared or hot machine is noisy; the steps themselves are not. Adding up T(n) and
the draft's passes over the steps that were taken compares policies without that noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.decoding.costs import CostCurve
from edgespec.types import Step


def trace_seconds(
    steps: Sequence[Step], target: CostCurve, draft: CostCurve | None
) -> float | None:
    """Seconds of the decoding steps of one answer; sampling and lookups are not counted.

    None when a draft model was at work but its curve is not known.
    """
    seconds = 0.0
    for step in steps:
        if step.prefilled:
            continue
        seconds += target.behind(step.position, step.rows)
        if step.draft_passes and draft is None:
            return None
        if draft is not None:
            seconds += sum(draft.behind(step.position, rows) for rows in step.draft_passes)
    return seconds


def native_seconds(prompts: Sequence[int], lengths: Sequence[int], target: CostCurve) -> float:
    """Seconds of a pass for every token after the first of each turn. prompts, lengths: tokens of
    each turn's prompt and answer."""
    return sum(
        target.behind(prompt + i, 1)
        for prompt, length in zip(prompts, lengths, strict=True)
        for i in range(length - 1)
    )
