"""What is known of a pair on this machine: costs, chances, and what asking the draft model was
worth. It outlives requests, and may be kept over restarts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from edgespec.decoding.acceptance import COPIED, MODELLED, Acceptance
from edgespec.decoding.costs import LiveCosts
from edgespec.decoding.worth import Worth

_SLOW = 0.99  # the rate remembers about a hundred passes
_USUAL = 50.0  # tokens at plain speed that are remembered at the beginning
_USUAL_ANSWER = 200.0  # tokens
# Share of the time of decoding that may go into asking a draft model that does not pay: at first,
# in the long run, and what is left of it after every asking in vain.
_PROBING, _PROBING_LATER, _PATIENCE = 0.015, 0.003, 0.8
_VALUE_MEMORY = 0.98
# Half a standard error: what few askings say may be bad luck, and who is not asked cannot show it.
_OPTIMISM = 0.5
_VALUE_TRUST = 8.0  # askings that the first estimate counts for
_MOST_PROMISING = 0.7  # tokens a step that it may promise
_CERTAINTIES = (0.3, 0.5, 0.7, 0.9, 0.97)
_FOLLOWING = 0.8

# Shares of all places where a draft model's first token stands with that chance: a guess for
# models that were never asked.
_TYPICAL = ((0.35, 0.97), (0.2, 0.9), (0.2, 0.7), (0.25, 0.4))
_END_ONLY = 0.55  # what such a chance counts for where only the end of a long text was read
_HOPE = 0.15  # tokens a step by which the guess may be wrong: it is to be tried

COPY_LEVELS = (0.5, 0.8, 0.95)
"""Chances of a copy's first token that make a difference to what the draft model is worth."""
_COPIES = ("no copy", *(f"copy up to {level:g}" for level in COPY_LEVELS), "copy above that")
KINDS = (*_COPIES, *(f"{copy}, only the end read" for copy in _COPIES))
"""Situations in which asking the draft model is worth about the same: how sure a copy is, and
whether the draft model knows the whole text."""


class Knowledge:
    """Costs, acceptance and rate, for all policies of one engine.

    rebuild: seconds more that a pass takes when the one before had another width. draft: costs of
    the draft model; None without one.
    """

    def __init__(
        self, target: LiveCosts, draft: LiveCosts | None = None, *, rebuild: float = 0.0
    ) -> None:
        self.target = target
        self.rebuild = rebuild
        self.decoded = 0  # tokens
        self.decoding_s = 0.0
        self.probing_s = 0.0
        self._acceptance: dict[str, Acceptance] = {}
        self._models: set[str] = set()  # those of them that do not copy
        self._values: dict[int, tuple[float, float]] = {}  # kind -> sum of gains, askings
        self._following = [_FOLLOWING] * (len(_CERTAINTIES) + 1)
        self._asked: Counter[int] = Counter()
        self.askings = 0  # how often the draft model was asked
        self._answer = _USUAL_ANSWER
        self._probing = _PROBING
        self._tokens = 0.0
        self._plain_tokens = 0.0  # that plain decoding would have given in the same time
        self.set_draft(draft)

    def set_draft(self, draft: LiveCosts | None) -> None:
        """There is a draft model of these costs, or none."""
        self.draft = draft
        self._factor_then = self.target.factor  # when the draft's costs were last looked at
        self._first_values: dict[tuple[int, bool], float] = {}

    def acceptance(self, drafter: str, *, copies: bool) -> Acceptance:
        """Of one drafter, made when it is first asked for."""
        if drafter not in self._acceptance:
            self._acceptance[drafter] = Acceptance(COPIED if copies else MODELLED)
            self._models |= set() if copies else {drafter}
        return self._acceptance[drafter]

    def drafters(self) -> list[tuple[str, Acceptance, bool]]:
        """(name, acceptance, whether it copies) of those that were asked."""
        return [(name, one, name not in self._models) for name, one in self._acceptance.items()]

    # Time.

    def plain_rate(self, sequences: int, depth: float) -> float:
        """Tokens a second of plain decoding, of so many sequences together."""
        return sequences / self.target.at(sequences, depth)

    def rate(self, sequences: int, depth: float) -> float:
        """Tokens a second: as much faster than plain as was achieved lately, never slower."""
        return self.plain_rate(sequences, depth) * max(1.0, self.speedup)

    @property
    def speedup(self) -> float:
        """Over plain decoding, lately, as far as the costs are right."""
        return (self._tokens + _USUAL) / (self._plain_tokens + _USUAL)

    def passed(self, tokens: int, seconds: float, sequences: int, depth: float) -> None:
        """A pass for so many sequences gave so many tokens and took so long, drafting included."""
        plain_tokens = seconds * self.plain_rate(sequences, depth)
        self._tokens = self._tokens * _SLOW + tokens
        self._plain_tokens = self._plain_tokens * _SLOW + plain_tokens
        self.decoded += tokens
        self.decoding_s += seconds

    def finished(self, tokens: int) -> None:
        """An answer had so many tokens."""
        self._answer += 0.1 * (tokens - self._answer)

    def remaining(self, emitted: int, most: int) -> float:
        """Tokens that an answer is likely to go on."""
        return min(most, max(self._answer - emitted, self._answer / 4))

    # The draft model.

    def drafting(self, passes: Sequence[int], depth: float) -> float:
        """Seconds of these passes of the draft model, given by their rows."""
        assert self.draft is not None, "there is no draft model"
        seconds = sum([self.draft.at(rows, depth) for rows in passes])
        # What slows the target slows the draft model, too.
        return seconds * self.target.factor / self._factor_then

    def drafted(self, passes: Sequence[int], depth: float, seconds: float) -> None:
        """The draft model made these passes, most of them alike, in `seconds`."""
        if self.draft is not None and passes:
            # As if each had taken longer or shorter by the same factor.
            ratio = seconds / self.drafting(passes, depth)
            self.draft.factor *= self.target.factor / self._factor_then
            self._factor_then = self.target.factor
            rows = min(passes)
            self.draft.observe(rows, depth, ratio * self.draft.at(rows, depth))

    def value(self, kind: int, load: int = 0) -> float:
        """What asking the draft model is worth in situations of this kind, in tokens a step: the
        mean so far, and a little more while that is uncertain.

        load: see `load_class`.
        """
        total, count = self._experience(kind, load)
        return total / count + _OPTIMISM / math.sqrt(count)

    def was_worth(self, kind: int, gain: float, load: int = 0) -> None:
        """It was asked, and gained so much, or lost."""
        total, count = self._experience(kind, load)
        at = kind + load * len(KINDS)
        self._values[at] = (total * _VALUE_MEMORY + gain, count * _VALUE_MEMORY + 1.0)
        self.askings += 1
        self._asked[at] += 1
        if gain > 0:
            self._probing = _PROBING

    def draft_model_changed(self) -> None:
        """Its drafts stand more or less often than they did: experience with it counts less."""
        self._values = {at: (total / 2, count / 2) for at, (total, count) in self._values.items()}

    def _experience(self, kind: int, load: int) -> tuple[float, float]:
        whole = kind < len(_COPIES)
        if (load, whole) not in self._first_values:
            likely = 1.0 if whole else _END_ONLY
            value = self._typical_value(2**load, likely) if self.draft else 0.0
            self._first_values[load, whole] = value
        first = self._first_values[load, whole]
        return self._values.get(kind + load * len(KINDS), (_VALUE_TRUST * first, _VALUE_TRUST))

    def asked(self, kind: int) -> tuple[float, int]:
        """(mean gain, or a guess; times asked since it was loaded), of one sequence alone."""
        total, count = self._experience(kind, 0)
        return total / count, self._asked[kind]

    @property
    def draft_may_pay(self) -> bool:
        """Whether there is any kind of situation in which asking it is worth its time."""
        hope = _HOPE * _VALUE_TRUST / (self.askings + _VALUE_TRUST)
        values = [self.value(kind) for kind in range(len(KINDS))]
        return self.draft is not None and max(values) + hope > 0

    def may_probe(self, seconds: float) -> bool:
        """Whether so much time may be spent on finding out; if so, it is booked as spent."""
        allowed = self._probing * self.decoding_s
        if self.probing_s + seconds > allowed:
            return False
        self.probing_s += seconds
        self._probing = max(self._probing * _PATIENCE, _PROBING_LATER)
        return True

    def followed(self, confidence: float, chance: float) -> None:
        """After a token of this confidence, the draft model's next one had that chance."""
        kind = _certainty(confidence)
        self._following[kind] += 0.02 * (chance - self._following[kind])

    def following(self, confidence: float) -> float:
        """What chance a next token is likely to have."""
        return self._following[_certainty(confidence)]

    def _typical_value(self, sequences: int, likely: float) -> float:
        assert self.draft is not None, "there is no draft model"
        rate = self.plain_rate(sequences, 0.0)
        worth = Worth(self.target, rate, width=sequences, depth=0.0, sharers=sequences)
        token = rate * self.draft.at(sequences, 0.0) / sequences
        value = -token
        for share, chance in _TYPICAL:
            survival = [likely * chance * _FOLLOWING**i for i in range(8)]
            gains = [
                expected - worth.price_each(length) - token * (length - 1)
                for length, expected in enumerate(accumulate(survival), 1)
            ]
            value += share * max(0.0, *gains)
        return min(value, _MOST_PROMISING)

    # Keeping it.

    def state(self) -> dict[str, Any]:
        """What is worth keeping over a restart, as plain JSON types."""
        return {
            "acceptance": {name: one.state() for name, one in self._acceptance.items()},
            "models": sorted(self._models),
            "values": {str(kind): list(value) for kind, value in self._values.items()},
            "askings": self.askings,
            "following": list(self._following),
            "answer": self._answer,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()`; one that is not usable is left out as a whole."""
        try:
            acceptance = {
                str(name): Acceptance.restored(kept) for name, kept in state["acceptance"].items()
            }
            values = {
                int(kind): (float(total), float(count))
                for kind, (total, count) in state["values"].items()
            }
            models = {str(name) for name in state["models"]}
            following = [float(chance) for chance in state["following"]]
            answer, askings = float(state["answer"]), int(state["askings"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return
        sound = (
            len(following) == len(self._following)
            and all(0.0 <= chance <= 1.0 for chance in following)
            and 0.0 < answer < math.inf
            and all(math.isfinite(total) for total, _ in values.values())
            and all(0.0 < count < math.inf for _, count in values.values())
            and askings >= 0
        )
        if sound:
            self._acceptance, self._models, self._values = acceptance, models, values
            self._following, self._answer, self.askings = following, answer, askings


def situation(copy_chance: float | None, knows_all: bool) -> int:
    """Which of KINDS it is. copy_chance: that a copy's first token stands; None without one."""
    copy = 0 if copy_chance is None else 1 + sum([copy_chance > level for level in COPY_LEVELS])
    return copy + (0 if knows_all else len(_COPIES))


def load_class(sequences: int) -> int:
    """Sequences that draft in the same pass: 1, 2, 3 to 4, 5 to 8 and so on are alike."""
    return (sequences - 1).bit_length()


def _certainty(confidence: float) -> int:
    return sum([confidence > level for level in _CERTAINTIES])
