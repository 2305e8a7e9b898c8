"""Tells what a model thinks aloud from what it answers."""

from __future__ import annotations

from typing import NamedTuple

_OPEN, _CLOSE = "<think>", "</think>"


class Parts(NamedTuple):
    """An answer in two parts. answer_at: where in the whole text the answer begins. open: it is
    still thinking."""

    thought: str
    answer: str
    answer_at: int
    open: bool


def split(text: str) -> Parts:
    """A text that begins with a thought, or whose template began one, in its parts."""
    begins = text.lstrip().startswith(_OPEN)
    thought, close, answer = text.partition(_CLOSE)
    if not close and not begins:
        return Parts("", text, 0, False)
    thought = thought.lstrip().removeprefix(_OPEN).strip()
    if not close:
        return Parts(thought, "", len(text), True)
    shown = answer.lstrip()
    return Parts(thought, shown, len(text) - len(shown), False)


def may_become_thought(text: str) -> bool:
    """Whether so short a beginning could still turn out to open a thought."""
    return _OPEN.startswith(text.lstrip())
