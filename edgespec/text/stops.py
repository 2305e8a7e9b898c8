"""Finds stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edgespec.errors import OptionError


class StopStrings:
    """Cuts text at the first stop string and holds back what could become one.

    The stop string that is complete first wins, so that generation ends at once; of several
    complete at the same character the longest one does, and all of it is cut. How the text is
    split into pieces makes no difference. Any number of stop strings costs the same per character.

    Raises OptionError for an empty stop string, or one that is not a string.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.found: str | None = None  # the stop string that ended the text
        self._automaton = _Automaton(_checked(stops))
        self._state = 0
        self._held = ""  # the longest end of the text that is the start of a stop string

    def feed(self, text: str) -> str:
        """The text that can be shown now; nothing more once a stop string was found."""
        if self.found is not None:
            return ""
        if self._automaton.is_empty:
            return text
        buffer = self._held + text
        for index, character in enumerate(text, start=len(self._held) + 1):
            self._state = self._automaton.step(self._state, character)
            stop = self._automaton.match[self._state]
            if stop is not None:
                self.found, self._held = stop, ""
                return buffer[: index - len(stop)]
        safe = len(buffer) - self._automaton.depth[self._state]
        self._held = buffer[safe:]
        return buffer[:safe]

    def flush(self) -> str:
        """The end: the text still held back, which no stop string can claim any more."""
        rest, self._held, self._state = self._held, "", 0
        return rest


def _checked(stops: Sequence[str]) -> Sequence[str]:
    if isinstance(stops, str):  # it is a sequence of strings, but surely not the one meant
        raise OptionError(f"stop is the string {stops!r}, not a list; write [{stops!r}].")
    for index, stop in enumerate(stops):
        if not isinstance(stop, str):
            raise OptionError(
                f"stop[{index}] is {stop!r}, which is not a string; put it in quotes."
            )
        if not stop:
            raise OptionError(f"stop[{index}] is empty and would end every answer; leave it out.")
    return stops


class _Automaton:
    """Aho-Corasick: state = the longest suffix of the text that is the start of a stop string.

    depth: per state, how long that suffix is.
    match: per state, the longest stop string the text ends with.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.depth = [0]
        self.match: list[str | None] = [None]
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [0]  # per state, the state of the next shorter suffix
        for word in words:
            self._insert(word)
        self._link()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return len(self._next) == 1

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)

    def _insert(self, word: str) -> None:
        state = 0
        for character in word:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match.append(None)
            state = self._next[state][character]
        self.match[state] = word

    def _link(self) -> None:
        # Breadth first: a fallback is shorter than its state, so it is linked already.
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for character, child in self._next[state].items():
                self._fallback[child] = self.step(self._fallback[state], character)
                waiting.append(child)
            if self.match[state] is None:
                self.match[state] = self.match[self._fallback[state]]
