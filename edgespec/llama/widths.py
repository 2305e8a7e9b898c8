"""Which pass widths give bit for bit the logits of one token at a time, measured.

A pass over several tokens may use other kernels than a pass over one; how much that changes
depends on the weights' type, the backend and the width (DESIGN section 6).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from edgespec.llama.context import Context
from edgespec.llama.vocabulary import Vocabulary
from edgespec.protocols import Row

WIDTHS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
PROBE_TOKENS = 40

_TEXT = (
    "The ferry left the harbour at half past six. On deck, two children counted gulls while "
    "their father read the list: 12 apples, 3 loaves, salt. for (int i = 0; i < n; ++i) sum += "
    "a[i]; The wind turned north-east and nobody on board spoke for a while."
)


@dataclass(frozen=True, slots=True)
class WidthProbe:
    """differences: width -> largest difference of any logit to width 1, 0.0 when identical.
    seconds: width -> median seconds of a pass, width 1 included."""

    differences: dict[int, float]
    seconds: dict[int, float]

    @property
    def identical(self) -> frozenset[int]:
        """The widths whose logits are bit-identical to those of width 1, which is one of them."""
        same = {width for width, difference in self.differences.items() if difference == 0.0}
        return frozenset(same | {1})

    @property
    def widest_run(self) -> int:
        """The largest n so that all widths 1..n are identical."""
        width = 1
        while width + 1 in self.identical:
            width += 1
        return width


def probe_widths(
    context: Context, vocabulary: Vocabulary, widths: Sequence[int] = WIDTHS
) -> WidthProbe:
    """Decode the same tokens at width 1 and at each of `widths` and compare all logits.

    Uses sequence 0 and leaves it empty.
    """
    tokens = vocabulary.tokenize(_TEXT, add_special=True, parse_special=False)
    while len(tokens) < PROBE_TOKENS:
        tokens += tokens
    tokens = tokens[:PROBE_TOKENS]
    _decode(context, tokens, 8)  # warms up caches and threads; not looked at
    reference, first = _decode(context, tokens, 1)
    differences, seconds = {}, {1: first}
    for width in widths:
        logits, seconds[width] = _decode(context, tokens, width)
        difference = float(np.abs(logits - reference).max())
        differences[width] = math.inf if math.isnan(difference) else difference
    context.drop(0)
    return WidthProbe(differences, seconds)


def _decode(
    context: Context, tokens: Sequence[int], width: int
) -> tuple[NDArray[np.float32], float]:
    context.drop(0)
    logits, seconds = [], []
    for start in range(0, len(tokens), width):
        piece = tokens[start : start + width]
        began = time.perf_counter()
        view = context.decode([Row(0, start + i, token, True) for i, token in enumerate(piece)])
        if len(piece) == width:
            seconds.append(time.perf_counter() - began)
        logits.append(view.copy())
    return np.concatenate(logits), median(seconds)
