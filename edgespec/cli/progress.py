"""Progress bars on stderr for what takes long: downloads, loading, measuring."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from edgespec.catalog import download
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model
from edgespec.cli.interrupts import ctrl_c_leaves, ctrl_c_raises
from edgespec.cli.models import download_bar
from edgespec.measuring import Report

_PATIENCE_S = 3.0


@contextmanager
def loading_bar() -> Iterator[Report]:
    """Shows what a loader reports; where stderr is no terminal, a line for what takes long."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}
    began: dict[str, float] = {}  # what takes long already is told once, and then left out

    def report(what: str, done: float) -> None:
        if bar.disable:
            since = began.setdefault(what, time.monotonic())
            if done < 1.0 and time.monotonic() - since > _PATIENCE_S:
                typer.echo(f"{what} ...", err=True)
                began[what] = math.inf
            return
        if not tasks:
            bar.start()  # not earlier: downloads come first and have a bar of their own
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=None)  # pulses until there is progress
        total = 1.0 if done else None
        bar.update(tasks[what], total=total, completed=done, visible=done < 1.0)

    with ctrl_c_leaves(bar.stop):
        try:
            yield report
        finally:
            bar.stop()


def fetch(model: Model) -> Path:
    """Pull a model that is needed now, with a bar."""
    terms = f" ({model.license})" if model.license else ""
    typer.echo(f"{model.name} is not on this machine yet; pulling it{terms}.", err=True)
    with ctrl_c_raises(), download_bar(model.name) as progress:
        return download.pull(model, models_dir(), progress)


@contextmanager
def bench_bar() -> Iterator[Report]:
    """One bar for a benchmark, with the time it will still take."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    shown: list[TaskID] = []
    phase = ""

    def report(what: str, done: float) -> None:
        nonlocal phase
        # The time left is guessed from the pace, which is another for curves and prompts.
        if not shown or (done == 0.0 and what != phase):
            for task in shown:
                bar.update(task, visible=False)
            shown[:] = [bar.add_task(what, total=1.0)]
        phase = what
        bar.update(shown[0], description=what, completed=done)

    with bar:
        yield report
