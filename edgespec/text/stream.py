"""The text of one running answer: from tokens to what may be shown."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from edgespec.text.detokenize import Detokenizer
from edgespec.text.stops import StopStrings


class TextStream:
    """Takes every token of an answer in order and hands out text that will not change any more.

    piece: the bytes of a token.
    stops: strings that end the answer and are cut from it.
    hidden: tokens without text, such as those that mean end of generation.

    Not thread-safe: one thread feeds it and takes from it. Raises OptionError for an unusable
    stop string.
    """

    def __init__(
        self,
        piece: Callable[[int], bytes],
        stops: Sequence[str] = (),
        hidden: Container[int] = frozenset(),
    ) -> None:
        self._detokenizer = Detokenizer(piece)
        self._stops = StopStrings(stops)
        self._hidden = hidden
        self._ready: list[str] = []

    @property
    def found(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.found

    def feed(self, token: int) -> bool:
        """Add a token. True when a stop string is complete: generation must end here."""
        if self.found is None and token not in self._hidden:
            self._ready.append(self._stops.feed(self._detokenizer.feed(token)))
        return self.found is not None

    def take(self) -> str:
        """The text that became certain since the last call."""
        return "".join(self.take_pieces())

    def take_pieces(self) -> list[str]:
        """The same, one text for every token that was fed since; "" for one that brought none."""
        pieces, self._ready = self._ready, []
        return pieces

    def finish(self) -> str:
        """The end: all text not taken yet, with what was held back."""
        self._ready.append(self._stops.feed(self._detokenizer.flush()))
        self._ready.append(self._stops.flush())
        return self.take()
