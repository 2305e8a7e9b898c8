"""Where programs keep GGUF files on this machine, and which files lie there.

Only directories are read, and small lists of the programs' own; no model file is opened. What is
missing or cannot be read is passed over. The layouts follow what the programs do themselves:

    Hugging Face    huggingface_hub: constants.py; models--OWNER--NAME/snapshots/COMMIT/FILE
    LM Studio       lms: modelsFolder.ts; PUBLISHER/NAME/FILE
    Ollama          envconfig, manifest; manifests/REGISTRY/NAMESPACE/NAME/TAG name a file in blobs
    llama.cpp       common.cpp; its newer versions lay LLAMA_CACHE out as Hugging Face does
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgespec.catalog import hub_cache
from edgespec.catalog.paths import cache_dir_of, models_dir

log = logging.getLogger(__name__)

PLACES = ("edgespec", "hugging face", "lm studio", "ollama", "llama.cpp", "folder")
"""In the order in which they are searched."""

_DEEPEST = 8  # levels of directories
_LARGEST_LIST = 1 << 20  # bytes of a manifest, or of a settings file
_OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")  # where Linux runs it as a service
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_DEFAULTS = ("registry.ollama.ai/", "library/")
_DIGEST = re.compile(r"(?:sha256[:-])?([0-9a-f]{64})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A file that should be GGUF. name: what its program calls it, "" if it calls it nothing but
    the file's name. sha256: of its content, where a name tells, else ""."""

    place: str
    path: Path
    name: str = ""
    sha256: str = ""


def search(folders: Sequence[Path] = ()) -> Iterator[Found]:
    """Everything in the known places, in their order, and below `folders`."""
    yield from _gguf_files("edgespec", models_dir(), deepest=2)
    for repository in _entries(hub_cache.cache_dir()):
        if repository.name.startswith("models--"):
            yield from _gguf_files("hugging face", Path(repository.path, "snapshots"))
    for directory in _lm_studio():
        yield from _gguf_files("lm studio", directory)
    for directory in _ollama():
        yield from _ollama_models(directory)
    llama_cpp = os.environ.get("LLAMA_CACHE")
    yield from _gguf_files(
        "llama.cpp", _path(llama_cpp) if llama_cpp else cache_dir_of("llama.cpp")
    )
    for folder in folders:
        yield from _gguf_files("folder", _absolute(Path(os.path.expanduser(folder))))


def identity(path: Path) -> Hashable:
    """The same for all names of a file: links of both kinds."""
    try:
        found = path.stat()
        # Some file systems do not number their files.
        return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)
    except OSError:
        return os.path.realpath(path)
    except ValueError:
        return str(path)


def _lm_studio() -> Iterator[Path]:
    pointer = _small_text(_path("~/.lmstudio-home-pointer")).strip()
    homes = [os.environ.get("LMSTUDIO_HOME"), pointer, "~/.lmstudio", "~/.cache/lm-studio"]
    for home in dict.fromkeys(_path(one) for one in homes if one):
        chosen = _value(_small_json(home / "settings.json"), "downloadsFolder")
        if isinstance(chosen, str) and Path(chosen).is_absolute():
            yield Path(chosen)
        yield home / "models"


def _ollama() -> Iterator[Path]:
    yield _path(os.environ.get("OLLAMA_MODELS", "").strip("\"' ") or "~/.ollama/models")
    if sys.platform == "linux":
        yield _OLLAMA_SERVICE


def _ollama_models(models: Path) -> Iterator[Found]:
    # Newer versions write the first of the two, and read both.
    for root in (models / "manifests-v2", models / "manifests"):
        for entry in _files(root, deepest=4):
            manifest = Path(entry.path)
            parts = manifest.relative_to(root).parts
            if len(parts) != 4:
                continue
            sha256 = _model_digest(_small_json(manifest), models / "blobs")
            name = f"{'/'.join(parts[:3])}:{parts[3]}"
            for usual in _OLLAMA_DEFAULTS:
                name = name.removeprefix(usual)
            if sha256:
                yield Found("ollama", models / "blobs" / f"sha256-{sha256}", name, sha256)


def _model_digest(manifest: Any, blobs: Path) -> str:
    """The sha256 of the file that a manifest names; "" for none, as for a model in the cloud."""
    if sha256 := _model_layer(manifest):
        return sha256
    # One name for several formats: their manifests stand in the list, or are blobs as well.
    for variant in _list(manifest, "manifests"):
        reference = _digest(variant)
        other = _small_json(blobs / f"sha256-{reference}") if reference else variant
        if sha256 := _model_layer(variant) or _model_layer(other):
            return sha256
    return ""


def _model_layer(manifest: Any) -> str:
    layers = _list(manifest, "layers")
    models = [layer for layer in layers if _value(layer, "mediaType") == _OLLAMA_MODEL]
    return _digest(models[0]) if models else ""


def _digest(layer: Any) -> str:
    """Only ever hexadecimal digits: a manifest must not lead out of its directory."""
    value = _value(layer, "digest")
    match = _DIGEST.fullmatch(value) if isinstance(value, str) else None
    return match[1].lower() if match else ""


def _gguf_files(place: str, root: Path, deepest: int = _DEEPEST) -> Iterator[Found]:
    for entry in _files(root, deepest):
        if entry.name.lower().endswith(".gguf") and not _is_special(entry):
            yield Found(place, Path(entry.path), sha256=_linked_sha256(entry))


def _linked_sha256(entry: os.DirEntry[str]) -> str:
    """Hugging Face and Ollama keep contents in blobs/, named after their sha256."""
    try:
        target = Path(os.readlink(entry.path)) if entry.is_symlink() else Path()
    except OSError:
        return ""
    match = _DIGEST.fullmatch(target.name) if target.parent.name == "blobs" else None
    return match[1].lower() if match else ""


def _files(root: Path, deepest: int) -> Iterator[os.DirEntry[str]]:
    """All that is no directory, down to `deepest` levels. Links to directories are followed, but
    no directory is entered twice."""
    seen: set[Hashable] = set()
    waiting = deque([(root, deepest)])
    while waiting:
        directory, levels = waiting.popleft()
        itself = identity(directory)
        if itself in seen:
            continue
        seen.add(itself)
        for entry in _entries(directory):
            if not _is_directory(entry):
                yield entry
            elif levels > 1:
                waiting.append((Path(entry.path), levels - 1))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """What lies in a directory, by name. Hidden files are none of a user's: waste baskets, and the
    shadows that macOS puts beside files on foreign disks."""
    try:
        with os.scandir(directory) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except (OSError, ValueError) as error:
        log.debug("%s is passed over: %s", directory, error)
        return []
    return sorted(shown, key=lambda entry: entry.name)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_special(entry: os.DirEntry[str]) -> bool:
    """A pipe or a device: opening it could wait for ever."""
    try:
        return not stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return False  # a link that leads nowhere


def _small_json(path: Path) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(_small_text(path))
    except (ValueError, RecursionError):
        return None


def _small_text(path: Path) -> str:
    """A text file; "" for one that cannot be read, or is too large for what it should be."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        with path.open("rb") as file:
            data = file.read(_LARGEST_LIST + 1)
    except (OSError, ValueError) as error:
        log.debug("%s is passed over: %s", path, error)
        return ""
    return data.decode("utf-8-sig", errors="replace") if len(data) <= _LARGEST_LIST else ""


def _value(table: Any, key: str) -> Any:
    return table.get(key) if isinstance(table, dict) else None


def _list(table: Any, key: str) -> list[Any]:
    value = _value(table, key)
    return value if isinstance(value, list) else []


def _path(text: str) -> Path:
    """A path as a user writes it into the environment."""
    return _absolute(Path(os.path.expandvars(os.path.expanduser(text))))


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except OSError:  # the current directory is gone
        return path
