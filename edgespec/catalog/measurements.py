"""What was measured on this machine, kept between runs in the cache directory."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgespec.catalog.paths import cache_dir

log = logging.getLogger(__name__)


def fingerprint(path: Path) -> str:
    """Tells files apart without reading them: path, size and time of last change."""
    stat = path.stat()
    return f"{path.absolute()}:{stat.st_size}:{stat.st_mtime_ns}"


def recall(key: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was kept under `key`, None if nothing readable was."""
    try:
        found = json.loads(_file(key).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("key") != dict(key):
        return None
    value = found.get("value")
    return value if isinstance(value, dict) else None


def keep(key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    """Remember `value`. A failure is only logged: it will be measured again."""
    file = _file(key)
    text = json.dumps({"key": dict(key), "value": dict(value)}, indent=1)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as temporary:
            temporary.write(text)
        Path(name).replace(file)
    except OSError as error:
        log.warning("measurements cannot be kept in %s: %s", file, error)


def _file(key: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:24]
    return cache_dir() / "measurements" / f"{name}.json"
