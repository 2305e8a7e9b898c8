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
        seconds += target.at(step.rows)
        if step.draft_passes and draft is None:
            return None
        seconds += sum(draft.at(rows) for rows in step.draft_passes) if draft else 0.0
    return seconds
