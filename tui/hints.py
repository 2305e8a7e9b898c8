"""What a line being typed could become: a command, or a file's path."""

from __future__ import annotations

import re
from pathlib import Path

from edgespec.tui.attachments import complete
from edgespec.tui.commands import completions
from edgespec.tui.widgets.prompt import Hint

_PATH = re.compile(r'(?:^|\s)@([^\s"@]*)$')


def hints(line: str, directory: Path) -> list[Hint]:
    """For the text before the cursor; one that begins with a slash stands alone in the prompt."""
    if line.startswith("/") and "/" not in line[1:]:
        name = line[1:].partition(" ")[0]
        return [
            Hint(f"/{command.slash} ", _about(command.takes, command.help), len(line))
            for command in completions(line)
            if " " not in line or command.slash == name
        ]
    path = _PATH.search(line)
    if path is None:
        return []
    typed = path.group(1)
    return [Hint(_mention(found), "", len(typed) + 1) for found in complete(typed, directory)]


def _mention(path: str) -> str:
    if " " not in path:
        return f"@{path}"
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'


def _about(takes: str, help: str) -> str:
    return f"{takes}: {help}" if takes else help
