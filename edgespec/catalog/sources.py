"""Where a model comes from: `pypi:NAME==VERSION`, `hf:OWNER/REPO`, `https://...` or a path."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from edgespec.catalog.tables import did_you_mean
from edgespec.errors import CatalogError

KINDS = ("pypi", "hf", "https", "path")

# Two letters or more: the `C:` of a Windows path is no kind of source.
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# Also keeps a source from being read as an option by the package client.
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*")


def split_source(source: str) -> tuple[str, str]:
    """The kind of a source and what follows it. Raises CatalogError for an unknown kind."""
    match = _KIND.match(source)
    if match is None:
        return "path", source
    kind = match[1]
    if kind not in KINDS:
        nearest = did_you_mean(kind, KINDS)
        known = "pypi:, hf:, https: or path:"
        raise CatalogError(f"source {source!r} is of an unknown kind; use {known}.{nearest}")
    return kind, source[match.end() :]


def package_specs(location: str) -> tuple[str, ...]:
    """The packages of a `pypi:` source, in order. Raises CatalogError unless all are pinned."""
    specs = tuple(spec.strip() for spec in location.split(","))
    for spec in specs:
        if not _PACKAGE.fullmatch(spec):
            raise CatalogError(
                f"source names the package {spec!r}; write pypi:NAME==VERSION, "
                "with commas between several."
            )
    return specs


def local_path(location: str, directory: Path | None = None) -> Path:
    """The file of a path source; a relative one starts at `directory`, by default here."""
    return ((directory or Path.cwd()) / Path(location).expanduser()).absolute()


def check_member(name: str) -> None:
    """Raises CatalogError for a file name that could lead out of its package."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or set(name) & set("\\:"):
        raise CatalogError(
            f"files names {name!r}; name a file inside the package, such as package/model.gguf."
        )
