"""Log-probabilities of tokens, for those who ask for them."""

from __future__ import annotations

import numpy as np

from edgespec.decoding.sampling import LogitRow
from edgespec.types import TokenLogprob


def logprob(logits: LogitRow, token: int, top: int) -> TokenLogprob:
    """Of `token` and of the `top` best ones, by the model's own distribution: before penalties,
    truncation and temperature. `logits` has shape (n_vocab,)."""
    largest = float(logits.max())
    total = largest + float(np.log(np.exp(logits.astype(np.float64) - largest).sum()))
    best = np.argsort(-logits, kind="stable")[:top] if top else np.empty(0, np.int64)
    return TokenLogprob(
        token,
        float(logits[token]) - total,
        tuple((int(one), float(logits[one]) - total) for one in best),
    )
