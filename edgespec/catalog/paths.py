"""Where edgespec's files live. No other module knows these directories.

`EDGESPEC_HOME` puts everything below one directory; otherwise the platform's own places are used.
Nothing is created here: whoever writes a file creates its directory.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_APP = "edgespec"


def config_dir() -> Path:
    """The user's `models.toml` and `config.toml`."""
    home = _home()
    return home / "config" if home else platformdirs.user_config_path(_APP, appauthor=False)


def models_dir() -> Path:
    """Pulled models."""
    home = _home()
    if home:
        return home / "models"
    return platformdirs.user_data_path(_APP, appauthor=False) / "models"


def data_dir() -> Path:
    """What the user made: chats."""
    home = _home()
    return home / "data" if home else platformdirs.user_data_path(_APP, appauthor=False)


def chats_file() -> Path:
    """The chats of the terminal UI."""
    return data_dir() / "chats.db"


def cache_dir() -> Path:
    """What can be deleted at any time and is then measured or computed anew."""
    home = _home()
    return home / "cache" if home else platformdirs.user_cache_path(_APP, appauthor=False)


def cache_dir_of(program: str) -> Path:
    """Where another program keeps its cache by this platform's custom, EDGESPEC_HOME or not."""
    return platformdirs.user_cache_path(program, appauthor=False, opinion=False)


def state_dir() -> Path:
    """Logs, and what was learned from earlier runs."""
    home = _home()
    return home / "state" if home else platformdirs.user_state_path(_APP, appauthor=False)


def log_file() -> Path:
    """The log, llama.cpp's messages included."""
    return state_dir() / "edgespec.log"


def _home() -> Path | None:
    home = os.environ.get("EDGESPEC_HOME")
    return Path(home).expanduser().absolute() if home else None
