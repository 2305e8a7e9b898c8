"""Log-probabilities of tokens, for those who ask for them."""

from __future__ import annotations

import numpy as np

from edgespec.decoding.sampling import LogitRow, top_k
from edgespec.types import TokenLogprob


def logprob(logits: LogitRow, token: int, top: int) -> TokenLogprob:
    """Of `token` and of the `top` best ones, by the model's own distribution: before penalties,
    truncation and temperature. `logits` has shape (n_vocab,)."""
    largest = float(logits.max())
    total = largest + float(np.log(np.exp(logits.astype(np.float64) - largest).sum()))
    return TokenLogprob(token, float(logits[token]) - total, _best(logits, top, total))


def _best(logits: LogitRow, top: int, total: float) -> tuple[tuple[int, float], ...]:
    if not top:
        return ()
    tokens, values = top_k(logits, top)
    order = np.argsort(-values, kind="stable")
    return tuple((int(tokens[i]), float(values[i]) - total) for i in order)
