"""Loads a target so that verifying drafts gives bit for bit what plain decoding gives, if it can.

Which pass widths are identical to width 1 depends on how weights and KV cache lie in memory, so
the ways of loading are measured, and the measurements kept by whoever calls (DESIGN section 6).
"""

from __future__ import annotations

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
# A mixed cache must save more than a measurement may be wrong by.
_CHEAPER = 0.95


@dataclass(frozen=True, slots=True)
class Numerics:
    """repack, mixed_cache: how to load (see Model and Context). widths: passes that are identical
    to plain decoding, None when that is not promised."""

    repack: bool
    mixed_cache: bool
    widths: frozenset[int] | None


def choose_numerics(exact: Exact, probe: Probe, *, may_mix: bool) -> Numerics:
    """Decide how to load; `probe` measures, or recalls. may_mix: mixed caches are known to work.

    off: the fastest way for weights as llama.cpp loads them; nothing is promised. auto: the first
    way of loading whose identical widths reach 4, if a typical turn takes at most 3 % longer than
    that. on: the same whatever it takes, or else the way that reaches furthest.
    """
    usual, cheapest = _fastest(probe, may_mix)
    if exact == "off":
        return Numerics(*usual, widths=None)
    best, reach = Numerics(*usual, widths=None), 0
    for way in _ways(usual, may_mix):
        probed = probe(*way)
        found = Numerics(*way, probed.identical)
        cheap = probed.price <= cheapest * _SLOWER_AT_MOST
        if probed.widest_run >= _WIDE_ENOUGH and (exact == "on" or cheap):
            return found
        if exact == "on" and probed.widest_run > reach:
            best, reach = found, probed.widest_run
    return best


_Way = tuple[bool, bool]  # repack, mixed_cache


def _fastest(probe: Probe, may_mix: bool) -> tuple[_Way, float]:
    """The better cache for weights as llama.cpp loads them, and what a turn costs with it."""
    even = probe(True, False).price
    if may_mix:
        mixed = probe(True, True).price
        if mixed < even * _CHEAPER:
            return (True, True), mixed
    return (True, False), even


def _ways(first: _Way, may_mix: bool) -> Iterator[_Way]:
    yield first
    for repack in (True, False):
        for mixed in (False, True)[: 1 + may_mix]:
            if (repack, mixed) != first:
                yield repack, mixed
