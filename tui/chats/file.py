"""Opening the file of chats, whatever state it is in."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sqlite3
import textwrap
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from edgespec.tui.chats.schema import (
    SQLITE_ERRORS,
    DamageError,
    Migrations,
    NewerVersionError,
    check_file,
    check_tables,
    is_damage,
    upgrade,
    version_of,
)

log = logging.getLogger(__name__)

_PRIVATE = 0o600
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CLOSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class Opened(NamedTuple):
    """problem: "" or one line for the user. in_memory: nothing of this run will be kept."""

    connection: sqlite3.Connection
    problem: str = ""
    in_memory: bool = False


def open_file(path: Path, migrations: Migrations, patience_s: float, now: float) -> Opened:
    """The file of chats, made if it is absent; memory where it cannot be used.

    A damaged one is set aside, and a new one begun. patience_s: how long to wait for another
    program that writes to it. now: names what is set aside.
    """
    try:
        try:
            return Opened(_from_file(path, migrations, patience_s))
        except (*SQLITE_ERRORS, DamageError) as error:
            if not is_damage(error):
                raise
            log.error("%s is damaged: %s", path, error)
            kept = _set_aside(path, now)
            problem = (
                f"The chats in {path} are damaged ({_one_line(error)}): that file is now "
                f"{kept.name}, and a new one was begun; `sqlite3 {kept.name} .recover` may save "
                "some of it."
            )
            return Opened(_from_file(path, migrations, patience_s), problem)
    except (OSError, *SQLITE_ERRORS, DamageError, NewerVersionError) as error:
        log.error("%s cannot be used: %r", path, error)
        why, step = explained(error)
        problem = (
            f"Chats cannot be kept in {path}: {why}. Those of this run live in memory and are "
            f"gone when edgespec ends; {step}."
        )
        return Opened(_from_memory(path, migrations), problem, in_memory=True)


def explained(error: Exception) -> tuple[str, str]:
    """Why a file cannot be used, and what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    number = getattr(error, "errno", None)
    if isinstance(error, NewerVersionError):
        return "a newer edgespec wrote it", "update edgespec to have these chats"
    if code == sqlite3.SQLITE_FULL or number == errno.ENOSPC:
        return "the disk is full", "free some space"
    if code in _HELD:
        return "another program holds it", "close that program"
    if number == errno.EISDIR:
        return "it is a directory", "move it away"
    if isinstance(error, OSError) or code in _CLOSED:
        why = (isinstance(error, OSError) and error.strerror) or _one_line(error)
        return why, "make it writable, or set EDGESPEC_HOME to another directory"
    return _one_line(error), "the log may tell more"


def _one_line(error: Exception) -> str:
    """SQLite quotes whole statements of a damaged schema."""
    return textwrap.shorten(str(error), 100, placeholder="...")


def memory_copy(source: sqlite3.Connection, migrations: Migrations) -> sqlite3.Connection:
    """All that `source` holds, in memory. Raises DamageError, or what SQLite raises."""
    memory = _connect(":memory:", 0)
    try:
        source.backup(memory, progress=_never_waiting)
    except BaseException:
        memory.close()
        raise
    return _prepared(memory, migrations)


def empty_memory(migrations: Migrations) -> sqlite3.Connection:
    """The tables with nothing in them, in memory.

    Foreign keys are off: what is added to a chat that could not be read is kept all the same.
    """
    memory = _connect(":memory:", 0)
    upgrade(memory, migrations, lambda source, version: None)
    return memory


def _from_file(path: Path, migrations: Migrations, patience_s: float) -> sqlite3.Connection:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(mode=_PRIVATE)  # SQLite gives its other files the same mode
    connection = _prepared(_connect(path, patience_s), migrations, path)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        # Refused while another window does the same, and on some network drives.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _from_memory(path: Path, migrations: Migrations) -> sqlite3.Connection:
    """With the chats of the file, as far as they can be read."""
    # Immutable: reads also where the files beside it that WAL needs cannot be made.
    for how in ("mode=ro", "immutable=1"):
        try:
            address = f"{path.absolute().as_uri()}?{how}"
            with closing(_connect(address, 0, uri=True)) as source:
                return memory_copy(source, migrations)
        except (OSError, ValueError, sqlite3.Error, DamageError, NewerVersionError) as error:
            log.info("nothing is read from %s (%s): %s", path, how, error)
    return empty_memory(migrations)


def _connect(place: Path | str, patience_s: float, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=patience_s, isolation_level=None, uri=uri)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    connection.row_factory = sqlite3.Row
    # LIKE knows the letters of ASCII only, and stops at a NUL character. Takes a blob: a text
    # that is no UTF-8 would end the search.
    connection.create_function("holds", 2, _holds, deterministic=True)
    return connection


def _prepared(
    connection: sqlite3.Connection, migrations: Migrations, path: Path | None = None
) -> sqlite3.Connection:
    """Checked and of the newest version; closed when that fails."""

    def back_up(source: sqlite3.Connection, version: int) -> None:
        if path is not None:
            _back_up(source, path, version)

    try:
        check_file(connection)
        upgrade(connection, migrations, back_up)
        connection.execute("PRAGMA foreign_keys = ON")
        check_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _back_up(source: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy the file beside itself, as `chats.db.v1.bak`."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=_PRIVATE)
    try:
        with closing(sqlite3.connect(unfinished)) as copy:
            source.backup(copy, progress=_never_waiting)
            still = version_of(copy) == version  # another window may have been quicker
        if still:
            unfinished.replace(path.with_name(f"{path.name}.v{version}.bak"))
    finally:
        unfinished.unlink(missing_ok=True)


def _set_aside(path: Path, now: float) -> Path:
    """Rename the file and those SQLite keeps beside it; nothing is overwritten."""
    when = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(now))
    for number in itertools.count(1):
        tail = f"-{number}" if number > 1 else ""
        kept = path.with_name(f"{path.stem}.broken-{when}{tail}{path.suffix}")
        with suppress(FileExistsError):
            kept.touch(exist_ok=False)
            break
    try:
        path.replace(kept)
    except OSError:
        kept.unlink()
        raise
    for ending in ("-wal", "-shm"):
        beside = path.with_name(f"{path.name}{ending}")
        if beside.exists():
            beside.replace(kept.with_name(f"{kept.name}{ending}"))
    return kept


def _holds(text: bytes, sought: str) -> bool:
    """Whether `text` contains `sought`, which is case-folded."""
    return sought in text.decode("utf-8", "replace").casefold()


def _never_waiting(status: int, remaining: int, total: int) -> None:
    """Python's backup would otherwise wait for a held file without end."""
    if status in _HELD:
        raise sqlite3.OperationalError("database is locked")
