"""What was suggested for the last gaps: while a user types along, the rest of it is asked again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_KEPT = 16
_BEFORE, _AFTER = 256, 64  # characters around a gap by which it is known again


class _Suggestion(NamedTuple):
    before: str
    after: str
    text: str
    whole: bool  # whether `before` is all of the text before the gap


class Suggestions:
    """The last answers for gaps. They are guesses only: a wrong one costs a little time."""

    def __init__(self) -> None:
        self._last: deque[_Suggestion] = deque(maxlen=_KEPT)

    def add(self, before: str, after: str, text: str) -> None:
        """Keep what was suggested between `before` and `after`."""
        if text:
            whole = len(before) <= _BEFORE
            one = _Suggestion(before[-_BEFORE:], after[:_AFTER], text, whole)
            self._last.appendleft(one)

    def rest(self, before: str, after: str) -> str:
        """What an earlier suggestion goes on with where the user followed it up to here; "" if
        nobody did."""
        after = after[:_AFTER]
        for one in self._last:
            if one.after == after and (rest := _rest(one, before)):
                return rest
        return ""


def _rest(one: _Suggestion, before: str) -> str:
    # Editors send a window of the text, whose beginning moves along with the cursor.
    earliest = max(0, len(before) - len(one.before) - len(one.text))
    at = 0 if one.whole else before.rfind(one.before, earliest)
    if at < 0 or not before.startswith(one.before, at):
        return ""
    typed = before[at + len(one.before) :]
    return one.text[len(typed) :] if one.text.startswith(typed) else ""
