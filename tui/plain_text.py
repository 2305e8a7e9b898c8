"""Text of a model or a file, made harmless for a terminal without changing its length."""

from __future__ import annotations

import re

# Control characters except tab and newline; those that turn the writing direction around or join
# letters invisibly, with which text can look like other text; and halves of characters.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """The same with every such character replaced by one that is seen."""
    return _HARMFUL.sub("�", text)


def one_line(text: str, width: int) -> str:
    """Harmless, on one line, and cut to `width` characters."""
    line = " ".join(harmless(text[: 4 * width]).split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"
