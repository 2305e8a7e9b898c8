"""What is on the screen, and comparing it with what was there before (golden screens).

A golden screen is the text of a state that somebody has looked at, and the picture where colours
matter. To accept a new one: EDGESPEC_GOLDEN=write, then look at the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from textual.app import App

_GOLDEN = Path(__file__).parent / "golden"
_IDS = re.compile(r"terminal-\d+")
_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # addresses that nobody should ask


def rows(app: App[Any]) -> list[str]:
    """The lines on the screen."""
    strips = app.screen._compositor.render_strips(app.size)
    return [strip.text.rstrip() for strip in strips]


def text(app: App[Any]) -> str:
    """All of it."""
    return "\n".join(rows(app)) + "\n"


def check_golden(app: App[Any], name: str, *, colours: bool = False) -> None:
    """Raises AssertionError if the screen is not as it was; what it is now is left beside it."""
    seen = {f"{name}.txt": text(app)}
    if colours:
        picture = _FONTS.sub("", app.export_screenshot(title="edgespec"))
        seen[f"{name}.svg"] = _IDS.sub("terminal", picture) + "\n"
    wrong = [file for file, now in seen.items() if _before(file) != now]
    if os.environ.get("EDGESPEC_GOLDEN") == "write":
        _GOLDEN.mkdir(exist_ok=True)
        for file in wrong:
            (_GOLDEN / file).write_text(seen[file], encoding="utf-8")
        return
    for file in wrong:
        (_GOLDEN / f"actual-{file}").write_text(seen[file], encoding="utf-8")
    assert seen[f"{name}.txt"] == _before(f"{name}.txt")
    assert not wrong, f"only colours differ: look at {_GOLDEN / f'actual-{name}.svg'}"


def _before(file: str) -> str:
    path = _GOLDEN / file
    return path.read_text(encoding="utf-8") if path.exists() else ""
