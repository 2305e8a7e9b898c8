"""Who proposed which characters of an answer, as runs short enough to keep with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from edgespec.types import TARGET

_LETTERS = {
    TARGET: "t",
    "model": "m",
    "n-gram": "n",
    "corpus": "c",
    "prediction": "p",
    "grammar": "g",
}
_SOURCES = {letter: source for source, letter in _LETTERS.items()}
_UNKNOWN = "x"  # a drafter without a letter of its own
_RUN = re.compile(r"(\d+)([a-z])")


class Provenance:
    """Runs of characters with their source: TARGET or a drafter's name."""

    def __init__(self, runs: Iterable[tuple[str, int]] = ()) -> None:
        self._runs: list[tuple[str, int]] = []
        for source, length in runs:
            self.add(source, length)

    def add(self, source: str, length: int) -> None:
        """`length` more characters."""
        if length <= 0:
            return
        if self._runs and self._runs[-1][0] == source:
            length += self._runs.pop()[1]
        self._runs.append((source, length))

    def spans(self, text: str) -> Iterator[tuple[str, str]]:
        """(source, piece) of all of `text`; what no run covers is the target's."""
        at = 0
        for source, length in self._runs:
            if at >= len(text):
                return
            yield source, text[at : at + length]
            at += length
        if at < len(text):
            yield TARGET, text[at:]

    def encoded(self) -> str:
        """Such as `12t5m3t`."""
        return "".join(f"{n}{_LETTERS.get(source, _UNKNOWN)}" for source, n in self._runs)

    @classmethod
    def decoded(cls, kept: str) -> Provenance:
        """What `encoded` made; what cannot be read is left out."""
        return cls(
            (_SOURCES.get(letter, "unknown"), int(length)) for length, letter in _RUN.findall(kept)
        )
