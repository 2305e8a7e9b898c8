"""The file of one pulled model in a models directory, and what lies beside it.

`NAME.gguf` exists only whole and verified. `NAME.gguf.sha256` (the form `sha256sum -c` reads) says
that edgespec pulled it, and which version. `NAME.gguf.part` and `.NAME.gguf.download-*` belong to a
pull that runs or was killed; `.NAME.gguf.lock` says which of the two.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgespec.catalog.lock import locked

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Names and keeps the files of one model."""

    directory: Path
    name: str

    @property
    def path(self) -> Path:
        """The final name."""
        return self.directory / f"{self.name}.gguf"

    @property
    def part(self) -> Path:
        """The name while it is being written."""
        return self._beside(".part")

    @property
    def recorded_sha256(self) -> str | None:
        """The sha256 with which edgespec pulled it; None when it did not."""
        try:
            return self._beside(".sha256").read_text(encoding="utf-8").split()[0]
        except (OSError, UnicodeDecodeError, IndexError):
            return None

    def record(self, sha256: str) -> None:
        """Note that edgespec pulled this file. Raises OSError when that cannot be written."""
        line = f"{sha256}  {self.path.name}\n"
        self._beside(".sha256").write_text(line, encoding="utf-8", newline="\n")

    def delete(self) -> None:
        """Delete the file and its record. Raises OSError when that is not possible."""
        self.path.unlink(missing_ok=True)
        self._beside(".sha256").unlink(missing_ok=True)

    @contextmanager
    def alone(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Keep other pulls of this model out, and clean up after one that was killed.

        Raises OSError when the directory cannot be written.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with locked(self.directory / f".{self.path.name}.lock", waiting):
            self.part.unlink(missing_ok=True)
            for folder in self.directory.glob(f"{self._prefix}*"):
                shutil.rmtree(folder, ignore_errors=True)
            yield

    @contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """A folder that goes away, beside the model: the system's own place is often small."""
        folder = tempfile.mkdtemp(prefix=self._prefix, dir=self.directory)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _prefix(self) -> str:
        return f".{self.path.name}.download-"

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def file_sha256(path: Path, progress: Callable[[int, int], None]) -> str:
    """Hash a file, reporting bytes done and bytes in all. Raises OSError."""
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress(done, size)
    return digest.hexdigest()
