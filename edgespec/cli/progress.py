"""Progress bars on stderr for what takes long: downloads, loading, measuring."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from edgespec.catalog import download
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model
from edgespec.cli.answer import INTERRUPTED
from edgespec.cli.models import download_bar
from edgespec.loading import Report


@contextmanager
def loading_bar() -> Iterator[Report]:
    """Shows what a loader reports; nothing where stderr is not a terminal."""
    bar = _LoadingBar()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield bar.report
    finally:
        bar.progress.stop()
        signal.signal(signal.SIGINT, before)


class _LoadingBar:
    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn())
        self.progress = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._tasks: dict[str, TaskID] = {}

    def report(self, what: str, done: float) -> None:
        """The first report comes after the last download, which has a bar of its own."""
        if not self._tasks:
            signal.signal(signal.SIGINT, self._leave)
            self.progress.start()
        if what not in self._tasks:
            self._tasks[what] = self.progress.add_task(what, total=1.0)
        self.progress.update(self._tasks[what], completed=done, visible=done < 1.0)

    def _leave(self, *_: object) -> None:
        """Ctrl-C. llama.cpp loads inside one call, whose callbacks cannot raise through it."""
        self.progress.stop()
        os._exit(INTERRUPTED)


def fetch(model: Model) -> Path:
    """Pull a model that is needed now, with a bar."""
    terms = f" ({model.license})" if model.license else ""
    typer.echo(f"{model.name} is not on this machine yet; pulling it{terms}.", err=True)
    with download_bar(model.name) as progress:
        return download.pull(model, models_dir(), progress)
