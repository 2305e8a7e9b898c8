"""What makes the figures of a run less sure: what was seen, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edgespec.bench.judging import pairing
from edgespec.bench.judging.statistics import FASTER, geometric_speedup, median, variation
from edgespec.bench.modes import NATIVE
from edgespec.bench.records import (
    BASELINE,
    Cell,
    Conditions,
    Machine,
    ModelFile,
    Settings,
    Skipped,
)

MAX_VARIATION = 0.05
MAX_DRIFT = 1.05
MAX_TRACE_GAP = 0.1
MAX_MEMORY_SHARE = 0.85
MAX_LOOP_SHARE = 0.3
MIN_PROMPTS = 12
MIN_THIRD = 3
"""Cells in a third of the run below which a drift cannot be told from noise."""
MIN_SWAP = 64 * 1024**2
"""Bytes; a little is left in the swap by programs that sleep."""

_GIB = 1024**3
_NAMED = 3  # cells named in a note


def notes(
    *,
    cells: Sequence[Cell],
    skipped: Sequence[Skipped],
    settings: Settings,
    machine: Machine,
    start: Conditions,
    end: Conditions,
    target: ModelFile,
    draft: ModelFile | None,
) -> list[str]:
    """One line for each thing to know before trusting the figures, the gravest first."""
    baseline = [cell for cell in pairing.of_mode(cells, BASELINE) if cell.error is None]
    found = [
        *_answers(cells, settings),
        _cut(cells, settings),
        _failed(cells),
        _skipped(skipped),
        _few(cells),
        _loops(cells),
        _unstable(baseline),
        _drift(baseline),
        *_conditions(machine, start, end),
        _memory(machine, target, draft),
        _traces(cells, settings.modes),
        _overhead(cells),
    ]
    return [note for note in found if note]


def _answers(cells: Sequence[Cell], settings: Settings) -> list[str]:
    """Those that differ from the baseline's, by kind."""
    kinds: dict[str, list[Cell]] = {"unexplained": [], "unknown": [], "near-tie": []}
    for cell in cells:
        if cell.divergence is not None:
            kinds[cell.divergence.kind].append(cell)
    exact = "" if settings.exact == "on" else ' "--exact on" avoids it where the machine can.'
    advice = {
        "unexplained": "by more than a near-tie explains. This is a bug: please report it with "
        "the saved result.",
        "unknown": "and it could not be measured whether a near-tie explains it.",
        "near-tie": f"at near-ties of the target, which rounding decides.{exact}",
    }
    return [
        f"{_count(len(differing), 'answer')} not that of plain decoding "
        f"({_named(differing)}), {advice[kind]}"
        for kind, differing in kinds.items()
        if differing
    ]


def _cut(cells: Sequence[Cell], settings: Settings) -> str:
    """A fixed k whose passes would be too wide for exact mode is not what its name says."""
    longest = {
        mode: max(
            (k for cell in pairing.of_mode(cells, mode) for k in cell.per_step_drafted), default=0
        )
        for mode in settings.modes
    }
    widths = settings.exact_widths
    asked = {mode: int(k) for mode in settings.modes if (k := _fixed_k(mode)) is not None}
    cut = [
        f"{mode} to {longest[mode]}"
        for mode, k in asked.items()
        if widths is not None and k + 1 not in widths and 0 < longest[mode] < k
    ]
    if not cut:
        return ""
    return (
        f"k was cut: {', '.join(cut)}. Wider passes are not bit-identical to plain decoding with "
        'this target on this machine; "--exact off" allows them.'
    )


def _fixed_k(mode: str) -> int | None:
    """The k in "k=3", "model:3" or "model:3 (2)"."""
    number = mode.split(" ")[0].rpartition("=" if "=" in mode else ":")[2]
    return int(number) if number.isdigit() else None


def _failed(cells: Sequence[Cell]) -> str:
    failed = [cell for cell in cells if cell.error is not None]
    if not failed:
        return ""
    return (
        f"{len(failed)} of {len(cells)} cells failed and are in no figure ({_named(failed)}). "
        f"The first said: {failed[0].error}"
    )


def _skipped(skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return ""
    reasons = Counter(one.reason for one in skipped)
    listed = "; ".join(
        f"{reason.rstrip('.')} ({count} of them)" if count > 1 else reason.rstrip(".")
        for reason, count in reasons.most_common(_NAMED)
    )
    return f"{_count(len(skipped), 'prompt')} skipped: {listed}."


def _few(cells: Sequence[Cell]) -> str:
    prompts = len({cell.question_id for cell in cells if cell.error is None})
    if prompts >= MIN_PROMPTS:
        return ""
    return (
        f"Only {_count(prompts, 'prompt')} run: fewer than {MIN_PROMPTS} say little about others. "
        "Run the standard suite."
    )


def _loops(cells: Sequence[Cell]) -> str:
    looping = [cell for cell in cells if cell.loop_share > MAX_LOOP_SHARE]
    if not looping:
        return ""
    return (
        f"{_count(len(looping), 'answer')} stuck in a loop ({_named(looping)}). Loops are "
        "easy to draft and flatter every speed-up: use a better target, or leave these prompts out."
    )


def _unstable(baseline: Sequence[Cell]) -> str:
    repeated = pairing.repetitions(baseline, pairing.decode_seconds).values()
    varied = median(spread for values in repeated if (spread := variation(values)) is not None)
    if varied is None or varied <= MAX_VARIATION:
        return ""
    return (
        f"The baseline is unstable: its repetitions vary by {varied:.0%}. Close other programs, "
        "or raise --repetitions."
    )


def _drift(baseline: Sequence[Cell]) -> str:
    """Whether plain decoding became slower as the run went on.

    Prompts differ, so seconds per token are compared with what the cost curves predict for the
    very same steps. The median of a third is not moved by a few disturbed cells.
    """
    in_order = sorted(baseline, key=lambda cell: cell.order)
    gaps = [gap for cell in in_order if (gap := _trace_gap(cell)) is not None]
    third = len(gaps) // 3
    if third < MIN_THIRD:
        return ""
    first, last = median(gaps[:third]), median(gaps[-third:])
    if first is None or last is None or last / first <= MAX_DRIFT:
        return ""
    before, after = (in_order[i].conditions.temperature_c for i in (0, -1))
    heat = f" ({before:.0f} to {after:.0f} C)" if before is not None and after is not None else ""
    return (
        f"The machine became slower: plain decoding took {last / first - 1:.0%} longer in the "
        f"last third of the run than in the first{heat}. If it is heat, use --cooldown 10."
    )


def _conditions(machine: Machine, start: Conditions, end: Conditions) -> list[str]:
    found = []
    if start.on_battery or end.on_battery:
        found.append("The machine ran on battery, which may limit its speed: plug it in.")
    load = start.load_average
    if load is not None and load > machine.physical_cores / 2:
        found.append(
            f"The machine was busy at the start: a load of {load:.1f} on "
            f"{_count(machine.physical_cores, 'core', '')}. Close other programs."
        )
    swap = max(start.swap_used_bytes, end.swap_used_bytes)
    if swap > MIN_SWAP:
        grown = end.swap_used_bytes - start.swap_used_bytes
        more = f", {_gib(grown)} more at the end than at the start" if grown > MIN_SWAP else ""
        found.append(
            f"{_gib(swap)} of swap in use{more}: parts of the models may be among it. "
            "Close other programs."
        )
    return found


def _memory(machine: Machine, target: ModelFile, draft: ModelFile | None) -> str:
    needed = target.size_bytes + (draft.size_bytes if draft is not None else 0)
    if needed <= MAX_MEMORY_SHARE * machine.ram_bytes:
        return ""
    return (
        f"The models take {_gib(needed)} of {_gib(machine.ram_bytes)} of memory, their context not "
        "counted: they may be read from disk again and again. Use a smaller quantization."
    )


def _traces(cells: Sequence[Cell], modes: Sequence[str]) -> str:
    apart = []
    for mode in modes:
        gap = median(pairing.by_prompt(pairing.of_mode(cells, mode), _trace_gap).values())
        if gap is not None and abs(gap - 1) > MAX_TRACE_GAP:
            apart.append(f"{mode} took {abs(gap - 1):.0%} {'longer' if gap > 1 else 'less'}")
    if not apart:
        return ""
    return (
        f"Wall clock and cost curves disagree: {', '.join(apart)} than predicted. Alike in all "
        "modes, the machine or the depth of the context changed; in some only, time goes by "
        "outside the models' passes. The wall clock counts."
    )


def _overhead(cells: Sequence[Cell]) -> str:
    """Speed-ups over a slow baseline of our own would be worth nothing."""
    off, native = (
        pairing.by_prompt(pairing.of_mode(cells, mode), pairing.decode_seconds)
        for mode in (BASELINE, NATIVE)
    )
    slower = geometric_speedup(pairing.by_category(cells, pairing.ratios(off, native)))
    if slower is None or slower.low <= 1 or slower.value <= FASTER:
        return ""
    return (
        f"{BASELINE} takes {slower.value:.2f} times [{slower.low:.2f}, {slower.high:.2f}] as long "
        f"as llama.cpp's own loop ({NATIVE}): take that much off the speed-ups."
    )


def _trace_gap(cell: Cell) -> float | None:
    """Wall clock / cost curves, of the same steps."""
    measured, predicted = pairing.decode_seconds(cell), pairing.trace_seconds(cell)
    return None if measured is None or predicted is None else measured / predicted


def _named(cells: Sequence[Cell]) -> str:
    names = list(dict.fromkeys(f"{cell.mode} {cell.question_id}" for cell in cells))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _count(number: int, noun: str, verb: str = "was") -> str:
    if number == 1:
        return f"1 {noun} {verb}".rstrip()
    return f"{number} {noun}s {verb.replace('was', 'were')}".rstrip()


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
