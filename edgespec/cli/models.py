"""`edgespec models`: what models there are, and which of them are on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from edgespec.catalog import download
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model, Pair, Registry, load_registry, user_file
from edgespec.catalog.resolve import direct_model
from edgespec.cli.local import local_records, print_local
from edgespec.errors import CatalogError

app = typer.Typer(help="List, show, pull and remove models.")

_PULLABLE = "Models or pairs of models.toml, hf:OWNER/REPO/FILE.gguf, or https://HOST/FILE.gguf."
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help=_PULLABLE)]
Name = Annotated[str, typer.Argument(help="The name of a model.")]
Local = Annotated[
    bool,
    typer.Option(
        "--local", help="GGUF files that are on this machine already, of other programs too."
    ),
]


@app.callback(invoke_without_command=True)
def help_alone(context: typer.Context) -> None:
    """List, show, pull and remove models."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


@app.command("list")
def list_models(as_json: AsJson = False, local: Local = False) -> None:
    """List models and pairs, and print the path of your own models.toml."""
    if local:
        if as_json:
            _print_json(local_records())
        else:
            print_local()
        return
    registry = load_registry()
    models, pairs = registry.models.values(), registry.pairs.values()
    if as_json:
        _print_json(
            {
                "models": [_model_record(model) for model in models],
                "pairs": [_pair_record(pair) for pair in pairs],
                "user_file": str(user_file()),
            }
        )
        return
    rows = [
        (
            m.name,
            _size(m),
            m.license,
            "yes" if download.installed(m) else "no",
            _checked(m),
            m.note,
        )
        for m in models
    ]
    # Rich would fold a table in a pipe to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(_table(("Model", "Size", "License", "Installed", "Checked", "Note"), rows))
    pair_rows = [(pair.name, pair.target, pair.draft or "none", pair.note) for pair in pairs]
    console.print(_table(("Pair", "Target", "Draft", "Note"), pair_rows))
    typer.echo("GGUF files that are on this machine already: edgespec models list --local")
    typer.echo(f"Your own models: {user_file()}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="The name of a model or pair.")],
    as_json: AsJson = False,
) -> None:
    """Show one model or pair."""
    registry = load_registry()
    if name in registry.pairs and name not in registry.models:
        record = shown = _pair_record(registry.pair(name))
    else:
        model = direct_model(name) or registry.model(name)
        record = _model_record(model)
        shown = {**record, "size": _size(model), "checked": _checked(model)}
        del shown["approx_size"]  # the size says it
    if as_json:
        _print_json(record)
        return
    for key, value in shown.items():
        for line in value if isinstance(value, list) else [value]:
            typer.echo(f"{key + ':':<11}{'-' if line in (None, '') else line}")


@app.command()
def pull(
    names: Names,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch models onto this machine, verified by their sha256."""
    registry = load_registry()
    models = _models_of(registry, names)  # a misspelt name fails before any download
    paths = []
    for model in models:
        with download_bar(model.name) as progress:
            paths.append(download.pull(model, models_dir(), progress, force=force))
        if not as_json:
            typer.echo(paths[-1])
    if as_json:
        _print_json([{"name": m.name, "path": str(p)} for m, p in zip(models, paths, strict=True)])


@app.command()
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what edgespec pulled of a model."""
    found = _removable(name)
    shared = " from the cache that other programs may use too" if _is_shared(found) else ""
    if not yes:
        typer.confirm(
            f"Delete {found.path}{shared}? This frees {decimal(found.freed)}.", abort=True, err=True
        )
    found.delete()
    if as_json:
        _print_json({"name": name, "path": str(found.path), "freed": found.freed})
    else:
        typer.echo(f"Deleted {found.path}, which freed {decimal(found.freed)}")


def _models_of(registry: Registry, names: Iterable[str]) -> list[Model]:
    """The models called so, and those of the pairs called so, each once."""
    found: dict[str, Model] = {}
    for name in names:
        if direct := direct_model(name):
            found[name] = direct
            continue
        pair = registry.pair(name)
        for model in (pair.target, pair.draft):
            if model:
                found[model] = registry.model(model)
    return list(found.values())


def _removable(name: str) -> download.Removal:
    found = download.removal(name, models_dir())
    if found is not None:
        return found
    model = direct_model(name) or load_registry().model(name)
    if model.kind == "path":
        raise CatalogError(
            f"{name} is your own file {model.location}, which edgespec does not delete. "
            f"To forget it, take it out of {user_file()}."
        )
    found = download.removal(model, models_dir())
    if found is None:
        raise CatalogError(f"{name} is not installed, so there is nothing to remove.")
    return found


def _is_shared(found: download.Removal) -> bool:
    return not found.path.is_relative_to(models_dir())


@contextmanager
def download_bar(name: str) -> Iterator[download.Progress]:
    """A progress bar on stderr; nothing when that is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task, last = bar.add_task(name, total=None), ""

        def report(done: int, total: int | None, phase: download.Phase) -> None:
            nonlocal last
            if phase != last:
                bar.reset(task, total=total, description=f"{name}: {phase}")
                last = phase
            bar.update(task, completed=done, total=total)

        yield report


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        # Text, because [brackets] in a note are not Rich's markup.
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table


def _model_record(model: Model) -> dict[str, Any]:
    path = download.installed(model)
    return {
        "name": model.name,
        "source": model.source,
        "files": list(model.files),
        "sha256": model.sha256,
        "size": model.size,
        "approx_size": model.approx_size,
        "license": model.license,
        "note": model.note,
        "checked": model.checked,
        "installed": str(path) if path else None,
    }


def _pair_record(pair: Pair) -> dict[str, Any]:
    return {"name": pair.name, "target": pair.target, "draft": pair.draft, "note": pair.note}


def _size(model: Model) -> str:
    if model.size:
        return decimal(model.size)
    return f"~{model.approx_size}" if model.approx_size else ""


def _checked(model: Model) -> str:
    if model.kind == "path":
        return ""  # a file of the user's own
    return "checked" if model.checked else "not checked here"


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
