"""Trace time: what the measured cost curves say the same steps would take.

Wall clock on a shared or hot machine is noisy; the steps themselves are not. Adding up T(n) and
the draft's passes over the steps that were taken compares policies without that noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.decoding.costs import CostCurve
from edgespec.types import Step

MODEL = "model"  # the name of the draft-model drafter in Steps


def trace_seconds(
    steps: Sequence[Step], target: CostCurve, draft: CostCurve | None
) -> float | None:
    """Seconds of the decoding steps of one answer; sampling and lookups are not counted.

    The draft model first reads what it has not seen, the prompt included, and then passes once
    for every further token. None when it drafted but its curve is not known.
    """
    seconds = 0.0
    unread = 0
    for step in steps:
        if step.prefilled:
            unread += step.prefilled + len(step.tokens)
            continue
        seconds += target.at(step.rows)
        if step.drafter == MODEL and step.drafted:
            if draft is None:
                return None
            seconds += draft.at(unread) + (step.drafted - 1) * draft.at(1)
            # What it has read of its own draft stands if it was accepted; the last one it never
            # reads.
            unread = 1 + (step.accepted == step.drafted)
        else:
            unread += len(step.tokens)
    return seconds
