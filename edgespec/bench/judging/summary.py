"""From cells to figures: every mode, over everything and by category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgespec.bench.judging import pairing
from edgespec.bench.judging.pairing import ByPrompt, Figure
from edgespec.bench.judging.statistics import (
    geometric_mean,
    geometric_speedup,
    median,
    percentile,
    verdict_of,
)
from edgespec.bench.records import ALL, BASELINE, Cell, Interval, Summary, Worst

_COMPARED = (
    *("speedup", "e2e_speedup", "trace_speedup", "ttft_ratio"),
    *("verdict", "win_rate", "worst"),
)
_PARTS = ("draft", "verify", "sample", "other")


def summarise(cells: Sequence[Cell], modes: Sequence[str]) -> list[Summary]:
    """For each mode, in their order: all categories together, then each as first met in `cells`."""
    found = []
    for mode in modes:
        for category in (ALL, *dict.fromkeys(cell.category for cell in cells)):
            chosen = [cell for cell in cells if category in (ALL, cell.category)]
            found.append(_summary(mode, category, chosen))
    return found


def _summary(mode: str, category: str, cells: Sequence[Cell]) -> Summary:
    attempted = pairing.of_mode(cells, mode)
    succeeded = [cell for cell in attempted if cell.error is None]
    return Summary(
        mode=mode,
        category=category,
        prompts=len({cell.question_id for cell in succeeded}),
        failed=len(attempted) - len(succeeded),
        **_speeds(succeeded),
        **_comparison(mode, cells),
        **_acceptance(succeeded),
        **_lengths(succeeded),
        **_shares(succeeded),
        joules_per_token=_joules_per_token(succeeded),
        differing=sum(cell.divergence is not None for cell in succeeded),
        near_ties=sum(
            cell.divergence is not None and cell.divergence.kind == "near-tie" for cell in succeeded
        ),
    )


def _speeds(cells: Sequence[Cell]) -> dict[str, Any]:
    """Medians over prompts, each the median of its repetitions."""
    decode = pairing.by_prompt(cells, pairing.decode_seconds)
    e2e = pairing.by_prompt(cells, pairing.e2e_seconds)
    return {
        "decode_tps": median(1 / seconds for seconds in decode.values()),
        "e2e_tps": median(1 / seconds for seconds in e2e.values()),
        "ttft_s": median(pairing.by_prompt(cells, pairing.ttft_seconds).values()),
        "prefill_tps": median(pairing.by_prompt(cells, pairing.prefill_speed).values()),
    }


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Cells of the baseline and of a mode, on the same prompts."""

    baseline: Sequence[Cell]
    mode: Sequence[Cell]

    def ratios(self, figure: Figure) -> ByPrompt:
        """baseline / mode, above 1 where the mode's `figure` is smaller."""
        return pairing.ratios(
            pairing.by_prompt(self.baseline, figure), pairing.by_prompt(self.mode, figure)
        )

    def interval(self, ratios: ByPrompt) -> Interval | None:
        return geometric_speedup(pairing.by_category(self.mode, ratios))

    def trace_speedup(self, prompts: Iterable[str]) -> float | None:
        """On the prompts that the wall clock's speed-up is of, or not at all."""
        ratios = self.ratios(pairing.trace_seconds)
        if not ratios.keys() >= set(prompts):
            return None
        return geometric_mean(ratios[prompt] for prompt in prompts)


def _comparison(mode: str, cells: Sequence[Cell]) -> dict[str, Any]:
    baseline = [cell for cell in pairing.of_mode(cells, BASELINE) if cell.error is None]
    if mode == BASELINE or not baseline:
        return dict.fromkeys(_COMPARED)
    pairs = _Pairs(baseline, pairing.of_mode(cells, mode))
    ratios = pairs.ratios(pairing.decode_seconds)
    speedup = pairs.interval(ratios)
    worst = min(ratios, key=ratios.__getitem__, default=None)
    ttft = pairs.ratios(pairing.ttft_seconds)
    return {
        "speedup": speedup,
        "e2e_speedup": pairs.interval(pairs.ratios(pairing.e2e_seconds)),
        "trace_speedup": pairs.trace_speedup(ratios),
        "ttft_ratio": median(1 / ratio for ratio in ttft.values()),
        "verdict": verdict_of(speedup, len(ratios)),
        "win_rate": sum(ratio > 1 for ratio in ratios.values()) / len(ratios) if ratios else None,
        "worst": Worst(question_id=worst, speedup=ratios[worst]) if worst is not None else None,
    }


def _acceptance(cells: Sequence[Cell]) -> dict[str, Any]:
    """Of draft tokens. The length counts the bonus token and the steps without a draft."""
    steps, drafted, accepted = (
        sum(getattr(cell, name) for cell in cells) for name in ("steps", "drafted", "accepted")
    )
    by_drafter: dict[str, tuple[int, int]] = {}
    for cell in cells:
        for name, (more_drafted, more_accepted) in cell.by_drafter.items():
            before = by_drafter.get(name, (0, 0))
            by_drafter[name] = (before[0] + more_drafted, before[1] + more_accepted)
    return {
        "acceptance_rate": accepted / drafted if drafted else None,
        "mean_acceptance_length": 1 + accepted / steps if steps else None,
        "by_drafter": by_drafter,
        "acceptance_by_position": _by_position(cells),
    }


def _by_position(cells: Sequence[Cell]) -> list[float | None]:
    """Position i is reached in a step that drafted i tokens or more and accepted those before."""
    drafted = np.array([k for cell in cells for k in cell.per_step_drafted], dtype=np.int64)
    accepted = np.array([n for cell in cells for n in cell.per_step_accepted], dtype=np.int64)
    found: list[float | None] = []
    for position in range(1, int(drafted.max(initial=0)) + 1):
        reached = (drafted >= position) & (accepted >= position - 1)
        count = int(reached.sum())
        kept = int((reached & (accepted >= position)).sum())
        found.append(kept / count if count else None)
    return found


def _lengths(cells: Sequence[Cell]) -> dict[str, Any]:
    lengths = [k for cell in cells for k in cell.per_step_drafted]
    return {
        "drafted_lengths": {str(k): count for k, count in sorted(Counter(lengths).items())},
        "k_p10": percentile(lengths, 10),
        "k_median": median(lengths),
        "k_p90": percentile(lengths, 90),
    }


def _shares(cells: Sequence[Cell]) -> dict[str, Any]:
    """Of the seconds of all steps."""
    sums = {part: sum(getattr(cell, f"{part}_s") for cell in cells) for part in _PARTS}
    total = sum(sums.values())
    return {f"{part}_share": sums[part] / total if total > 0 else None for part in _PARTS}


def _joules_per_token(cells: Sequence[Cell]) -> float | None:
    """Over the cells whose energy was measured: prefill and decoding, per token of the answers."""
    measured = [cell for cell in cells if cell.energy_j is not None]
    tokens = sum(cell.completion_tokens for cell in measured)
    energy = sum(cell.energy_j or 0.0 for cell in measured)
    return energy / tokens if tokens and energy > 0 else None
