"""The table behind `edgespec models list --local`: files that are on this machine already."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from edgespec.catalog.discovery import LocalModel, discover
from edgespec.catalog.registry import model_folders, user_file


def local_records() -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) | {"path": str(one.path)} for one in discover(model_folders())]


def print_local() -> None:
    """Raises CatalogError when the user's models.toml is damaged."""
    found = discover(model_folders())
    table = Table("Name", "Size", "Type", "Place", "", box=None, pad_edge=False)
    for one in found:
        table.add_row(
            Text(one.name, overflow="fold"),
            decimal(one.size),
            one.quantization,
            one.place,
            Text(_remark(one), overflow="fold"),
        )
    if found:
        Console(width=None if sys.stdout.isatty() else 200).print(table)
    else:
        typer.echo("No GGUF file was found in the places where programs keep them.")
    typer.echo(f'More folders: folders = ["~/models"] at the top of {user_file()}')


def _remark(model: LocalModel) -> str:
    if model.broken:
        return f"broken: {model.broken}"
    return "" if model.kind == "model" else f"{model.kind}, no model to chat with"
