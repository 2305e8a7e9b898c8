"""Loads a target so that verifying drafts gives bit for bit what plain decoding gives, if it can.

Which pass widths are identical to width 1 depends on how the weights lie in memory, so both
ways of loading are measured, and the measurements kept by whoever calls (DESIGN section 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgespec.llama.widths import WidthProbe

Exact = Literal["auto", "on", "off"]

# Exact mode is worth having when drafts of 3 fit, at a price nobody notices.
_WIDE_ENOUGH = 4
_SLOWER_AT_MOST = 1.03


@dataclass(frozen=True, slots=True)
class Numerics:
    """repack: how to load the weights. widths: passes that are identical to plain decoding,
    None when that is not promised."""

    repack: bool
    widths: frozenset[int] | None


def choose_numerics(exact: Exact, probe: Callable[[bool], WidthProbe]) -> Numerics:
    """Decide how to load. `probe(repack)` measures a model loaded that way, or recalls it.

    auto: the identical widths if they reach 4 and cost at most 3 % of plain speed.
    on: the identical widths, whatever they are and cost. off: nothing is measured or promised.
    """
    if exact == "off":
        return Numerics(repack=True, widths=None)
    repacked = probe(True)
    if repacked.widest_run >= _WIDE_ENOUGH:
        return Numerics(True, repacked.identical)
    original = probe(False)
    if exact == "on":
        better = original.widest_run > repacked.widest_run
        return Numerics(not better, (original if better else repacked).identical)
    fast_enough = original.seconds[1] <= repacked.seconds[1] * _SLOWER_AT_MOST
    if original.widest_run >= _WIDE_ENOUGH and fast_enough:
        return Numerics(False, original.identical)
    return Numerics(True, None)
