"""One figure per prompt and mode, and the same prompt's figures side by side.

Repetitions of a prompt become their median. Failed cells, and cells without the tokens or the
seconds that a figure needs, have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from edgespec.bench.judging.statistics import median
from edgespec.bench.records import Cell

Figure = Callable[[Cell], float | None]
ByPrompt = dict[str, float]
"""A figure of each prompt, by question_id, in the order of the run."""


def decode_seconds(cell: Cell) -> float | None:
    """Per decoded token, by the wall clock."""
    return _ratio(cell.decode_s, cell.decoded)


def trace_seconds(cell: Cell) -> float | None:
    """Per decoded token, as the cost curves predict."""
    return None if cell.trace_s is None else _ratio(cell.trace_s, cell.decoded)


def e2e_seconds(cell: Cell) -> float | None:
    """Per token, from asking to the last one."""
    return _ratio(cell.e2e_s, cell.completion_tokens)


def task_seconds(cell: Cell) -> float | None:
    """From asking to the last token, of all turns; None for an empty answer."""
    return cell.e2e_s if cell.completion_tokens > 0 and cell.e2e_s > 0 else None


def ttft_seconds(cell: Cell) -> float | None:
    """Mean over the turns."""
    return _ratio(cell.ttft_s, cell.turns)


def prefill_speed(cell: Cell) -> float | None:
    """Prompt tokens per second of the target's passes over them; those in memory do not count."""
    return _ratio(cell.prompt_tokens - cell.cached_tokens, cell.prefill_s)


def by_prompt(cells: Iterable[Cell], figure: Figure) -> ByPrompt:
    """The median of `figure` over the repetitions of each prompt; `cells` are of one mode."""
    return {
        question_id: middle
        for question_id, values in repetitions(cells, figure).items()
        if (middle := median(values)) is not None
    }


def repetitions(cells: Iterable[Cell], figure: Figure) -> dict[str, list[float]]:
    """Every `figure` of each prompt."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for cell in cells:
        value = None if cell.error is not None else figure(cell)
        if value is not None:
            found[cell.question_id].append(value)
    return dict(found)


def ratios(baseline: Mapping[str, float], mode: Mapping[str, float]) -> ByPrompt:
    """baseline / mode for the prompts that have both."""
    return {name: baseline[name] / value for name, value in mode.items() if name in baseline}


def by_category(cells: Sequence[Cell], values: Mapping[str, float]) -> dict[str, list[float]]:
    """`values` of prompts, grouped by their category."""
    category_of = {cell.question_id: cell.category for cell in cells}
    found: defaultdict[str, list[float]] = defaultdict(list)
    for name, value in values.items():
        found[category_of[name]].append(value)
    return dict(found)


def of_mode(cells: Iterable[Cell], mode: str) -> list[Cell]:
    """In the order given."""
    return [cell for cell in cells if cell.mode == mode]


def _ratio(above: float, below: float) -> float | None:
    return above / below if above > 0 and below > 0 else None
