"""The result of a run in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgespec.bench.judging.statistics import FASTER, MARGIN
from edgespec.bench.modes import AUTO, NATIVE
from edgespec.bench.records import ALL, BASELINE, Interval, Summary


def verdict_sentence(summaries: Sequence[Summary]) -> str:
    """Does speculation pay, and for what? Of `auto` if it was run, else of the fastest mode."""
    overall = {one.mode: one for one in summaries if one.category == ALL}
    # "off (2)", the baseline measured against itself, is judged like any other mode.
    speculating = {
        mode: one
        for mode, one in overall.items()
        if mode != BASELINE and not mode.startswith(NATIVE)
    }
    if not speculating:
        return _without_speculation(overall)
    chosen = speculating.get(AUTO) or max(speculating.values(), key=_value)
    if chosen.speedup is None:
        return _no_speedup(chosen, overall)
    name, others = _with_others(chosen, speculating)
    speed = f"{format_speedup(chosen.speedup)} of plain speed"
    if chosen.verdict == "not enough data":
        return (
            f"Not enough data to judge {name}: {speed} over {_prompts(chosen.prompts)}; "
            f"more of them, or more repetitions, would tell{others}."
        )
    comments = {"slower": ", slower", "same": f", the same within {MARGIN:.0%}"}
    comment = comments.get(chosen.verdict or "", "")
    categories = [one for one in summaries if one.mode == chosen.mode and one.category != ALL]
    return f"{name} decodes at {speed}{comment}{_by_category(categories)}{others}."


def format_speedup(interval: Interval) -> str:
    """Like "1.42x [1.31, 1.55]"."""
    return f"{interval.value:.2f}x [{interval.low:.2f}, {interval.high:.2f}]"


def _value(summary: Summary) -> float:
    return summary.speedup.value if summary.speedup else 0.0


def _with_others(chosen: Summary, speculating: Mapping[str, Summary]) -> tuple[str, str]:
    """The chosen mode's name, and what must be said of the modes that were not chosen."""
    if chosen.mode != AUTO:
        if len(speculating) == 1:
            return chosen.mode, ""
        # The best of several is partly the luckiest: say how many there were.
        return f"{chosen.mode}, the fastest of {len(speculating)} modes,", ""
    best = max(speculating.values(), key=_value)
    if best.verdict == "faster" and _value(best) > _value(chosen) * FASTER:
        return chosen.mode, f"; {best.mode} was faster ({_value(best):.2f}x)"
    return chosen.mode, ""


def _by_category(categories: Sequence[Summary]) -> str:
    """Where it pays, where not, and where too little was measured to tell."""
    if len(categories) < 2:
        return ""
    pays = [one for one in categories if one.verdict == "faster"]
    does_not = [one for one in categories if one.verdict in ("slower", "same")]
    undecided = [one.category for one in categories if one not in pays and one not in does_not]
    if not pays and not does_not:
        return "; no category has enough data of its own"
    clauses = []
    if pays:
        clauses.append(f"it pays for {_listed(pays)}")
        if does_not:
            clauses[0] += f" and does not for {_listed(does_not)}"
    else:
        clauses.append(f"it does not pay for {_listed(does_not)}")
    if undecided:
        clauses.append(f"not enough data for {', '.join(undecided)}")
    return "".join(f"; {clause}" for clause in clauses)


def _listed(categories: Iterable[Summary]) -> str:
    """The most telling first."""
    ordered = sorted(categories, key=_value, reverse=True)
    return ", ".join(f"{one.category} ({_value(one):.2f}x)" for one in ordered)


def _no_speedup(chosen: Summary, overall: Mapping[str, Summary]) -> str:
    baseline = overall.get(BASELINE)
    if baseline is None or not baseline.prompts:
        return f"There is no speed-up to judge: plain decoding ({BASELINE}) was not measured."
    if not chosen.prompts:
        return f"There is no speed-up to judge: no prompt succeeded in mode {chosen.mode}."
    return (
        f"Not enough data to judge {chosen.mode}: a speed-up needs two prompts or more that "
        "succeeded in both modes."
    )


def _without_speculation(overall: Mapping[str, Summary]) -> str:
    baseline, native = overall.get(BASELINE), overall.get(NATIVE)
    if native is not None and native.speedup is not None:
        ratio = native.speedup
        turned = Interval(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)
        return (
            f"{BASELINE} decodes at {format_speedup(turned)} of the speed of {NATIVE}, "
            f"llama.cpp's own loop; no mode with speculation was run."
        )
    for one in (baseline, native):
        if one is not None and one.decode_tps is not None:
            return (
                f"{one.mode} decodes at {one.decode_tps:.1f} tokens/s; "
                f"nothing to compare it with was measured."
            )
    return "Nothing was measured."


def _prompts(count: int) -> str:
    return f"{count} prompt{'' if count == 1 else 's'}"
