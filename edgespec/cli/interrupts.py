"""What Ctrl-C does where a KeyboardInterrupt raised at whatever line is running would do harm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgespec.generation import Generation

INTERRUPTED = 130  # the exit code
_ENOUGH = 3

Handler = Callable[[int, FrameType | None], None]


class CtrlC:
    """Ctrl-C while an answer is made: it cancels the answer instead of raising.

    A KeyboardInterrupt could hit between taking a chunk and showing it, and the end of the
    answer would be lost. Whoever presses three times wants out, even if nothing moves any more;
    unwinding could wait for what does not move, so the process ends there and then.
    """

    def __init__(self) -> None:
        self.pressed = 0
        self._generation: Generation | None = None

    def watch(self, generation: Generation) -> Generation:
        """From now on this is what gets cancelled; at once if it was asked for meanwhile."""
        self._generation = generation
        if self.pressed:
            generation.cancel()
        return generation

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. Cancelling is safe here: it only puts a word into a queue."""
        self.pressed += 1
        if self.pressed >= _ENOUGH:
            os._exit(INTERRUPTED)
        if self._generation:
            self._generation.cancel()


@contextmanager
def ctrl_c_cancels() -> Iterator[CtrlC]:
    """Everything about an answer that must not be torn apart goes inside."""
    ctrl_c = CtrlC()
    with _handling(ctrl_c):
        yield ctrl_c


@contextmanager
def ctrl_c_leaves(last_words: Callable[[], None] = lambda: None) -> Iterator[None]:
    """For calls into llama.cpp from the main thread.

    Python runs signal handlers in the callbacks of such a call only, through which no exception
    can be raised: it would be printed and forgotten.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        last_words()
        os._exit(INTERRUPTED)

    with _handling(leave):
        yield


@contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Python's usual way, for what tidies up after itself."""
    with _handling(signal.default_int_handler):
        yield


@contextmanager
def _handling(handler: Handler) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
