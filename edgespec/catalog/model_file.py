"""The files of one pulled model in a models directory, and what lies beside them.

`NAME.gguf` exists only whole and verified; the parts of a split model lie under their own names in
the folder `NAME`. `NAME.gguf.sha256` (for one file the form that `sha256sum -c` reads) says that
edgespec pulled it, and which version. `*.part` with its note `*.part.json` is the beginning of a
file, which the next pull continues. `.NAME.gguf.download-*` belongs to a pull that runs or was
killed; `.NAME.gguf.lock` says which of the two.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from edgespec.catalog.lock import locked

Phase = Literal["waiting", "downloading", "joining", "verifying"]
Progress = Callable[[int, int | None, Phase], None]
"""Called with bytes done, bytes in all (None: not known) and what is being done."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """What a file that is being fetched is: where it lies, in which version, how many bytes."""

    url: str
    version: str | None  # what the server tells the version by
    size: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """The beginning of a file, and beside it a note of what it is the beginning of."""

    path: Path

    @property
    def size(self) -> int:
        """Its bytes; 0 when there is none."""
        return self.path.stat().st_size if self.path.is_file() else 0

    @property
    def origin(self) -> Origin | None:
        """What the note says; None when there is none, or none that can be trusted."""
        try:
            return Origin(**json.loads(self._note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def begin(self, origin: Origin) -> None:
        """Start anew with nothing. Raises OSError."""
        self.delete()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._note.write_text(json.dumps(asdict(origin)), encoding="utf-8")

    def become(self, path: Path) -> None:
        """Give it its final name. Raises OSError."""
        os.replace(self.path, path)
        self.delete()

    def delete(self) -> None:
        """Forget what came. Raises OSError."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Names and keeps the files of one model. members: the parts of a split one."""

    directory: Path
    name: str
    members: tuple[str, ...] = ()

    @classmethod
    def found(cls, directory: Path, name: str) -> ModelFile:
        """The files that were pulled under this name, whether split or not."""
        single = cls(directory, name)
        if single._recorded[1:] != [name]:
            return single
        return cls(directory, name, tuple(p.name for p in sorted(single.folder.glob("*.gguf"))))

    @property
    def path(self) -> Path:
        """The file to load: the first part of a split model."""
        return self.paths[0]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The final names."""
        if self.members:
            return tuple(self.folder / name for name in self.members)
        return (self.directory / f"{self.name}.gguf",)

    @property
    def folder(self) -> Path:
        """Where the parts of a split model lie."""
        return self.directory / self.name

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is written first, one for each path."""
        return tuple(Part(path.with_name(f"{path.name}.part")) for path in self.paths)

    @property
    def whole(self) -> bool:
        """Whether all files are there."""
        return all(path.is_file() for path in self.paths)

    @property
    def size(self) -> int:
        """Bytes of all files. Raises OSError when one is missing."""
        return sum(path.stat().st_size for path in self.paths)

    @property
    def recorded_sha256(self) -> str | None:
        """The sha256 with which edgespec pulled it; None when it did not."""
        return next(iter(self._recorded), None)

    def record(self, sha256: str) -> None:
        """Note that edgespec pulled it: the sha256 of the file, or of the parts one after another.

        Raises OSError when that cannot be written.
        """
        line = f"{sha256}  {self.name if self.members else self.path.name}\n"
        self._record.write_text(line, encoding="utf-8", newline="\n")

    def delete(self) -> None:
        """Delete the files and their record. Raises OSError when that is not possible."""
        for path in self.paths:
            path.unlink(missing_ok=True)
        self.discard_parts()
        self._record.unlink(missing_ok=True)

    def discard_parts(self) -> None:
        """Delete what is no file yet. Raises OSError."""
        for part in self.parts:
            part.delete()
        if self.members:
            with suppress(OSError):  # it is not empty
                self.folder.rmdir()

    @contextmanager
    def alone(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Keep other pulls of this model out, and clean up after one that was killed.

        Parts stay: whoever fetches knows whether they can be continued.
        Raises OSError when the directory cannot be written.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with locked(self.directory / f".{self.name}.gguf.lock", waiting):
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
    def _recorded(self) -> list[str]:
        """The sha256, and the name of the file or of the folder."""
        try:
            return self._record.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            return []

    @property
    def _prefix(self) -> str:
        return f".{self.name}.gguf.download-"

    @property
    def _record(self) -> Path:
        return self.directory / f"{self.name}.gguf.sha256"


def file_sha256(paths: Path | Sequence[Path], progress: Progress) -> str:
    """Hash a file, or several one after another, reporting it as `verifying`. Raises OSError."""
    paths = [paths] if isinstance(paths, Path) else paths
    digest, done, size = hashlib.sha256(), 0, sum(path.stat().st_size for path in paths)
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                progress(done, size, "verifying")
    return digest.hexdigest()
