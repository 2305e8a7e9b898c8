"""Who drafts how much, for a whole engine and for a request with wishes of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from edgespec.decoding.adaptive import Adaptive
from edgespec.decoding.knowledge import Knowledge
from edgespec.decoding.policy import Fixed
from edgespec.errors import OptionError
from edgespec.protocols import DraftPolicy
from edgespec.types import MAX_DRAFT_TOKENS

DraftTokens = int | Literal["auto"]

PREDICTION = "prediction"
"""The drafter that is given what to draft."""


class Policies:
    """Makes policies out of what can be asked for: a drafter and k, either of them "auto".

    drafters: the names of those that are loaded, the preferred one first. knowledge: what the
    adaptive policy works with; None when k is always a number. widths: see Fixed and Adaptive.
    drafter, k: what the engine does unless a request asks for something else.
    """

    def __init__(
        self,
        *,
        drafters: Sequence[str],
        drafter: str,
        k: DraftTokens,
        knowledge: Knowledge | None = None,
        widths: frozenset[int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.knowledge = knowledge
        self._drafters = tuple(drafters)
        self._k = k
        self._widths = widths
        self._clock = clock
        self.usual = self._make(drafter, k)

    def asked(self, drafter: str, k: DraftTokens, *, predicted: bool = False) -> DraftPolicy | None:
        """The policy a request wishes for, None when the usual one will do. Raises OptionError.

        predicted: the request predicts its answer. Where k is a number, that is the draft.
        """
        if drafter == "auto" and k == "auto" and not (predicted and self._k not in ("auto", 0)):
            return None
        if k != "auto" and (type(k) is not int or not 0 <= k <= MAX_DRAFT_TOKENS):
            # True is no number of tokens.
            raise OptionError(
                f"num_draft_tokens must be auto or between 0 and {MAX_DRAFT_TOKENS}, not {k!r}."
            )
        if drafter != "auto" and drafter not in self._drafters:
            here = ", ".join(self._drafters) or "none"
            raise OptionError(f"There is no drafter {drafter!r} here; loaded: {here}.")
        k = self._k if k == "auto" else k
        if predicted and drafter == "auto" and k not in ("auto", 0) and self._drafters:
            drafter = PREDICTION
        return self._make(drafter, k)

    def _make(self, drafter: str, k: DraftTokens) -> DraftPolicy:
        named = "" if drafter == "auto" else drafter
        if k == "auto" and self.knowledge is not None:
            return Adaptive(self.knowledge, clock=self._clock, widths=self._widths, only=named)
        first = self._drafters[0] if self._drafters else ""
        if k and not first:
            raise OptionError("Nobody drafts here: k can only be 0.")
        return Fixed(0 if k == "auto" else k, named or first, self._widths)
