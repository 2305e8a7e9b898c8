"""Token ids to text, one token at a time."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class Detokenizer:
    """Turns a stream of tokens into text that never changes afterwards.

    A token may hold only a part of a character, so bytes are held back until their character is
    complete. Bytes that cannot become a character come out as U+FFFD at once.
    `piece` gives the bytes of a token.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """The text that is certain now and was not before this token; may be empty."""
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """The end: U+FFFD for a character that stayed incomplete, else nothing."""
        return self._decoder.decode(b"", final=True)
