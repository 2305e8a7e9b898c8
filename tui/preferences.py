"""How a user likes the screen: theme, where the speed is shown, other keys. Kept in one file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """stats: auto, strip or hidden. keys: command id -> keys, such as {"answer.stop": "f8"}."""

    theme: str = ""
    stats: str = "auto"
    keys: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> Preferences:
    """What is kept; what cannot be used is left out."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Preferences()
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return Preferences()
    if not isinstance(kept, dict):
        return Preferences()
    return Preferences(
        theme=_text(kept.get("theme")),
        stats=_text(kept.get("stats")) if kept.get("stats") in ("strip", "hidden") else "auto",
        keys={
            str(command): keys
            for command, keys in _mapping(kept.get("keys")).items()
            if isinstance(keys, str)
        },
    )


def write(path: Path, preferences: Preferences) -> None:
    """Keep them; where that cannot be done, they hold for this run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(preferences), indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
