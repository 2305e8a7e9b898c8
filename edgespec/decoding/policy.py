"""How much to draft and from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgespec.protocols import Drafter, Plan
from edgespec.types import NO_DRAFT, Step

# At a fixed k, copies from shorter matches cost more time than they save on a CPU.
_SHORTEST_MATCH = 6


class Fixed:
    """Always the same drafter and k; k = 0 is plain decoding.

    widths: the pass widths (k + 1) that may be used, None for all. In exact mode these are
    the widths measured to be bit-identical to plain decoding (DESIGN section 6).
    """

    def __init__(self, k: int, drafter: str, widths: frozenset[int] | None = None) -> None:
        self._drafter = drafter
        self._k = self._widest(k, widths)
        self._widths = widths
        self._reason = "plain" if k == 0 else f"fixed k={k}"
        if self._k < k:
            self._reason += f", cut to {self._k}: wider passes are not bit-identical here"

    def plan(
        self, room: Mapping[int, int], drafters: Mapping[str, Drafter], others: int
    ) -> Mapping[int, Plan]:
        limits = {sequence: self._limit(most) for sequence, most in room.items()}
        asked = {sequence: k for sequence, k in limits.items() if k > 0}
        drafts = drafters[self._drafter].propose(asked) if asked else {}
        plans = {}
        for sequence, most in room.items():
            k = limits[sequence]
            draft = drafts.get(sequence, NO_DRAFT)
            if 0 < draft.match_length < _SHORTEST_MATCH:
                draft = NO_DRAFT
            # A drafter may find less than it was asked for, which leaves another width.
            draft = draft.cut(self._widest(len(draft), self._widths))
            short = most < self._k
            reason = f"{self._reason}, room for {max(most, 0)}" if short else self._reason
            plans[sequence] = Plan(draft, k, reason)
        return plans

    def observe(self, steps: Sequence[Step]) -> None:
        """Nothing to learn."""

    def _limit(self, most: int) -> int:
        return self._k if most >= self._k else self._widest(max(most, 0), self._widths)

    @staticmethod
    def _widest(k: int, widths: frozenset[int] | None) -> int:
        while widths is not None and k > 0 and k + 1 not in widths:
            k -= 1
        return k
