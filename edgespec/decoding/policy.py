"""How much to draft and from whom."""

from __future__ import annotations

from collections.abc import Mapping

from edgespec.protocols import Choice
from edgespec.types import Draft, Step


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

    def choose(self, room: Mapping[int, int]) -> Mapping[int, Choice]:
        return {sequence: self._choice(most) for sequence, most in room.items()}

    def _choice(self, most: int) -> Choice:
        if most >= self._k:
            return Choice(self._drafter, self._k, self._reason)
        k = self._widest(max(most, 0), self._widths)
        return Choice(self._drafter, k, f"{self._reason}, room for {max(most, 0)}")

    def trim(self, draft: Draft) -> Draft:
        return draft.cut(self._widest(len(draft), self._widths))

    def observe(self, step: Step) -> None:
        """Nothing to learn."""

    @staticmethod
    def _widest(k: int, widths: frozenset[int] | None) -> int:
        while widths is not None and k > 0 and k + 1 not in widths:
            k -= 1
        return k
