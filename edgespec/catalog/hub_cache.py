"""Finds models in the cache that all programs share which use the Hugging Face Hub.

Its layout is documented, and reading it takes no time; importing huggingface_hub takes half a
second. `hub.py` changes the cache, with that library.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRUE = {"1", "ON", "YES", "TRUE"}


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Files of one revision of a repository: a model, or the parts of a split one."""

    repo: str
    revision: str
    files: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """What the cache has of the repository."""
        return cache_dir() / f"models--{self.repo.replace('/', '--')}"

    def cached(self) -> tuple[Path, ...] | None:
        """Where the files lie; None when one is missing."""
        try:
            commit = (self.folder / "refs" / self.revision).read_text(encoding="utf-8").strip()
        except OSError:
            commit = self.revision
        paths = tuple(self.folder / "snapshots" / commit / name for name in self.files)
        return paths if all(path.is_file() for path in paths) else None

    def blob(self, etag: str) -> Path:
        """Where a content lies."""
        return self.folder / "blobs" / etag

    def lock(self, etag: str) -> Path:
        """A lock of edgespec's own: the library may delete its locks while they are held."""
        return cache_dir() / ".locks" / self.folder.name / f"{etag}.edgespec.lock"


def cache_dir() -> Path:
    """The cache, by the variables that the library reads too, but only once."""
    variables = os.environ
    user = variables.get("XDG_CACHE_HOME") or "~/.cache"
    home = variables.get("HF_HOME") or f"{user}/huggingface"
    cache = variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(cache)).expanduser().resolve()


def is_offline() -> bool:
    """Whether the user forbids the network."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in _TRUE


def sha256_of(path: Path) -> str | None:
    """The sha256 that the hub has of a cached file; None where the cache does not tell it."""
    try:
        # One step only: the blob may itself be a link into a store with other names.
        return as_sha256(Path(os.readlink(path)).name)
    except OSError:
        return None  # a system without links


def as_sha256(etag: str | None) -> str | None:
    """What the hub calls a large file is its sha256; a small one has a name of another kind."""
    return etag if etag and _SHA256.fullmatch(etag) else None
