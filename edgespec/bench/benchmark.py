"""A benchmark from start to end: cost curves first, then prompt by prompt, then the result."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version

from edgespec.bench.curves import as_cost_curve, measure_curves
from edgespec.bench.journal import Curves, Journal, Plan, Prompted
from edgespec.bench.judging.comparability import comparability
from edgespec.bench.judging.guards import notes
from edgespec.bench.judging.summary import summarise
from edgespec.bench.judging.value import values
from edgespec.bench.judging.verdict import verdict_sentence
from edgespec.bench.modes import NATIVE, Mode, parse_modes
from edgespec.bench.options import BenchOptions
from edgespec.bench.records import (
    ALL,
    Cell,
    Conditions,
    Machine,
    Result,
    Settings,
    StoppedBy,
)
from edgespec.bench.runner import Run, conditions, run_prompt, warm_up
from edgespec.bench.subject import Subject
from edgespec.bench.suite import Prompt, Suite
from edgespec.catalog.hardware import computer
from edgespec.errors import BenchError, OptionError

_MIN_PROMPTS = 12

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of it is (0..1)."""


def run_benchmark(
    subject: Subject,
    suite: Suite,
    options: BenchOptions,
    *,
    command: Sequence[str] = (),
    start: Conditions | None = None,
    journal: Journal | None = None,
    progress: Progress = lambda what, done: None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Measure and judge. Once a prompt is done, Ctrl-C (KeyboardInterrupt) ends it early.

    command: what the user typed, for the record. start: how the machine was before the models
    were loaded. journal: where an interrupted run is taken up.
    Raises BenchError when nothing could be measured, and what the engine raises.
    """
    return _Benchmark(subject, suite, options, journal, progress, clock, sleep).run(
        command, start or conditions()
    )


class _Benchmark:
    def __init__(
        self,
        subject: Subject,
        suite: Suite,
        options: BenchOptions,
        journal: Journal | None,
        progress: Progress,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.subject = subject
        self.suite = suite
        self.options = options
        self.modes = parse_modes(options.modes)
        self.journal = journal
        self.progress = progress
        self.clock = clock
        self.sleep = sleep
        self.settings = _settings(subject, suite, options, self.modes)
        self.done: list[Prompted] = []
        self.resumed = 0
        self.began = self.first_prompt = clock()

    def run(self, command: Sequence[str], start: Conditions) -> Result:
        self._check_drafters()
        if self.journal:
            plan = Plan(
                target=self.subject.target_file,
                draft=self.subject.draft_file,
                settings=self.settings,
            )
            self.journal.begin(plan)
            self.done = list(self.journal.prompts)
            self.resumed = len(self.done)
        curves = self._curves()
        stopped_by = self._run_prompts(self._run(curves))
        return self._result(curves, command, start, stopped_by)

    def _check_drafters(self) -> None:
        """A mode nobody can draft for would fail at every prompt."""
        loaded = self.subject.engine.info.drafters
        for mode in self.modes:
            missing = mode.drafter != "auto" and mode.drafter not in loaded
            if missing or (mode.drafter == "auto" and mode.k and not mode.native and not loaded):
                raise OptionError(
                    f"Nobody can draft for mode {mode.name}: loaded are "
                    f"{', '.join(loaded) or 'no drafters'}. Add --draft, or leave the mode out."
                )

    def _curves(self) -> Curves:
        if self.journal and self.journal.curves:
            return self.journal.curves
        curves = measure_curves(
            self.subject,
            [turn for prompt in self.suite.prompts for turn in prompt.turns],
            limit_s=self.options.curve_s,
            clock=self.clock,
            report=self.progress,
        )
        if self.journal:
            self.journal.add_curves(curves)
        return curves

    def _run(self, curves: Curves) -> Run:
        return Run(
            subject=self.subject,
            modes=self.modes,
            repetitions=self.options.repetitions,
            max_tokens=self.options.max_tokens,
            params=self.options.params(),
            cooldown_s=self.options.cooldown_s,
            target_curve=as_cost_curve(curves.target),
            draft_curve=as_cost_curve(curves.draft) if curves.draft else None,
            clock=self.clock,
            sleep=self.sleep,
        )

    def _run_prompts(self, run: Run) -> StoppedBy | None:
        """What ended it before all prompts were run, None if nothing did."""
        known = {prompted.question_id for prompted in self.done}
        left = [
            (index, prompt)
            for index, prompt in enumerate(self.suite.prompts)
            if prompt.question_id not in known
        ]
        try:
            if left:
                warm_up(run, left[0][1], self._announce("warming up"))
            self.first_prompt = self.clock()
            for index, prompt in left:
                if enough := self._enough():
                    return enough
                self._take(run, index, prompt)
        except KeyboardInterrupt:
            if not any(prompted.cells for prompted in self.done):
                raise
            return "ctrl-c"
        return None

    def _take(self, run: Run, index: int, prompt: Prompt) -> None:
        first = index * len(self.modes) * self.options.repetitions
        found = run_prompt(run, prompt, index, first, self._announce(prompt.question_id))
        prompted = Prompted(cells=found) if isinstance(found, list) else Prompted(skipped=found)
        self.done.append(prompted)
        if self.journal:
            self.journal.add(prompted)

    def _announce(self, what: str) -> Callable[[Prompt, Mode], None]:
        """Tells which cell is run, and how much of all prompts that makes."""
        cells = iter(range(len(self.modes) * self.options.repetitions))

        def announce(prompt: Prompt, mode: Mode) -> None:
            within = next(cells, 0) / (len(self.modes) * self.options.repetitions)
            share = (len(self.done) + within) / len(self.suite.prompts)
            self.progress(f"{what}, {mode.name}", share)

        return announce

    def _enough(self) -> StoppedBy | None:
        """Whether the budget or the precision asked for is reached; never before a prompt."""
        ran = len(self.done) - self.resumed
        if not ran:
            return None
        now = self.clock()
        mean = (now - self.first_prompt) / ran
        budget = self.options.budget_s
        if budget is not None and now + mean - self.began > budget:
            return "budget"
        precision = self.options.precision
        enough = len(self.done) >= _MIN_PROMPTS  # the first few may agree by chance
        if precision is not None and enough and self._half_width() <= precision:
            return "precision"
        return None

    def _half_width(self) -> float:
        """Of the least certain speed-up, as a share; inf when there is none yet."""
        halves: list[float] = []
        for summary in summarise(self._cells(), self.settings.modes):
            if summary.category == ALL and summary.mode != NATIVE and summary.speedup:
                interval = summary.speedup
                halves.append((interval.high - interval.low) / 2 / interval.value)
        return max(halves, default=float("inf"))

    def _resumed(self) -> list[str]:
        if not self.resumed:
            return []
        return [
            f"The run was taken up again after {self.resumed} prompts; the cost curves are those "
            "measured when it first began."
        ]

    def _cells(self) -> list[Cell]:
        return [cell for prompted in self.done for cell in prompted.cells]

    def _result(
        self,
        curves: Curves,
        command: Sequence[str],
        start: Conditions,
        stopped_by: StoppedBy | None,
    ) -> Result:
        cells = self._cells()
        skipped = [prompted.skipped for prompted in self.done if prompted.skipped]
        if not cells:
            why = skipped[0].reason if skipped else "no prompt was run."
            raise BenchError(f"Nothing was measured: {why}")
        machine, end = _machine(self.subject), conditions()
        summaries = summarise(cells, self.settings.modes)
        reasons = comparability(self.settings, self.suite.builtin, stopped_by is None, skipped)
        return Result(
            created=datetime.now().astimezone().isoformat(timespec="seconds"),
            command=[os.fsencode(part).decode("utf-8", errors="replace") for part in command],
            stopped_by=stopped_by,
            machine=machine,
            conditions_start=start,
            conditions_end=end,
            target=self.subject.target_file,
            draft=self.subject.draft_file,
            settings=self.settings,
            target_curve=curves.target,
            draft_curve=curves.draft,
            cells=cells,
            skipped=skipped,
            summaries=summaries,
            values=values(cells, self.settings, machine, self.subject.draft_file),
            comparable=not reasons,
            not_comparable=reasons,
            notes=[
                *self.subject.engine.info.notes,
                *self._resumed(),
                *notes(
                    cells=cells,
                    skipped=skipped,
                    settings=self.settings,
                    machine=machine,
                    start=start,
                    end=end,
                    target=self.subject.target_file,
                    draft=self.subject.draft_file,
                ),
            ],
            verdict=verdict_sentence(summaries),
        )


def _settings(
    subject: Subject, suite: Suite, options: BenchOptions, modes: Sequence[Mode]
) -> Settings:
    info = subject.engine.info
    widths = info.exact_widths
    return Settings(
        suite=suite.name,
        suite_sha256=suite.sha256,
        prompts=len(suite.prompts),
        modes=[mode.name for mode in modes],
        repetitions=options.repetitions,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        seed=options.seed,
        n_ctx=info.n_ctx,
        threads=info.threads,
        gpu_layers=subject.gpu_layers,
        exact=subject.exact,
        exact_widths=sorted(widths) if widths is not None else None,
        repacked=subject.repacked,
        kv_cache=info.kv_cache,
        cooldown_s=options.cooldown_s,
        budget_s=options.budget_s,
        precision=options.precision,
        watts=options.watts,
        price_kwh=options.price_kwh,
        hardware_price=options.hardware_price,
        hardware_years=options.hardware_years,
    )


def _machine(subject: Subject) -> Machine:
    return Machine(
        **asdict(computer()),
        devices=list(subject.engine.info.devices),
        python=platform.python_version(),
        edgespec=version("edgespec"),
        numpy=version("numpy"),
        llama_cpp_python=version("llama-cpp-python"),
        llama_cpp_system_info=subject.system_info,
    )
