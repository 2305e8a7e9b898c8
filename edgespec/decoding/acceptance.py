"""How likely the tokens of a draft are to stand, judged by the evidence they come with.

Per drafter: a logistic model of the evidence, learned online, is the prior of a discounted Beta
count per kind of evidence. The first knows what evidence is worth in general, the second what it
is worth in the text at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from edgespec.types import NO_DRAFT, Draft

_RATE = 0.02  # of learning the logistic model
_TRUST = 12.0  # observations its prediction counts for
_MEMORY = 0.97  # what an observation is worth after one more of its kind
# Four refusals of certain tokens in a row are a change, no bad luck.
_ATTENTION, _ALARM, _SHIFT = 0.1, 0.3, 1.0
_SOON = 8  # a surprise so soon after another one means that more has changed than was believed
_LOWEST, _HIGHEST = 0.02, 0.995
_LONGEST_MATCH = 32
_STEEPEST = 30.0  # a logit that no evidence is worth


class Evidence(NamedTuple):
    """What speaks for one token: inputs of the logistic model, each of about the size of 1, and
    the kind it is counted as."""

    features: tuple[float, ...]
    kind: int


# Fitted on answers of SmolLM2-135M to the benchmark's own prompts (benchmarks.traces), with a
# Q4_0 draft of it. What they are worth elsewhere is learned there.
COPIED = (-3.4, 4.0, 2.25, 1.2, 0.95)
MODELLED = (1.3, 5.0, -0.25, 2.5, -2.25)


def copied(draft: Draft, lately: float) -> Iterator[Evidence]:
    """Evidence for the tokens of an n-gram draft. lately: share of such drafts that began right.

    Once the first tokens stand, the match is longer by as many.
    """
    places = math.log(draft.candidates) if draft.candidates else 0.0
    for i, confidence in enumerate(draft.confidence):
        match = math.log2(1 + min(draft.match_length + i, _LONGEST_MATCH))
        agreement = (confidence > 0.6) + (confidence > 0.99)
        yield Evidence(
            (1.0, match / 5.0, _logit(confidence) / 5.0, places, 2.0 * lately - 1.0),
            3 * int(2 * match) + agreement,
        )


def modelled(
    tokens: Sequence[int], confidence: Sequence[float], lately: float, copy: Draft = NO_DRAFT
) -> Iterator[Evidence]:
    """Evidence for the tokens of a draft model. copy: what the n-gram drafter proposes for the
    same place; that both agree is strong evidence, the longer the match the stronger."""
    together = True
    for i, (token, sure) in enumerate(zip(tokens, confidence, strict=True)):
        agree = differ = 0.0
        if together and i < len(copy.tokens):
            match = math.log2(1 + min(copy.match_length + i, _LONGEST_MATCH))
            together = copy.tokens[i] == token
            agree, differ = (match, 0.0) if together else (0.0, match)
        known = _logit(sure)
        side = 1 if agree else 2 if differ else 0
        features = (1.0, known / 5.0, 2.0 * lately - 1.2, agree / 5.0, differ / 5.0)
        yield Evidence(features, 3 * int(known + 4.0) + side)


def kind_of_copy(kind: int) -> str:
    """In words, what `copied` counts as this kind."""
    match = 2 ** (kind // 3 / 2) - 1
    return f"match of {match:.0f}, {('split', 'most agree', 'all agree')[kind % 3]}"


def kind_of_model(kind: int) -> str:
    """In words, what `modelled` counts as this kind."""
    sure = 1.0 / (1.0 + math.exp(-(kind // 3 - 4 + 0.5)))
    return f"sure to {sure:.2f}, {('no copy', 'copy agrees', 'copy differs')[kind % 3]}"


class Acceptance:
    """Calibrated chances for the drafts of one drafter.

    prior: weights of the logistic model before anything was seen, one for each feature.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._weights = list(prior)
        self._counts: dict[int, tuple[float, float]] = {}  # kind -> accepted, observed; discounted
        self._surprise = 0.0  # by how much more tokens stood lately than was expected
        self._shift = 0.0  # the last that a surprise led to
        self._calm = 0  # observations since then

    def chance(self, evidence: Evidence) -> float:
        """The probability that the token stands, given that all before it did."""
        accepted, observed = self._counts.get(evidence.kind, (0.0, 0.0))
        expected = self._expected(evidence.features)
        chance = (accepted + _TRUST * expected) / (observed + _TRUST)
        return min(max(chance, _LOWEST), _HIGHEST)

    def learn(self, evidence: Evidence, stood: bool) -> bool:
        """One observation: a token before which the whole draft stood. True when it is one of so
        many surprises that something must have changed."""
        self._calm += 1
        self._surprise += _ATTENTION * (stood - self.chance(evidence) - self._surprise)
        surprised = abs(self._surprise) > _ALARM
        if surprised:
            self._unlearn()
        features, kind = evidence
        error = _RATE * (stood - self._expected(features))
        for i, value in enumerate(features):
            self._weights[i] += error * value
        accepted, observed = self._counts.get(kind, (0.0, 0.0))
        self._counts[kind] = (accepted * _MEMORY + stood, observed * _MEMORY + 1.0)
        return surprised

    def _unlearn(self) -> None:
        """The text has changed: what was counted means little, and all chances have shifted."""
        again = self._calm < _SOON and self._shift * self._surprise > 0
        self._shift = 2 * self._shift if again else math.copysign(_SHIFT, self._surprise)
        self._weights[0] += self._shift
        self._counts = {kind: (a / 4, n / 4) for kind, (a, n) in self._counts.items()}
        self._surprise, self._calm = 0.0, 0

    def state(self) -> dict[str, Any]:
        """What was learned, as plain JSON types."""
        counts = {str(kind): list(count) for kind, count in self._counts.items()}
        return {"weights": list(self._weights), "counts": counts}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Acceptance:
        """One with that `state()`. Raises KeyError, TypeError or ValueError for anything else."""
        made = cls([float(weight) for weight in state["weights"]])
        made._counts = {
            int(kind): (float(accepted), float(observed))
            for kind, (accepted, observed) in state["counts"].items()
        }
        if len(made._weights) != len(COPIED) or not all(map(math.isfinite, made._weights)):
            raise ValueError("these are not the weights of the features in use")
        if not all(0.0 <= stood <= seen < math.inf for stood, seen in made._counts.values()):
            raise ValueError("more stood than was observed")
        return made

    def table(self) -> list[tuple[int, float, float]]:
        """(kind, share that stood, observations) of every kind, lowest first."""
        return [(kind, a / n, n) for kind, (a, n) in sorted(self._counts.items()) if n > 0]

    def _expected(self, features: Sequence[float]) -> float:
        total = sum(map(mul, self._weights, features))
        return 1.0 / (1.0 + math.exp(-min(max(total, -_STEEPEST), _STEEPEST)))


def _logit(p: float) -> float:
    p = min(max(p, _LOWEST), _HIGHEST)
    return math.log(p / (1.0 - p))
