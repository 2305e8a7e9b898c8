"""What drafts are worth in the pass at hand.

A draft of v tokens is expected to add S_1 + ... + S_v tokens, S_i being the chance that its
first i tokens all stand, and makes the pass longer. A second is worth the tokens that are
usually made in one, so what maximises

    S_1 + ... + S_v - rate * (T(n + v) - T(n))

maximises tokens per second in the long run (renewal reward, Dinkelbach; DESIGN section 5). T has
steps, so every v is looked at, not only the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from edgespec.decoding.costs import LiveCosts

SOBER = 0.97
"""What an expected token counts for: of several uncertain gains, the largest is overestimated."""


class Worth:
    """Gains over no draft at all, in tokens.

    rate: tokens a second. width: rows of the pass without drafts. depth: tokens before each row.
    widths: the pass widths that may be used, None for all. sharers: sequences that may draft in
    this pass. last_width, rebuild: a pass that is
    not as wide as the one before costs `rebuild` seconds more.
    """

    def __init__(
        self,
        costs: LiveCosts,
        rate: float,
        *,
        width: int,
        depth: float,
        widths: frozenset[int] | None = None,
        sharers: int = 1,
        last_width: int = 0,
        rebuild: float = 0.0,
    ) -> None:
        self._costs = costs
        self.rate = rate
        self._width = width
        self._depth = depth
        # A pass that is too wide without any draft is not bit-identical anyway.
        self._widths = widths if widths and width in widths else None
        self._last_width = last_width
        self._rebuild = rebuild
        self._sharers = sharers
        self._prices = [0.0]  # by tokens drafted

    def price(self, drafted: int) -> float:
        """What a pass with so many drafted tokens costs beyond one with none, in tokens."""
        while len(self._prices) <= drafted:
            width = self._width + len(self._prices)
            self._prices.append(self.rate * (self._seconds(width) - self._seconds(self._width)))
        return self._prices[drafted]

    def price_each(self, drafted: int) -> float:
        """What one sequence pays for so many, when all that may draft have as many."""
        return self.price(drafted * self._sharers) / self._sharers

    def best(self, survival: Iterable[float]) -> tuple[int, float]:
        """The best length of one sequence's draft, when the others have drafts like it, and what
        it gains; (0, 0.0) when none pays."""
        best, most = 0, 0.0
        for length, tokens in enumerate(accumulate(survival), 1):
            if self._allowed(length * self._sharers):
                gain = SOBER * tokens - self.price_each(length)
                if gain > most:
                    best, most = length, gain
        return best, most

    def share(self, survivals: Mapping[int, Sequence[float]]) -> tuple[dict[int, int], float]:
        """The best lengths for all sequences of the pass together, and what they gain.

        Survival never rises along a draft, so the most likely tokens of all sequences are always
        whole beginnings of drafts.
        """
        ranked = sorted(
            ((chance, slot) for slot, survival in survivals.items() for chance in survival),
            key=lambda entry: -entry[0],
        )
        count, gain = 0, 0.0
        for drafted, tokens in enumerate(accumulate(chance for chance, _ in ranked), 1):
            if self._allowed(drafted) and SOBER * tokens - self.price(drafted) > gain:
                count, gain = drafted, SOBER * tokens - self.price(drafted)
        lengths = dict.fromkeys(survivals, 0)
        for _, slot in ranked[:count]:
            lengths[slot] += 1
        return lengths, gain

    def _seconds(self, width: int) -> float:
        return self._costs.at(width, self._depth) + self._rebuild * (width != self._last_width)

    def _allowed(self, drafted: int) -> bool:
        return self._widths is None or self._width + drafted in self._widths
