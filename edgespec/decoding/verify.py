"""Which draft tokens stand, and the token after them.

Coupled verification: at every row the target's own token is sampled, emitted, and compared
with the draft; the first difference ends the step. What is emitted is therefore the target's
own stream, whatever the draft was (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from edgespec.decoding.sampling import Sampler
from edgespec.protocols import Logits


class Verdict(NamedTuple):
    """tokens: what the step emits. accepted: how many of them the draft had right.
    ended: the last of them ends the answer."""

    tokens: list[int]
    accepted: int
    ended: bool


def verify(
    draft: Sequence[int],
    logits: Logits,
    sampler: Sampler,
    history: list[int],
    ends: Callable[[int], bool],
) -> Verdict:
    """Check `draft` against `logits`, shape (len(draft) + 1, n_vocab).

    `history` holds the tokens before the draft; emitted tokens are appended to it, so the
    sampler sees them. `ends` is asked once for every emitted token, in order.
    """
    start = len(history)
    accepted = 0
    ended = False
    for row in range(len(draft) + 1):
        token = sampler.sample(logits[row], history)
        history.append(token)
        stands = row < len(draft) and token == draft[row]
        accepted += stands
        ended = ends(token)
        if ended or not stands:
            break
    return Verdict(history[start:], accepted, ended)
