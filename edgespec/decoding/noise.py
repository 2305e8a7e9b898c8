"""Counter-based Gumbel noise: the shared randomness behind coupled sampling.

Everyone who samples (plain decoding, draft model, every verify row) takes
argmax(log p + gumbel(seed, position, token)). The noise has no state, so the stream of a seed
cannot depend on who drafted, how much, or when (Daliri, Musco, Suresh, arXiv 2408.07978).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
# splitmix64 (Steele, Lea, Flood 2014): increment and the two multipliers of its finaliser.
_STEP = 0x9E3779B97F4A7C15
_MUL_1 = 0xBF58476D1CE4E5B9
_MUL_2 = 0x94D049BB133111EB


def _mix(value: int) -> int:
    value = (value + _STEP) & _MASK
    value = ((value ^ (value >> 30)) * _MUL_1) & _MASK
    value = ((value ^ (value >> 27)) * _MUL_2) & _MASK
    return value ^ (value >> 31)


def _mix_array(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(_STEP)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MUL_1)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MUL_2)
    return value ^ (value >> np.uint64(31))


def gumbel(seed: int, position: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each of `tokens` as the token at `position`.

    Pure function of its arguments: 52 bits of a 64-bit hash become a uniform in (0, 1).
    """
    key = np.uint64(_mix(_mix(int(seed) & _MASK) ^ (position & _MASK)))
    bits = _mix_array(key + tokens.astype(np.uint64) * np.uint64(_STEP)) >> np.uint64(12)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-52
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise
