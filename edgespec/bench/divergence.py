"""Judges an answer that differs from the baseline's: a near-tie of the target, or a bug?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgespec.bench.answers import Answer
from edgespec.bench.records import Divergence
from edgespec.bench.subject import Subject
from edgespec.decoding.divergence import first_difference, gap_changes, least_change
from edgespec.decoding.sampling import LogitRow, Sampler
from edgespec.decoding.scheduler import PREFILL_CHUNK
from edgespec.errors import EdgespecError
from edgespec.protocols import Row
from edgespec.types import SamplingParams

_PERCENTILE = 99.9
_MOST_TOKENS = 400  # of the text scored again for tau; each costs a pass of one token


class Classifier:
    """For the answers to one prompt. Judging takes passes of the target; most answers need none."""

    def __init__(self, subject: Subject, params: SamplingParams) -> None:
        self._subject = subject
        self._params = params

    def classify(
        self, baseline: Answer | None, answer: Answer | EdgespecError
    ) -> Divergence | None:
        """None when the answers are equal, or one of them is missing."""
        if baseline is None or isinstance(answer, EdgespecError):
            return None
        at = first_difference(baseline.tokens, answer.tokens)
        if at is None:
            return None
        gap, tau = self._subject.engine.exclusively(lambda: self._measure(baseline, answer, at))
        if gap is None or tau is None:
            kind = "unknown"
        else:
            kind = "near-tie" if gap <= tau else "unexplained"
        return Divergence.model_validate({"at": at, "gap": gap, "tau": tau, "kind": kind})

    def _measure(
        self, baseline: Answer, answer: Answer, at: int
    ) -> tuple[float | None, float | None]:
        turn, before = _turn_of(baseline, at)
        own, other = (tokens[at : at + 1] for tokens in (baseline.tokens, answer.tokens))
        if not own or not other:  # one just goes on longer, for another reason than its logits
            return None, None
        prompt = baseline.prompts[turn]
        told = baseline.tokens[before:at]
        logits = self._plain_logits(prompt, told)
        sampler = Sampler(self._params)
        history = [*prompt, *told]
        if sampler.sample(logits, history) != own[0]:
            return None, None  # plain decoding does not repeat itself: nothing can be said
        gap = least_change(logits, sampler, history, own[0], other[0])
        return (None if math.isinf(gap) else gap), self._tau(history, answer)

    def _plain_logits(self, prompt: Sequence[int], told: Sequence[int]) -> LogitRow:
        """The logits from which plain decoding chose its token after `told`."""
        model = self._subject.target
        pieces = [prompt[at : at + PREFILL_CHUNK] for at in range(0, len(prompt), PREFILL_CHUNK)]
        pieces += [[token] for token in told]
        position = 0
        for piece in pieces:
            last = position + len(piece) - 1
            rows = [Row(0, at, token, at == last) for at, token in enumerate(piece, position)]
            logits = model.decode(rows)
            position += len(piece)
        kept: LogitRow = logits[-1].copy()
        model.drop(0)
        return kept

    def _tau(self, text: Sequence[int], answer: Answer) -> float | None:
        widths = sorted({step.rows for step in answer.steps if step.drafted})
        if not widths:
            return None
        changes = gap_changes(self._subject.target, text[-_MOST_TOKENS:], widths)
        return float(np.percentile(changes, _PERCENTILE))


def _turn_of(answer: Answer, at: int) -> tuple[int, int]:
    """The turn in which the at-th token was answered, and how many tokens came before it."""
    before = 0
    for turn, length in enumerate(answer.lengths):
        if at < before + length:
            return turn, before
        before += length
    return len(answer.lengths) - 1, before - answer.lengths[-1]
