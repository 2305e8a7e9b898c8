"""A name, a path or an address, as a user gives it, to a GGUF file on this machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from edgespec.catalog.discovery import discover
from edgespec.catalog.download import installed
from edgespec.catalog.registry import Model, load_registry, model_folders
from edgespec.catalog.sources import hub_file, repository, split_parts, web_files
from edgespec.errors import CatalogError

Fetch = Callable[[Model], Path]
"""Gets a model that is not on this machine."""

_NO_NAME = re.compile(r"^[^A-Za-z0-9]+|[^A-Za-z0-9._-]+")


def resolve_pair(name: str, fetch: Fetch | None = None) -> tuple[Path, Path | None]:
    """Target and draft of a pair; whatever stands for a model stands for one without a draft.

    Raises UnknownModelError, or CatalogError when a file is missing and `fetch` is None.
    """
    if direct_model(name) or _looks_like_path(name):
        return resolve_model(name, fetch), None
    registry = load_registry()
    if name not in registry.pairs:
        return resolve_model(name, fetch), None
    pair = registry.pair(name)
    draft = _local(registry.model(pair.draft), fetch) if pair.draft else None
    return _local(registry.model(pair.target), fetch), draft


def resolve_model(name: str | Path, fetch: Fetch | None = None) -> Path:
    """The file of a model given by name, path or address; the name may also be that of a file
    which another program brought here (`edgespec models list --local`).

    Raises UnknownModelError, or CatalogError when the file is missing and `fetch` is None.
    """
    if isinstance(name, Path):
        return name.expanduser()
    if model := direct_model(name):
        return _local(model, fetch, name)
    if _looks_like_path(name):
        path = Path(name).expanduser()
        return path if path.exists() else _found(name) or path
    registry = load_registry()
    if name not in registry.models and (found := _found(name)):
        return found
    return _local(registry.model(name), fetch)


def _found(name: str) -> Path | None:
    """The file that discovery calls so; names of programs' own may have slashes."""
    models = (one for one in discover(model_folders()) if one.name == name and not one.broken)
    return next((one.path for one in models), None)


def direct_model(address: str) -> Model | None:
    """The model at `hf:OWNER/REPO/FILE.gguf` or `https://HOST/FILE.gguf`; None for other words.

    The first file of a split model stands for all. Raises CatalogError for a malformed address.
    """
    kind, colon, location = address.partition(":")
    if not colon:
        return None
    if kind == "hf":
        source, file = hub_file(location)
        repository(source)
        return Model(Path(file).stem, f"hf:{source}", split_parts((file,)))
    if kind == "https":
        name = _NO_NAME.sub("", Path(web_files(location, ())[0][1]).stem)
        # Files of the same name lie at many addresses, and models of models.toml have names too.
        unique = hashlib.sha256(address.encode()).hexdigest()[:8]
        return Model(f"{name or 'model'}-{unique}", address)
    if kind == "http":
        raise CatalogError(f"{address} is not encrypted: edgespec takes https:// only.")
    return None


def _looks_like_path(name: str) -> bool:
    return name.lower().endswith(".gguf") or "/" in name or "\\" in name or Path(name).is_file()


def _local(model: Model, fetch: Fetch | None, name: str = "") -> Path:
    path = installed(model)
    if path is not None:
        return path
    if fetch is None:
        name = name or model.name
        raise CatalogError(f"{name} is not on this machine yet: edgespec models pull {name}")
    return fetch(model)
