"""The terminal while the app runs: only the app writes on it, and it is always given back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def kept_clean(sink: Path) -> Iterator[None]:
    """What libraries write to the error output goes to the end of a file instead.

    Textual draws through `sys.__stderr__` where libraries of C would write as well: it gets a
    copy of its own, and the descriptor that everybody else knows leads into the file.
    """
    if os.name == "nt":  # the app draws on the standard output there
        yield
        return
    try:
        descriptor = os.open(sink, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    before, errors = sys.__stderr__, sys.stderr
    terminal = os.dup(2)
    with open(terminal, "w", encoding="utf-8", errors="replace", closefd=False) as drawn_on:
        os.dup2(descriptor, 2)
        os.close(descriptor)
        sys.__stderr__ = drawn_on  # type: ignore[misc]  # Textual looks there
        try:
            yield
        finally:
            sys.__stderr__, sys.stderr = before, errors  # type: ignore[misc]
            os.dup2(terminal, 2)
    os.close(terminal)
