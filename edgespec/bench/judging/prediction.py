"""How fast every fixed k would be, from measured costs and measured acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgespec.bench.judging import lookup
from edgespec.bench.modes import AUTO
from edgespec.bench.records import Result, Summary

_DRAFT_MODEL = "model"  # the drafter whose tokens cost passes; the others copy for next to nothing


@dataclass(frozen=True, slots=True)
class Prediction:
    """Tokens per second by k, from 0 (plain), in steps for which `drafter` has a draft.

    mode: where the acceptance was measured.
    """

    drafter: str
    mode: str
    speeds: tuple[float, ...]

    @property
    def best(self) -> int:
        """The fastest k."""
        return max(range(len(self.speeds)), key=lambda k: self.speeds[k])


def predictions(result: Result) -> list[Prediction]:
    """One for each drafter that had a mode to itself: of the longest k, at best a fixed one.

    A policy that chooses k drafts where it expects to be accepted, so that its acceptance says
    little about drafting always; it is used only where there is no fixed k.
    """
    chosen: dict[str, Summary] = {}
    for summary in lookup.drafting(result):
        drafters = [name for name, (drafted, _) in summary.by_drafter.items() if drafted > 0]
        if len(drafters) == 1:
            before = chosen.get(drafters[0])
            if before is None or _rank(summary) > _rank(before):
                chosen[drafters[0]] = summary
    made = (
        Prediction(drafter, summary.mode, speeds(result, drafter, summary.acceptance_by_position))
        for drafter, summary in chosen.items()
    )
    return [one for one in made if len(one.speeds) > 1]


def speeds(result: Result, drafter: str, acceptance: Sequence[float | None]) -> tuple[float, ...]:
    """Expected tokens / (T(k + 1) + k passes of the draft model), for k from 0.

    Empty where costs are unknown.
    """
    draft_s = 0.0
    if drafter == _DRAFT_MODEL:
        draft_s = lookup.seconds_at(result.draft_curve, 1) or 0.0
    found = []
    tokens, reached = 1.0, 1.0
    for k, accepted in enumerate([1.0, *acceptance]):
        target_s = lookup.seconds_at(result.target_curve, k + 1)
        if accepted is None or not target_s or target_s <= 0:
            break
        if k:
            reached *= accepted
            tokens += reached
        found.append(tokens / (target_s + k * draft_s))
    return tuple(found)


def _rank(summary: Summary) -> tuple[bool, int]:
    fixed = not summary.mode.startswith(AUTO)
    return fixed, len(summary.acceptance_by_position)
