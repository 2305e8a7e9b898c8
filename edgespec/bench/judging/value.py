"""What a mode is worth: seconds saved on tasks, tokens per core, per joule and for money."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from edgespec.bench.judging import pairing
from edgespec.bench.judging.statistics import mean_difference, median
from edgespec.bench.modes import NATIVE
from edgespec.bench.records import BASELINE, Cell, Machine, ModelFile, Settings, Value

CODE_CATEGORIES = ("code-write", "code-edit", "humaneval")

_JOULES_PER_KWH = 3.6e6
_SECONDS_PER_YEAR = 365 * 24 * 3600
_NO_DRAFT_MODEL = "n-gram:"  # modes that never ask a draft model start like this


def values(
    cells: Sequence[Cell], settings: Settings, machine: Machine, draft: ModelFile | None
) -> list[Value]:
    """Of every mode but plain decoding, on the tasks that succeeded in it and in the baseline.

    A mode with fewer than two such tasks has none.
    """
    code = [cell for cell in cells if cell.category in CODE_CATEGORIES]
    modes = [
        mode
        for mode in dict.fromkeys(settings.modes)
        if mode != BASELINE and not mode.startswith(NATIVE)
    ]
    found = (_value(mode, code or cells, settings, machine, draft) for mode in modes)
    return [value for value in found if value is not None]


@dataclass(frozen=True)
class _Work:
    """The cells of one mode on the tasks, and what they cost."""

    cells: Sequence[Cell]
    settings: Settings
    watts: float | None

    @cached_property
    def task_s(self) -> float:
        """Median over the tasks."""
        return median(pairing.by_prompt(self.cells, pairing.task_seconds).values()) or 0.0

    @cached_property
    def tokens_per_s(self) -> float:
        """All tokens / all seconds: prompts count as long as they take."""
        return sum(cell.completion_tokens for cell in self.cells) / _seconds(self.cells)

    @property
    def tokens_per_core_s(self) -> float:
        return self.tokens_per_s / self.settings.threads

    @property
    def tokens_per_joule(self) -> float | None:
        return self.tokens_per_s / self.watts if self.watts else None

    @property
    def cost_per_million(self) -> float | None:
        """None when neither energy nor hardware has a price."""
        parts = [part for part in (self._energy_cost, self._hardware_cost) if part is not None]
        return sum(parts) / self.tokens_per_s * 1e6 if parts else None

    @property
    def _energy_cost(self) -> float | None:
        """A second."""
        if self.settings.price_kwh is None or self.watts is None:
            return None
        return self.watts * self.settings.price_kwh / _JOULES_PER_KWH

    @property
    def _hardware_cost(self) -> float | None:
        """A second, always at work."""
        price, years = self.settings.hardware_price, self.settings.hardware_years
        return None if price is None or not years else price / (years * _SECONDS_PER_YEAR)


def _value(
    mode: str,
    cells: Sequence[Cell],
    settings: Settings,
    machine: Machine,
    draft: ModelFile | None,
) -> Value | None:
    before, after = (
        pairing.by_prompt(pairing.of_mode(cells, name), pairing.task_seconds)
        for name in (BASELINE, mode)
    )
    saved = {task: before[task] - after[task] for task in after if task in before}
    interval = mean_difference(pairing.by_category(cells, saved))
    if interval is None:
        return None
    baseline, work = _works([_chosen(cells, name, saved) for name in (BASELINE, mode)], settings)
    return Value(
        mode=mode,
        tasks=len(saved),
        baseline_task_s=baseline.task_s,
        task_s=work.task_s,
        saved_per_task_s=interval,
        saved_per_100_tasks_s=100 * interval.value,
        tokens_per_core_s=work.tokens_per_core_s,
        baseline_tokens_per_core_s=baseline.tokens_per_core_s,
        tokens_per_joule=work.tokens_per_joule,
        baseline_tokens_per_joule=baseline.tokens_per_joule,
        cost_per_million=work.cost_per_million,
        baseline_cost_per_million=baseline.cost_per_million,
        draft_bytes=0 if draft is None or mode.startswith(_NO_DRAFT_MODEL) else draft.size_bytes,
        assumptions=_assumptions(work, baseline, machine),
    )


def _chosen(cells: Iterable[Cell], mode: str, tasks: Iterable[str]) -> list[Cell]:
    wanted = set(tasks)
    return [
        cell
        for cell in pairing.of_mode(cells, mode)
        if cell.question_id in wanted
        and cell.error is None
        and pairing.task_seconds(cell) is not None
    ]


def _works(compared: Sequence[Sequence[Cell]], settings: Settings) -> list[_Work]:
    """With the watts as given; else as measured, if they were for every cell of both modes."""
    powers = [_measured_watts(cells) for cells in compared]
    if settings.watts is not None:
        powers = [settings.watts] * len(compared)
    elif None in powers:
        powers = [None] * len(compared)
    return [_Work(cells, settings, watts) for cells, watts in zip(compared, powers, strict=True)]


def _measured_watts(cells: Sequence[Cell]) -> float | None:
    measured = [cell.energy_j for cell in cells if cell.energy_j is not None]
    return sum(measured) / _seconds(cells) or None if len(measured) == len(cells) else None


def _seconds(cells: Sequence[Cell]) -> float:
    return sum(cell.e2e_s for cell in cells)


def _assumptions(work: _Work, baseline: _Work, machine: Machine) -> list[str]:
    return [
        _on_tasks(work.cells),
        _on_quality(work.cells),
        f"A core is one of the {work.settings.threads} threads in use; the machine has "
        f"{machine.physical_cores} cores.",
        _on_power(work, baseline),
        *_on_prices(work.settings, work.watts is not None),
        "Not counted: loading the models, waiting between tasks, people's time.",
    ]


def _on_tasks(cells: Sequence[Cell]) -> str:
    categories = list(dict.fromkeys(cell.category for cell in cells))
    count = len({cell.question_id for cell in cells})
    kind = "" if set(categories) <= set(CODE_CATEGORIES) else ", as no code was in the suite"
    return (
        f"The tasks are {count} prompts ({', '.join(categories)}{kind}), "
        "timed from asking to the last token."
    )


def _on_quality(cells: Sequence[Cell]) -> str:
    differing = {cell.question_id for cell in cells if cell.divergence is not None}
    if not differing:
        return "Every answer is that of plain decoding, token for token: the quality is the same."
    return (
        f"{len(differing)} of the answers differ from those of plain decoding, in length too; "
        "the same quality is assumed."
    )


def _on_power(work: _Work, baseline: _Work) -> str:
    if work.settings.watts is not None:
        return f"The machine draws {work.settings.watts:g} W in every mode, as given by --watts."
    if work.watts is None or baseline.watts is None:
        return "Energy was not measured, and --watts was not given."
    return (
        f"Energy is that of the processor package as measured (RAPL): {work.watts:.1f} W, and "
        f"{baseline.watts:.1f} W in plain decoding. Screen, disk and power supply are not in it."
    )


def _on_prices(settings: Settings, power: bool) -> list[str]:
    price, years = settings.hardware_price, settings.hardware_years
    if settings.price_kwh is None and price is None:
        return []
    found = ["Money is in the currency of the prices given."]
    if settings.price_kwh is None:
        found.append("Energy is not in the cost: --price-kwh was not given.")
    elif power:
        found.append(f"A kilowatt hour costs {settings.price_kwh:g}.")
    else:
        found.append("Energy is not in the cost: it was not measured, and --watts was not given.")
    if price is None or not years:
        found.append("The machine is not in the cost: its price or its years were not given.")
    else:
        found.append(
            f"The machine costs {price:g}, lasts {years:g} years, and is at work all the time."
        )
    return found
