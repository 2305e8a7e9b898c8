"""Adds up Steps; merges and serialises the sums. The derived figures are on `types.Stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from edgespec.types import Stats, Step

_MAPPINGS = ("by_drafter", "lengths")
_DERIVED = ("acceptance_rate", "mean_acceptance_length", "tokens_per_second")


def collect(steps: Iterable[Step]) -> Stats:
    """The sum of `steps`. A step that ends a prompt counts as prefill, its token as emitted."""
    counts: Counter[str] = Counter()
    seconds: dict[str, Any] = dict.fromkeys(
        ("prefill_s", "draft_s", "verify_s", "sample_s", "other_s"), 0.0
    )
    by_drafter: dict[str, tuple[int, int]] = {}
    lengths: Counter[int] = Counter()
    for step in steps:
        counts["emitted"] += len(step.tokens)
        counts["prefilled"] += step.prefilled
        if step.prefilled:
            seconds["prefill_s"] += step.draft_s + step.verify_s + step.sample_s + step.other_s
            continue
        counts["steps"] += 1
        counts["drafted"] += step.drafted
        counts["accepted"] += step.accepted
        counts["emitted_while_decoding"] += len(step.tokens)
        lengths[step.drafted] += 1
        for name in ("draft_s", "verify_s", "sample_s", "other_s"):
            seconds[name] += getattr(step, name)
        if step.drafted:
            drafted, accepted = by_drafter.get(step.drafter, (0, 0))
            by_drafter[step.drafter] = (drafted + step.drafted, accepted + step.accepted)
    return Stats(
        **counts,
        **seconds,
        by_drafter=MappingProxyType(by_drafter),
        lengths=MappingProxyType(dict(sorted(lengths.items()))),
    )


def merge(first: Stats, second: Stats) -> Stats:
    """The sum of two sums."""
    values: dict[str, Any] = {
        field.name: getattr(first, field.name) + getattr(second, field.name)
        for field in fields(Stats)
        if field.name not in _MAPPINGS
    }
    by_drafter = dict(first.by_drafter)
    for name, (drafted, accepted) in second.by_drafter.items():
        before = by_drafter.get(name, (0, 0))
        by_drafter[name] = (before[0] + drafted, before[1] + accepted)
    lengths = Counter(first.lengths) + Counter(second.lengths)
    return Stats(
        **values,
        by_drafter=MappingProxyType(by_drafter),
        lengths=MappingProxyType(dict(sorted(lengths.items()))),
    )


def to_dict(stats: Stats) -> dict[str, Any]:
    """Counters and derived figures as plain JSON types."""
    result: dict[str, Any] = {
        field.name: getattr(stats, field.name)
        for field in fields(Stats)
        if field.name not in _MAPPINGS
    }
    result["by_drafter"] = _drafters_to_dict(stats.by_drafter)
    result["lengths"] = {str(length): count for length, count in stats.lengths.items()}
    result.update({name: getattr(stats, name) for name in _DERIVED})
    return result


def _drafters_to_dict(by_drafter: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {
        name: {"drafted": drafted, "accepted": accepted}
        for name, (drafted, accepted) in by_drafter.items()
    }
