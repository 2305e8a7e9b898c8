"""A name or a path, as a user gives it, to a GGUF file on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgespec.catalog.download import installed
from edgespec.catalog.registry import Model, load_registry
from edgespec.errors import CatalogError

Fetch = Callable[[Model], Path]
"""Gets a model that is not on this machine."""


def resolve_pair(name: str, fetch: Fetch | None = None) -> tuple[Path, Path | None]:
    """Target and draft of a pair; a model's name, or a path, stands for one without a draft.

    Raises UnknownModelError, or CatalogError when a file is missing and `fetch` is None.
    """
    if _looks_like_path(name):
        return resolve_model(name, fetch), None
    registry = load_registry()
    pair = registry.pair(name)
    draft = _local(registry.model(pair.draft), fetch) if pair.draft else None
    return _local(registry.model(pair.target), fetch), draft


def resolve_model(name: str | Path, fetch: Fetch | None = None) -> Path:
    """The file of a model given by name or path.

    Raises UnknownModelError, or CatalogError when the file is missing and `fetch` is None.
    """
    if isinstance(name, Path) or _looks_like_path(name):
        return Path(name).expanduser()
    registry = load_registry()
    return _local(registry.model(name), fetch)


def _looks_like_path(name: str) -> bool:
    return name.lower().endswith(".gguf") or "/" in name or "\\" in name or Path(name).is_file()


def _local(model: Model, fetch: Fetch | None) -> Path:
    path = installed(model)
    if path is not None:
        return path
    if fetch is None:
        raise CatalogError(
            f"{model.name} is not on this machine yet: edgespec models pull {model.name}"
        )
    return fetch(model)
