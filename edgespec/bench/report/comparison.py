"""Two runs side by side: is B faster than A, prompt by prompt?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from edgespec.bench.judging import pairing
from edgespec.bench.judging.pairing import Figure
from edgespec.bench.judging.statistics import geometric_mean, geometric_speedup, verdict_of
from edgespec.bench.records import (
    ALL,
    BASELINE,
    Cell,
    Interval,
    ModelFile,
    Record,
    Result,
    Verdict,
)
from edgespec.bench.report.markup import name, number, table, text
from edgespec.bench.report.tables import by_category, interval
from edgespec.errors import BenchError

_MACHINE = ("os", "cpu", "physical_cores", "ram_bytes", "devices", "container", "governor")
_VERSIONS = ("edgespec", "llama_cpp_python", "llama_cpp_system_info")
_SETTINGS = ("threads", "gpu_layers", "n_ctx", "exact", "exact_widths", "repacked", "kv_cache")
_SHOWN = 60  # characters of a value
_WORDS = (
    "Ratios are A / B of the seconds per token while decoding, paired by prompt, geometric mean "
    "with 95 % interval: above 1, B is faster. predicted: the same of the trace, the seconds of "
    "each run's own cost curves. differing: prompts whose answers are not the same tokens."
)


class Comparison(Record):
    """One mode on one category in both runs. Ratios are A / B of seconds per token: above 1, B
    is faster.
    """

    mode: str
    category: str
    prompts: int
    speedup: Interval | None
    trace_speedup: float | None
    verdict: Verdict
    differing: int


def compare(a: Result, b: Result) -> list[Comparison]:
    """Every mode of both runs, over all categories and on each; on the prompts of both.

    Raises BenchError when the runs did not do the same work.
    """
    _check(a, b)
    found = []
    for mode in _common_modes(a, b):
        first, second = pairing.of_mode(a.cells, mode), pairing.of_mode(b.cells, mode)
        for category in (ALL, *dict.fromkeys(cell.category for cell in first)):
            comparison = _compared(
                mode,
                category,
                [cell for cell in first if category in (ALL, cell.category)],
                [cell for cell in second if category in (ALL, cell.category)],
            )
            if comparison.prompts or category == ALL:
                found.append(comparison)
    if not any(one.prompts for one in found):
        raise BenchError(
            "These runs cannot be compared: no prompt succeeded in the same mode of both. "
            "Run them again with the same prompts and modes."
        )
    return found


def cautions(a: Result, b: Result, comparisons: Sequence[Comparison]) -> list[str]:
    """What else differs between the runs, and so is in the ratios; never empty."""
    found = [
        "Two runs at different times: the machine's heat, load and speed then are in the wall "
        "clock's ratios, and its speed while the cost curves were measured in the trace's."
    ]
    plain = [one for one in comparisons if (one.mode, one.category) == (BASELINE, ALL)]
    if plain and plain[0].verdict in ("faster", "slower") and plain[0].speedup:
        found.append(
            f"Plain decoding itself is {plain[0].verdict} in B, {plain[0].speedup.value:.2f}x: "
            "other modes changed by as much for reasons that are not theirs."
        )
    found += _differences(a, b)
    for which, one in (("A", a), ("B", b)):
        if not one.finished:
            found.append(f"{which} was stopped early by {one.stopped_by}.")
    alone = {cell.question_id for cell in a.cells} ^ {cell.question_id for cell in b.cells}
    if alone:
        found.append(f"Left out, being in one run only: {len(alone)} of the prompts.")
    return found


def comparison_markdown(
    a: Result,
    b: Result,
    comparisons: Sequence[Comparison],
    names: tuple[str, str] = ("A", "B"),
) -> str:
    """What `compare` found, and what to know before believing it. names: of the two files."""
    overall = [one for one in comparisons if one.category == ALL]
    blocks = [
        f"# edgespec bench: {name(names[0])} (A) and {name(names[1])} (B)",
        "\n".join(f"- {which}: {_made(one)}" for which, one in (("A", a), ("B", b))),
        table(
            ("mode", "prompts", "A / B [95 %]", "predicted", "verdict on B", "differing"),
            [_row(one) for one in overall],
            "lrrrlr",
        ),
        *_by_category(comparisons),
        "\n".join(f"- {text(note)}" for note in cautions(a, b, comparisons)),
        _WORDS,
    ]
    return "\n\n".join(blocks) + "\n"


def _check(a: Result, b: Result) -> None:
    for what, first, second in (
        ("suites (sha256)", a.settings.suite_sha256[:12], b.settings.suite_sha256[:12]),
        ("targets (sha256)", a.target.sha256[:12], b.target.sha256[:12]),
        ("values of max_tokens", a.settings.max_tokens, b.settings.max_tokens),
        ("temperatures", a.settings.temperature, b.settings.temperature),
        ("seeds", a.settings.seed, b.settings.seed),
    ):
        if first != second:
            raise BenchError(
                f"These runs cannot be compared: the {what} differ, {first} and {second}. "
                "Both must do the same work: run one again like the other."
            )
    if not _common_modes(a, b):
        raise BenchError(
            f"These runs cannot be compared: they have no mode in common "
            f"({_listed(a.settings.modes)} and {_listed(b.settings.modes)}). "
            "Run one of them again with a mode of the other."
        )


def _common_modes(a: Result, b: Result) -> list[str]:
    held = {cell.mode for cell in b.cells}
    return [mode for mode in dict.fromkeys(cell.mode for cell in a.cells) if mode in held]


def _compared(mode: str, category: str, a: Sequence[Cell], b: Sequence[Cell]) -> Comparison:
    ratios = _ratios(a, b, pairing.decode_seconds)
    traces = _ratios(a, b, pairing.trace_seconds)
    speedup = geometric_speedup(pairing.by_category(a, ratios))
    answers = [_answers(a), _answers(b)]
    return Comparison(
        mode=mode,
        category=category,
        prompts=len(ratios),
        speedup=speedup,
        trace_speedup=geometric_mean(traces[prompt] for prompt in ratios)
        if ratios.keys() <= traces.keys()
        else None,
        verdict=verdict_of(speedup, len(ratios)),
        differing=sum(answers[0].get(prompt) != answers[1].get(prompt) for prompt in ratios),
    )


def _ratios(a: Sequence[Cell], b: Sequence[Cell], figure: Figure) -> pairing.ByPrompt:
    return pairing.ratios(pairing.by_prompt(a, figure), pairing.by_prompt(b, figure))


def _answers(cells: Sequence[Cell]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for cell in cells:
        if cell.error is None:
            found[cell.question_id].add(cell.token_sha256)
    return found


def _differences(a: Result, b: Result) -> Iterator[str]:
    for title, first, second, keys in (
        ("machine", a.machine, b.machine, _MACHINE),
        ("versions", a.machine, b.machine, _VERSIONS),
        ("settings", a.settings, b.settings, _SETTINGS),
    ):
        pairs = [(key, getattr(first, key), getattr(second, key)) for key in keys]
        changed = [f"{key} {_cut(x)} -> {_cut(y)}" for key, x, y in pairs if x != y]
        if changed:
            yield f"Different {title}, A -> B: {'; '.join(changed)}."
    if _identity(a.draft) != _identity(b.draft):
        yield f"Different draft models, A -> B: {_file(a.draft)} -> {_file(b.draft)}."


def _identity(file: ModelFile | None) -> str | None:
    return file.sha256 if file else None


def _file(file: ModelFile | None) -> str:
    return f"{file.name} ({file.sha256[:12]})" if file else "none"


def _listed(modes: Sequence[str]) -> str:
    return _cut(", ".join(modes))


def _cut(value: object) -> str:
    shown = " ".join(str(value).split())
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def _made(result: Result) -> str:
    draft = f" with {text(result.draft.name)}" if result.draft else ""
    return (
        f"{text(result.created)}, {text(result.target.name)}{draft}, suite "
        f"{text(result.settings.suite)}, {text(result.machine.cpu)}, "
        f"edgespec {text(result.machine.edgespec)}"
    )


def _row(one: Comparison) -> list[str]:
    return [
        name(one.mode),
        str(one.prompts),
        interval(one.speedup),
        number(one.trace_speedup),
        one.verdict,
        str(one.differing),
    ]


def _by_category(comparisons: Sequence[Comparison]) -> list[str]:
    found = {(one.mode, one.category): one for one in comparisons}
    categories = [one.category for one in comparisons if one.category != ALL]
    modes = [one.mode for one in comparisons if one.category == ALL]

    def cell(mode: str, category: str) -> str:
        one = found.get((mode, category))
        return interval(one.speedup if one else None)

    return by_category(list(dict.fromkeys(categories)), modes, cell) if categories else []
