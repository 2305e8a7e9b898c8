"""Which pass widths give bit for bit the logits of one token at a time, measured.

A pass over several tokens may use other kernels than a pass over one; how much that changes
depends on the weights' type, the backend and the width (DESIGN section 6).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from edgespec.llama.context import Context
from edgespec.llama.vocabulary import Vocabulary
from edgespec.protocols import Row

WIDTHS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
PROBE_TOKENS = 16
"""Tokens compared at each width: as many as the widest pass has."""

DEPTH = 260
"""llama.cpp attends to cells in steps of 256, and on the CPU in another way from 512 on."""

PROMPT_PIECE = 256
"""The width of a piece of a prompt, which is timed only."""

# Attention aside, kernels do not know the depth: a few widths show whether attention is the same.
_WIDTHS_AT_THE_START = (2, 4, 8, 16)
_READING = 4  # as many steps of progress as reading `DEPTH` tokens counts for

_TEXT = (
    "The ferry left the harbour at half past six. On deck, two children counted gulls while "
    "their father read the list: 12 apples, 3 loaves, salt. for (int i = 0; i < n; ++i) sum += "
    "a[i]; The wind turned north-east and nobody on board spoke for a while."
)


@dataclass(frozen=True, slots=True)
class WidthProbe:
    """differences: width -> largest difference of any logit to width 1, 0.0 when identical.
    seconds: width -> median seconds of a pass, width 1 and a piece of a prompt included."""

    differences: dict[int, float]
    seconds: dict[int, float]

    @property
    def price(self) -> float:
        """Seconds of a typical turn: a piece of a prompt, and 128 tokens one at a time."""
        return self.seconds[PROMPT_PIECE] + 128 * self.seconds[1]

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
    context: Context,
    vocabulary: Vocabulary,
    widths: Sequence[int] = WIDTHS,
    progress: Callable[[float], None] = lambda done: None,
) -> WidthProbe:
    """Decode the same tokens at width 1 and at each of `widths` and compare all logits.

    At the start of a sequence and, where the context has room and can be rewound, behind
    `DEPTH` tokens. Uses sequence 0 and leaves it empty. progress: called with the share done.
    """
    tokens = vocabulary.tokenize(_TEXT, add_special=True, parse_special=False)
    while len(tokens) < DEPTH + PROBE_TOKENS:
        tokens += tokens
    context.drop(0)
    _decode(context, tokens, 0, 8)  # warms up caches and threads; not looked at
    deep = context.n_ctx >= DEPTH + PROBE_TOKENS and context.rewind_depth > PROBE_TOKENS
    start_widths = [n for n in widths if n in _WIDTHS_AT_THE_START] if deep else widths
    passes = len(start_widths) + (len(widths) + _READING if deep else 0)
    done = itertools.count(1)

    def tick() -> None:
        progress(min(next(done) / passes, 1.0))

    probe = _compare(context, tokens, 0, start_widths, tick)
    prompt_s = _read(context, tokens[: DEPTH if deep else PROBE_TOKENS])
    if deep:
        for _ in range(_READING):
            tick()
        behind = _compare(context, tokens, DEPTH, widths, tick)
        differences = {
            n: max(difference, probe.differences.get(n, 0.0))
            for n, difference in behind.differences.items()
        }
        probe = WidthProbe(differences, behind.seconds)
    context.drop(0)
    return WidthProbe(probe.differences, probe.seconds | {PROMPT_PIECE: prompt_s})


def _compare(
    context: Context,
    tokens: Sequence[int],
    depth: int,
    widths: Sequence[int],
    tick: Callable[[], None],
) -> WidthProbe:
    reference, first = _decode(context, tokens, depth, 1)
    differences, seconds = {}, {1: first}
    for width in widths:
        logits, seconds[width] = _decode(context, tokens, depth, width)
        tick()
        difference = float(np.abs(logits - reference).max())
        differences[width] = math.inf if math.isnan(difference) else difference
    return WidthProbe(differences, seconds)


def _decode(
    context: Context, tokens: Sequence[int], depth: int, width: int
) -> tuple[NDArray[np.float32], float]:
    """Logits of the tokens after `depth`, and median seconds of a pass; cuts back to `depth`."""
    logits, seconds = [], []
    end = depth + PROBE_TOKENS
    for start in range(depth, end, width):
        piece = tokens[start : min(start + width, end)]
        began = time.perf_counter()
        view = context.decode([Row(0, start + i, token, True) for i, token in enumerate(piece)])
        if len(piece) == width:
            seconds.append(time.perf_counter() - began)
        logits.append(view.copy())
    context.rewind(0, depth)
    return np.concatenate(logits), median(seconds)


def _read(context: Context, tokens: Sequence[int]) -> float:
    """Read a prompt into the empty sequence; the seconds of `PROMPT_PIECE` tokens of it."""
    spent, piece = 0.0, tokens[:PROMPT_PIECE]
    for start in range(0, len(tokens), PROMPT_PIECE):
        began = time.perf_counter()
        rows = list(enumerate(tokens[start : start + PROMPT_PIECE], start))
        context.decode([Row(0, at, token, at == rows[-1][0]) for at, token in rows])
        spent = spent or time.perf_counter() - began
    return spent * PROMPT_PIECE / len(piece)
