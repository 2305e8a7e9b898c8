"""`edgespec models pair TARGET`: which draft models go with it, and which one is taken."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from edgespec.catalog.memory import memory_of
from edgespec.catalog.pairing import Candidate, Suggestion
from edgespec.errors import CatalogError

Target = Annotated[str, typer.Argument(help="A GGUF file, or the name of a model.")]
Use = Annotated[
    str | None,
    typer.Option(
        "--use",
        metavar="DRAFT",
        help="Take this draft model from now on: a file, a name of the table, auto or none.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Also those that do not fit.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def pair(target: Target, use: Use = None, every: All = False, as_json: AsJson = False) -> None:
    """Show which draft models on this machine go with TARGET, the best first.

    A speed-up is guessed from the sizes until the pair was run here. Without --use, the best
    that promises to pay is taken whenever TARGET is loaded without --draft.
    """
    from edgespec.catalog import pairing
    from edgespec.catalog.discovery import discover
    from edgespec.catalog.registry import model_folders
    from edgespec.catalog.resolve import resolve_pair
    from edgespec.placing import has_gpu

    path = resolve_pair(target)[0]  # of a pair, its target
    if use is not None:
        pairing.choose_draft(path, _chosen(use, path))
    candidates = pairing.rank(path, discover(model_folders()), gpu=has_gpu())
    taken = None if pairing.wants_no_draft(path) else pairing.best_draft(candidates)
    suggested = pairing.suggestions(path, gpu=has_gpu())
    if as_json:
        record = _record(path, candidates, taken, suggested)
        typer.echo(json.dumps(record, indent=2, ensure_ascii=False))
        return
    shown = [c for c in candidates if every or not c.mismatch]
    if shown:
        Console(width=None if sys.stdout.isatty() else 200).print(_table(shown, taken))
    hidden = len(candidates) - len(shown)
    if hidden:
        typer.echo(f"Models that cannot draft for it: {hidden}; --all shows why.")
    for one in suggested:
        typer.echo(_suggestion(one))
    typer.echo(_conclusion(path, candidates, taken))


def _chosen(use: str, target: Path) -> Any:
    from edgespec.catalog.file_vocabulary import read_vocabulary
    from edgespec.catalog.resolve import resolve_model
    from edgespec.compatibility import mismatch

    if use in ("auto", "none"):
        return use
    draft = resolve_model(use)
    if draft.exists() and draft.samefile(target):
        raise CatalogError(f"{draft.name} cannot draft for itself: take a smaller model.")
    reason = mismatch(read_vocabulary(target), read_vocabulary(draft))
    if reason:
        raise CatalogError(
            f"{draft.name} cannot draft for {target.name}: {reason}. Take one that fits: "
            "edgespec models pair shows them."
        )
    return draft


def _table(candidates: list[Candidate], taken: Candidate | None) -> Table:
    header = ("", "Draft model", "Size", "Memory", "Speed-up", "Place", "")
    table = Table(*header, box=None, pad_edge=False)
    for one in candidates:
        table.add_row(
            "*" if one is taken else "",
            Text(one.model.name, overflow="fold"),
            decimal(one.model.size),
            _memory(one),
            _speedup(one),
            one.model.place,
            Text(f"does not fit: {one.mismatch}" if one.mismatch else "", overflow="fold"),
        )
    return table


def _memory(candidate: Candidate) -> str:
    """What it takes beside its target, with the usual context."""
    needed = None if candidate.mismatch else memory_of(candidate.model.path)
    return "" if needed is None else decimal(needed)


def _suggestion(one: Suggestion) -> str:
    facts = [decimal(one.size)] if one.size else []
    facts += [f"{one.speedup:.2f}x guessed"] if one.speedup else []
    told = f" ({', '.join(facts)})" if facts else ""
    return (
        f"{one.name}{told} goes with it and is not on this machine: edgespec models pull {one.name}"
    )


def _speedup(candidate: Candidate) -> str:
    if candidate.speedup is None:
        return ""
    return f"{candidate.speedup:.2f}x {'measured' if candidate.measured else 'guessed'}"


def _conclusion(path: Path, candidates: list[Candidate], taken: Candidate | None) -> str:
    from edgespec.catalog import pairing

    if taken is not None:
        how = "your choice" if taken.chosen else "the best; --use takes another"
        return f"* drafts for {path.name} unless --draft says otherwise ({how})."
    if pairing.wants_no_draft(path):
        return f"No draft model for {path.name}: your choice; --use auto takes the best again."
    if any(not one.mismatch for one in candidates):
        return f"None of them promises to be faster than {path.name} alone, with n-gram drafts."
    return (
        f"No draft model for {path.name} is on this machine: take a small one of the same family "
        "(edgespec models list), or name your folders in models.toml."
    )


def _record(
    path: Path,
    candidates: list[Candidate],
    taken: Candidate | None,
    suggested: list[Suggestion],
) -> dict[str, Any]:
    return {
        "target": str(path),
        "not_here": [asdict(one) for one in suggested],
        "drafts": [
            {
                "name": one.model.name,
                "path": str(one.model.path),
                "size": one.model.size,
                "memory": None if one.mismatch else memory_of(one.model.path),
                "place": one.model.place,
                "fits": not one.mismatch,
                "mismatch": one.mismatch or None,
                "speedup": one.speedup,
                "measured": one.measured,
                "taken": one is taken,
                "chosen": one.chosen,
            }
            for one in candidates
        ],
    }
