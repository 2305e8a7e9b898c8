"""Follows the fenced code blocks of a Markdown text."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Fences:
    """Takes a text line by line. open: what the block began with, "" outside of one."""

    def __init__(self) -> None:
        self.open = ""

    def takes(self, line: str) -> bool:
        """Whether the next line belongs to a block; its fences do."""
        mark = _FENCE.match(line)
        rest = line[mark.end() :] if mark else ""
        if self.open:
            if mark and mark[1].startswith(self.open) and not rest.strip():
                self.open = ""
            return True
        if mark and not (mark[1][0] == "`" and "`" in rest):
            self.open = mark[1]
        return bool(self.open)
