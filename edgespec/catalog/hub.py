"""Fetches models of the Hugging Face Hub into its shared cache: no program keeps a second copy.

The library says what a file is and who asks, and keeps the cache. The bytes come by `web.fetch`,
because the library begins anew after an interruption. Import this module inside functions only: the
library takes half a second.
"""

from __future__ import annotations

import difflib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from huggingface_hub import (
    DeleteCacheStrategy,
    HfApi,
    HfFileMetadata,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    scan_cache_dir,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from edgespec.catalog import web
from edgespec.catalog.gguf_header import DamagedFileError, read_header
from edgespec.catalog.hub_cache import HubFiles, as_sha256, cache_dir, is_offline, sha256_of
from edgespec.catalog.lock import locked
from edgespec.catalog.model_file import Part, Progress, file_sha256
from edgespec.catalog.patience import BUSY, PassingError, Patience, Sleep, asked_to_wait
from edgespec.errors import CatalogError, DownloadError

T = TypeVar("T")

# Whatever the library's HTTP client raises; which client that is depends on the version.
_CLIENT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
_LOGIN = "run `hf auth login` or set HF_TOKEN"


def pull(
    files: HubFiles,
    progress: Progress,
    *,
    sha256: str | None = None,
    size: int | None = None,
    force: bool = False,
    sleep: Sleep = time.sleep,
) -> Path:
    """Fetch what is missing into the cache, verified; returns the file to load.

    sha256: of the file; for a split model None. size: bytes of all files.
    Raises DownloadError, and OSError when the cache cannot be written.
    """
    found = files.cached()
    sound = found is not None and all(
        _sound(path, sha256 or sha256_of(path), progress) for path in found
    )
    if found and sound and not force:
        return found[0]
    if is_offline():
        state = (
            "is not to be fetched anew into" if sound else "is damaged in" if found else "is not in"
        )
        raise DownloadError(
            f"{files.files[0]} of {files.repo} {state} the Hugging Face cache, and "
            "HF_HUB_OFFLINE forbids the network. Unset it, then pull again."
        )
    # It warns of missing logins and the like; edgespec says one line, or nothing.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    hub = _Hub(files, endpoint.rstrip("/"), sleep)
    infos = [hub.info(name) for name in files.files]
    total = sum(info.size or 0 for info in infos) if all(info.size for info in infos) else None
    _check_promise(files, as_sha256(infos[0].etag), total, sha256, size)
    done = 0
    for name, info in zip(files.files, infos, strict=True):
        received = partial(_received, progress, done, total)
        hub.bring(name, info, sha256 or as_sha256(info.etag), progress, received, anew=force)
        done += info.size or 0
    for path in found or ():
        if not path.is_symlink():  # a system without links: a copy of what was there before
            path.unlink()
    paths = [hub.link(name, info) for name, info in zip(files.files, infos, strict=True)]
    return paths[0]


def deletion(files: HubFiles) -> DeleteCacheStrategy | None:
    """The library's plan to delete these files and nothing else; None when they are not there.

    Raises CatalogError when the library is too old for that.
    """
    found = files.cached()
    if found is None:
        return None
    scan = scan_cache_dir(cache_dir())
    if not hasattr(scan, "delete_files"):
        raise CatalogError(
            "This version of huggingface_hub deletes whole revisions only. Update it with "
            "`pip install -U huggingface_hub`, or use `hf cache`."
        )
    every = (file for repo in scan.repos for one in repo.revisions for file in one.files)
    return scan.delete_files(*(file for file in every if file.file_path in found))


@dataclass(frozen=True, slots=True)
class _Hub:
    """Asks the hub, or its mirror, for one repository."""

    files: HubFiles
    endpoint: str
    sleep: Sleep

    def info(self, name: str) -> HfFileMetadata:
        """What the hub says of a file. Raises DownloadError."""

        def head() -> HfFileMetadata:
            url = self._url(name, self.files.revision)
            return get_hf_file_metadata(url, endpoint=self.endpoint)

        info = self._ask(name, head)
        if not info.etag or not info.commit_hash or set(info.etag) & set("/\\"):
            raise DownloadError(
                f"{self.endpoint} does not answer like the Hugging Face Hub. Check HF_ENDPOINT."
            )
        return info

    def bring(
        self,
        name: str,
        info: HfFileMetadata,
        sha256: str | None,
        progress: Progress,
        received: Callable[[int, int | None], None],
        *,
        anew: bool,
    ) -> None:
        """Have the content of a file in the cache. Raises DownloadError and OSError."""
        etag = info.etag or ""
        blob, lock = self.files.blob(etag), self.files.lock(etag)
        # So named, `hf cache prune` knows what it is.
        part = Part(blob.with_name(f"{etag}.edgespec.incomplete"))
        lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, lambda: progress(0, None, "waiting")):
            if not anew and blob.is_file() and _sound(blob, sha256, progress):
                return
            url = self._url(name, info.commit_hash or "")
            headers = build_hf_headers()
            web.fetch(url, part, received, headers=headers, size=info.size, sleep=self.sleep)
            if not _sound(part.path, sha256, progress):
                part.delete()
                raise DownloadError(
                    f"{name} of {self.files.repo} came damaged: it is not what the hub describes. "
                    "What came was deleted; pull again."
                )
            part.become(blob)

    def link(self, name: str, info: HfFileMetadata) -> Path:
        """Let the library enter a content under the file's name. Raises DownloadError."""
        repo, revision, cache = self.files.repo, self.files.revision, cache_dir()

        def enter() -> str:
            return hf_hub_download(
                repo, name, revision=revision, cache_dir=cache, endpoint=self.endpoint
            )

        path = Path(self._ask(name, enter))
        if not path.is_symlink():
            self.files.blob(info.etag or "").unlink(missing_ok=True)  # it was copied
        return path

    def _url(self, name: str, revision: str) -> str:
        return hf_hub_url(self.files.repo, name, revision=revision, endpoint=self.endpoint)

    def _ask(self, name: str, question: Callable[[], T]) -> T:
        patience = Patience(f"{name} of {self.files.repo} from {self.endpoint}", self.sleep)
        while True:
            try:
                return question()
            except EntryNotFoundError as error:
                if not isinstance(error, LocalEntryNotFoundError):
                    raise DownloadError(self._no_file(name)) from error
                passing = PassingError(_line(error.__cause__ or error))
            except HFValidationError as error:
                raise DownloadError(
                    f"{self.files.repo} is no repository: {_line(error)}"
                ) from error
            except HfHubHTTPError as error:
                if error.response.status_code not in BUSY:
                    raise DownloadError(self._refusal(error)) from error
                wait_s = asked_to_wait(error.response.headers)
                passing = PassingError(f"HTTP {error.response.status_code}", wait_s)
            except _CLIENT_ERROR as error:
                passing = PassingError(_line(error))
            patience.wait(passing)

    def _refusal(self, error: HfHubHTTPError) -> str:
        repo, page = self.files.repo, f"{self.endpoint}/{self.files.repo}"
        if isinstance(error, GatedRepoError):
            return (
                f"{repo} is given only to those who accept its licence: do that at {page}, "
                f"then {_LOGIN}, and pull again."
            )
        if isinstance(error, RepositoryNotFoundError):
            return (
                f"There is no repository {repo}, or it is private. Check its name at {page}; "
                f"if it is private, {_LOGIN}."
            )
        if isinstance(error, RevisionNotFoundError):
            return f"{repo} has no revision {self.files.revision!r}. See {page}/commits/main."
        status = error.response.status_code
        if status in (401, 403):
            return (
                f"The hub refuses {repo} (HTTP {status}). Check its name and your token: {_LOGIN}."
            )
        return f"The hub does not give {repo}: HTTP {status}. Look at {page}."

    def _no_file(self, name: str) -> str:
        repo, revision = self.files.repo, self.files.revision
        try:
            names = HfApi(endpoint=self.endpoint).list_repo_files(repo, revision=revision)
        except (OSError, _CLIENT_ERROR):
            names = []  # the hint is not worth another error
        models = [one for one in names if one.lower().endswith(".gguf")]
        near = difflib.get_close_matches(name, models, 3, 0.4) or models[:3]
        hint = f"Nearest: {', '.join(near)}" if near else "It has no GGUF files"
        at = "" if revision == "main" else f" in revision {revision}"
        return f"{repo} has no file {name}{at}. {hint if names else 'Check the name'}."


def _sound(path: Path, sha256: str | None, progress: Progress) -> bool:
    """Whether a file is what it should be; without a sha256, whether it is a whole GGUF at all."""
    if sha256 is not None:
        return file_sha256(path, progress) == sha256
    try:
        read_header(path)
    except DamagedFileError:
        return False
    return True


def _check_promise(
    files: HubFiles, offered: str | None, total: int | None, sha256: str | None, size: int | None
) -> None:
    """Raises DownloadError before gigabytes come that models.toml does not describe."""
    for what, there, wanted in (("sha256", offered, sha256), ("size", total, size)):
        if None not in (there, wanted) and there != wanted:
            raise DownloadError(
                f"{files.files[0]} of {files.repo} is not what models.toml describes: its {what} "
                f"is {there}, not {wanted}. Correct models.toml, or name the revision there."
            )


def _received(progress: Progress, before: int, total: int | None, done: int, _: int | None) -> None:
    progress(before + done, total, "downloading")


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
