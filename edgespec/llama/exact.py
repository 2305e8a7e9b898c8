"""Loads a target so that verifying drafts gives bit for bit what plain decoding gives, if it can.

Which pass widths are identical to width 1 depends on how weights and KV cache lie in memory, so
the ways of loading are measured, and the measurements kept by whoever calls (DESIGN section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from edgespec.llama.widths import WidthProbe

Exact = Literal["auto", "on", "off"]
Probe = Callable[[bool, bool], WidthProbe]
"""Measures a model loaded with or without repacking, on an even or a mixed KV cache."""

# Exact mode is worth having when drafts of 3 fit, at a price nobody notices.
_WIDE_ENOUGH = 4
_SLOWER_AT_MOST = 1.03


@dataclass(frozen=True, slots=True)
class Numerics:
    """repack, mixed_cache: how to load (see Model and Context). widths: passes that are identical
    to plain decoding, None when that is not promised."""

    repack: bool
    mixed_cache: bool
    widths: frozenset[int] | None


def choose_numerics(exact: Exact, probe: Probe, *, may_mix: bool) -> Numerics:
    """Decide how to load; `probe` measures, or recalls. may_mix: mixed caches are known to work.

    auto: the first way of loading whose identical widths reach 4, if a typical turn takes at
    most 3 % longer than with llama.cpp's own choice. on: that whatever it takes, or else the way
    that reaches furthest. off: llama.cpp's own choice; nothing is measured or promised.
    """
    usual = Numerics(repack=True, mixed_cache=False, widths=None)
    if exact == "off":
        return usual
    best, reach, most = usual, 0, math.inf
    for repack, mixed in _ways(may_mix):
        probed = probe(repack, mixed)
        if math.isinf(most):  # the first is llama.cpp's own
            most = probed.price * _SLOWER_AT_MOST
        found = Numerics(repack, mixed, probed.identical)
        if probed.widest_run >= _WIDE_ENOUGH and (exact == "on" or probed.price <= most):
            return found
        if probed.widest_run > reach:
            best, reach = found, probed.widest_run
    return best if exact == "on" else usual


def _ways(may_mix: bool) -> Iterator[tuple[bool, bool]]:
    for repack in (True, False):
        yield repack, False
        if may_mix:
            yield repack, True
