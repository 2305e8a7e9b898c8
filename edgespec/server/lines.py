"""Where an answer in an editor ends because of its lines, as llama.cpp's server has it."""

from __future__ import annotations

import time
from collections.abc import Callable

_BLANKS = " \t"


class LineLimits:
    """Cuts the text of one answer.

    indent: a new line with less white space in front ends the answer, and is cut, even if it is
    empty. 0: any line will do. seconds: once so much time has passed since `start`, the answer
    ends with the line; 0: never.
    """

    def __init__(
        self, indent: int, seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ended = False
        self.has_new_line = False
        self._indent = indent
        self._seconds = seconds
        self._clock = clock
        self._began: float | None = None
        self._blanks: str | None = None  # at the start of a new line, while they are too few

    def start(self) -> None:
        """The first token is there."""
        if self._began is None:
            self._began = self._clock()

    def feed(self, text: str) -> str:
        """What of it can be shown now; nothing more once the answer has ended."""
        shown = []
        for character in text:
            if self.ended:
                break
            shown.append(self._next(character))
        return "".join(shown)

    def flush(self) -> str:
        """The end: white space still held back."""
        blanks, self._blanks = self._blanks or "", None
        return "" if self.ended else blanks

    def _next(self, character: str) -> str:
        if self._blanks is not None:
            if character not in _BLANKS:
                self.ended = True
                return ""
            blanks = self._blanks + character
            enough = len(blanks) >= self._indent
            self._blanks = None if enough else blanks
            return blanks if enough else ""
        if character == "\n":
            self.has_new_line = True
            self.ended = self._is_over()
            self._blanks = "" if self._indent > 0 else None
        return character

    def _is_over(self) -> bool:
        if self._seconds <= 0 or self._began is None:
            return False
        return self._clock() - self._began > self._seconds
