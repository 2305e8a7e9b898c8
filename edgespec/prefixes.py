"""Prefixes that survive a restart: what the slots of a model's memory hold, as files.

Reading a long prompt costs minutes on a CPU, reading its memory back a second. A file is named
after its own hash, so one that was damaged or that nobody here wrote is never given to
llama.cpp.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from edgespec.errors import BackendError, OptionError

SHORTEST = 256
"""Tokens of a prefix that is worth a file; shorter ones are read again as fast."""

_SUFFIX = ".prefix"
_log = logging.getLogger("edgespec")


class Memory(Protocol):
    """A model's memory, as far as it is needed here."""

    @property
    def max_sequences(self) -> int: ...

    def save(self, sequence: int, tokens: Sequence[int], path: Path) -> None:
        """Write what the sequence holds, which are these tokens. Raises BackendError."""

    def restore(self, sequence: int, path: Path) -> list[int]:
        """Make an empty sequence hold what was written; returns its tokens. Raises
        BackendError; the sequence is empty then."""


class Prefixes:
    """The files of one model in one directory.

    key: what the memory depends on, such as the model's file and the types of the cache. Files of
    other keys are left alone. Raises OptionError for a directory that cannot be used.
    """

    def __init__(self, directory: Path, key: str) -> None:
        self._directory = directory
        self._key = hashlib.sha256(key.encode()).hexdigest()[:16]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for left in directory.glob(f"{self._key}-*.part"):  # of a run that was killed
                left.unlink()
        except OSError as error:
            raise OptionError(
                f"{directory} cannot keep prompts: {error.strerror or error}. Choose another "
                "--prompt-cache, or leave it out."
            ) from error

    def restore(self, memory: Memory) -> dict[int, list[int]]:
        """Fill the slots, the newest files first; returns what they hold now."""
        held: dict[int, list[int]] = {}
        for path in self._files()[: memory.max_sequences]:
            slot = len(held)
            try:
                if self._hash(path) == path.stem:
                    held[slot] = memory.restore(slot, path)
                    continue
            except (BackendError, OSError) as error:
                _log.warning("%s could not be read: %s", path.name, error)
                held.pop(slot, None)
            with contextlib.suppress(OSError):
                path.unlink()
        return held

    def save(self, memory: Memory, held: Mapping[int, Sequence[int]]) -> None:
        """Write what the slots hold, the most recently used last; older files go."""
        written = set()
        for slot, tokens in held.items():
            if len(tokens) >= SHORTEST:
                try:
                    written.add(self._write(memory, slot, tokens))
                except (BackendError, OSError) as error:
                    _log.warning("a prompt could not be kept: %s", error)
        if written:
            for path in self._files():
                if path not in written:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _write(self, memory: Memory, slot: int, tokens: Sequence[int]) -> Path:
        part = self._directory / f"{self._key}-{os.getpid()}-{slot}.part"
        try:
            memory.save(slot, tokens, part)
            path = self._directory / (self._hash(part) + _SUFFIX)
            part.replace(path)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
        return path

    def _hash(self, path: Path) -> str:
        with path.open("rb") as file:
            return f"{self._key}-{hashlib.file_digest(file, 'sha256').hexdigest()}"

    def _files(self) -> list[Path]:
        """The newest first."""
        try:
            found = list(self._directory.glob(f"{self._key}-*{_SUFFIX}"))
            return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
        except OSError:
            return []
