"""Progress bars on stderr for what takes long: downloads, loading, measuring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from edgespec.catalog import download
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model
from edgespec.cli.models import download_bar
from edgespec.loading import Report


@contextmanager
def loading_bar() -> Iterator[Report]:
    """Shows what a loader reports; nothing where stderr is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {}

        def report(what: str, done: float) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=1.0)
            progress.update(tasks[what], completed=done, visible=done < 1.0)

        yield report


def fetch(model: Model) -> Path:
    """Pull a model that is needed now, with a bar."""
    Console(stderr=True).print(
        f"{model.name} is not on this machine yet; pulling it ({model.license})."
    )
    with download_bar(model.name) as progress:
        return download.pull(model, models_dir(), progress)
