"""Tells what a model thinks aloud from what it answers, while the text arrives in pieces."""

from __future__ import annotations

from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"


class Said(NamedTuple):
    """New text: of the thought, and of the answer."""

    thought: str
    answer: str


class Thoughts:
    """Splits one answer. It is a thought only where it begins as one.

    open: the template began a thought already. White space around the thought belongs to neither.
    """

    def __init__(self, *, open: bool = False) -> None:
        self._held = ""
        self._open: bool | None = True if open else None  # None: it is not known yet
        self._begun = False  # the part under way has text

    def feed(self, text: str) -> Said:
        """What has become certain with this piece."""
        self._held += text
        thought = ""
        if self._open is None and not self._decide():
            return Said("", "")
        if self._open:
            thought = self._thought()
            if self._open:
                return Said(thought, "")
        answer = self._stripped(self._held)
        self._held = ""
        return Said(thought, answer)

    def flush(self) -> Said:
        """The end: what was held back."""
        held, self._held = self._held, ""
        if self._open:
            return Said(self._stripped(held).rstrip(), "")
        return Said("", held)

    def _decide(self) -> bool:
        start = self._held.lstrip()
        if start.startswith(OPEN):
            self._open, self._held = True, start[len(OPEN) :]
        elif not OPEN.startswith(start):
            self._open, self._begun = False, True
        return self._open is not None

    def _thought(self) -> str:
        thought, close, rest = self._held.partition(CLOSE)
        if close:
            said = self._stripped(thought).rstrip()
            self._open, self._begun, self._held = False, False, rest
            return said
        # The end may be white space before the close, or the start of the close itself.
        sure = len(thought) - _overlap(thought)
        sure = len(thought[:sure].rstrip())
        self._held = thought[sure:]
        return self._stripped(thought[:sure])

    def _stripped(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        return text


def _overlap(text: str) -> int:
    """How many characters at the end could begin the close."""
    longest = min(len(text), len(CLOSE) - 1)
    return next((n for n in range(longest, 0, -1) if CLOSE.startswith(text[-n:])), 0)
