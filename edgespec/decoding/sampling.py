"""Logits to candidates to a token, in llama.cpp's sampler order.

logit bias, penalties, top-k, typical-p, top-p, min-p, temperature; then coupled Gumbel-max
(`noise.py`). A sampler holds no state: what it needs to know of the past is the history it is
given, so there is nothing to roll back when a draft is rejected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgespec.decoding.noise import gumbel
from edgespec.errors import BackendError
from edgespec.types import SamplingParams

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]
LogitRow = NDArray[np.float32]

# How far below the largest logit to look first. The median model row has 84 tokens so near.
_FIRST_REACH = 8.0


class Candidates(NamedTuple):
    """The tokens that survive the chain, by ascending id, and their logits (not normalised)."""

    tokens: Tokens
    logits: Floats


class Sampler:
    """Chooses tokens for one request. `params.seed` must be set unless the temperature is 0."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._greedy = params.temperature == 0.0
        self._penalised = params.penalty_last_n > 0 and (
            params.repeat_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
        )
        self._seed = params.seed or 0

    def sample(self, logits: LogitRow, history: Sequence[int]) -> int:
        """The token that follows `history`. `logits` has shape (n_vocab,)."""
        if self._greedy:
            return self._best(self._adjusted(logits, history))
        tokens, values = self.candidates(logits, history)
        if len(tokens) == 1:
            return int(tokens[0])
        values /= self.params.temperature
        values += gumbel(self._seed, len(history), tokens)
        return int(tokens[values.argmax()])

    def candidates(self, logits: LogitRow, history: Sequence[int]) -> Candidates:
        """What the truncating samplers leave, before temperature and noise."""
        row = self._adjusted(logits, history)
        params = self.params
        found = top_k(row, params.top_k)
        if params.typical_p < 1.0:
            found = typical_p(found, params.typical_p)
        if params.top_p < 1.0:
            found = top_p(found, params.top_p)
        if params.min_p > 0.0:
            found = min_p(found, params.min_p)
        return found

    @staticmethod
    def _best(row: LogitRow) -> int:
        token = int(row.argmax())
        _check(float(row[token]))
        return token

    def _adjusted(self, logits: LogitRow, history: Sequence[int]) -> LogitRow:
        bias = self.params.logit_bias
        if not bias and not self._penalised:
            return logits
        row = logits.copy()
        for token, value in bias.items():
            if token < len(row):
                row[token] += value
        if self._penalised:
            self._penalise(row, history)
        return row

    def _penalise(self, row: LogitRow, history: Sequence[int]) -> None:
        # llama.cpp: llama_sampler_penalties_apply
        params = self.params
        counts = Counter(history[-params.penalty_last_n :])
        if not counts:
            return
        tokens = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        values = row[tokens]
        scale = np.float32(params.repeat_penalty)
        values = np.where(values <= 0, values * scale, values / scale)
        row[tokens] = (
            values
            - times * np.float32(params.frequency_penalty)
            - np.float32(params.presence_penalty)
        )


def _check(largest: float) -> float:
    if not math.isfinite(largest):
        raise BackendError(
            f"The model's best logit is {largest}: its file is damaged or this backend computes "
            "it wrongly. Try another quantization, or --gpu-layers 0."
        )
    return largest


def top_k(row: LogitRow, k: int) -> Candidates:
    """The k largest logits; all of them for k = 0. Ties at the edge go to the lower id.

    Works on the few logits near the largest: selecting over the whole vocabulary with
    argpartition costs milliseconds at 150k tokens.
    """
    largest = _check(float(row.max()))
    if k <= 0 or k >= len(row):
        tokens = np.flatnonzero(row > -np.inf)
        return Candidates(tokens, row[tokens].astype(np.float64))
    reach = _FIRST_REACH
    near = row >= largest - reach
    while np.count_nonzero(near) < k and reach < 1e6:
        reach *= 1.5
        near = row >= largest - reach
    tokens = near.nonzero()[0]
    values = row[tokens].astype(np.float64)
    if len(tokens) <= k:
        return Candidates(tokens, values)
    edge = np.partition(values, len(values) - k)[len(values) - k]
    keep = values > edge
    ties = np.flatnonzero(values == edge)
    keep[ties[: k - int(keep.sum())]] = True
    return Candidates(tokens[keep], values[keep])


def _probabilities(values: Floats) -> Floats:
    weights: Floats = np.exp(values - values.max())
    weights /= weights.sum()
    return weights


def _pick(found: Candidates, kept: NDArray[np.int64]) -> Candidates:
    kept.sort()
    return Candidates(found.tokens[kept], found.logits[kept])


def typical_p(found: Candidates, p: float) -> Candidates:
    """Locally typical sampling (arXiv 2202.00666): nearest to the entropy first, up to mass p."""
    probabilities = _probabilities(found.logits)
    with np.errstate(divide="ignore"):
        surprise = -np.log(probabilities)
    entropy = float(np.sum(probabilities * np.where(probabilities > 0, surprise, 0.0)))
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    # llama.cpp keeps the token with which the mass first *exceeds* p.
    count = int(np.searchsorted(np.cumsum(probabilities[order]), p, side="right")) + 1
    return _pick(found, order[:count])


def top_p(found: Candidates, p: float) -> Candidates:
    """Nucleus sampling (arXiv 1904.09751): the most probable tokens up to mass p."""
    probabilities = _probabilities(found.logits)
    head = _head_with_mass(found.logits, probabilities, p)
    order = head[np.argsort(-found.logits[head], kind="stable")]
    count = int(np.searchsorted(np.cumsum(probabilities[order]), p, side="left")) + 1
    return _pick(found, order[:count])


def _head_with_mass(values: Floats, probabilities: Floats, mass: float) -> NDArray[np.int64]:
    """Indices of the largest values that together hold at least `mass`: what has to be sorted."""
    if len(values) <= 1024:
        return np.arange(len(values))
    largest = float(values.max())
    reach = _FIRST_REACH
    head = np.flatnonzero(values >= largest - reach)
    while len(head) < len(values) and float(probabilities[head].sum()) < mass:
        reach *= 2
        head = np.flatnonzero(values >= largest - reach)
    return head


def min_p(found: Candidates, p: float) -> Candidates:
    """Tokens at least p times as probable as the best one."""
    keep = found.logits >= found.logits.max() + math.log(p)
    return Candidates(found.tokens[keep], found.logits[keep])
