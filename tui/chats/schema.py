"""The tables that hold chats, and bringing those of an older edgespec up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

Migrations = Sequence[Sequence[str]]

# Number n leads from version n - 1 to version n. Once released, one is never changed.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE chats (
            id INTEGER PRIMARY KEY,
            title TEXT NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            settings TEXT NOT NULL,
            leaf INTEGER
        )""",
        "CREATE INDEX chats_by_time ON chats (updated)",
        # No cascade along parents: a chat of 1000 messages is deeper than SQLite lets triggers go.
        """CREATE TABLE messages (
            id INTEGER PRIMARY KEY,
            chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
            parent INTEGER REFERENCES messages (id),
            role TEXT NOT NULL,
            created REAL NOT NULL,
            finish_reason TEXT,
            stats TEXT NOT NULL,
            provenance TEXT NOT NULL,
            text TEXT NOT NULL
        )""",
        "CREATE INDEX messages_of_chat ON messages (chat, parent)",
        "CREATE INDEX messages_of_parent ON messages (parent)",
        """CREATE TABLE attachments (
            message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
            place INTEGER NOT NULL,
            name TEXT NOT NULL,
            text TEXT NOT NULL,
            PRIMARY KEY (message, place)
        )""",
    ),
)
# Writes and deletes a chat, with ids that none has.
_TRIAL = (
    "INSERT INTO chats (id, title, created, updated, settings, leaf) VALUES (-1, '', 0, 0, '', 0)",
    "INSERT INTO messages"
    " (id, chat, parent, role, created, finish_reason, stats, provenance, text)"
    " VALUES (-1, -1, NULL, '', 0, NULL, '', '', ''), (-2, -1, -1, '', 0, NULL, '', '', '')",
    "INSERT INTO attachments (message, place, name, text) VALUES (-2, 0, '', '')",
    "UPDATE messages SET text = '', stats = '', provenance = '', finish_reason = '' WHERE id = -2",
    "UPDATE chats SET updated = 1, title = '', settings = '', leaf = -2 WHERE id = -1",
    "DELETE FROM chats WHERE id = -1",
)
_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_IOERR_SHORT_READ,
)


# What a statement that is right may raise. Python fails to decode what SQLite says of a file whose
# schema is damaged.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class DamageError(Exception):
    """The file is not what edgespec wrote."""


class NewerVersionError(Exception):
    """A newer edgespec wrote the file."""


def is_damage(error: Exception) -> bool:
    """Whether `error` tells of the file's contents, not of the machine's state."""
    code = getattr(error, "sqlite_errorcode", 0)
    told = isinstance(error, (DamageError, UnicodeDecodeError))
    return told or code in _DAMAGE or code & 0xFF in _DAMAGE


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. The connection must be in autocommit mode."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Some errors have rolled back already.
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def version_of(connection: sqlite3.Connection) -> int:
    """The schema's version; 0 for a file with nothing in it."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(
    connection: sqlite3.Connection,
    migrations: Migrations,
    back_up: Callable[[sqlite3.Connection, int], None],
) -> None:
    """Bring the tables to the newest version; `back_up` is called before any is changed.

    Foreign keys must be off: migrations may rebuild tables.
    """
    version = version_of(connection)
    if version > len(migrations):
        raise NewerVersionError
    if version == len(migrations):
        return
    if version > 0:
        back_up(connection, version)
    with transaction(connection):
        version = version_of(connection)  # another window may have been quicker
        if version < 0 or (version == 0 and _has_tables(connection)):
            raise DamageError("another program's database")
        for number, statements in enumerate(migrations[version:], version + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")


def check_file(connection: sqlite3.Connection) -> None:
    """Raises DamageError, or what SQLite raises, unless the file is sound."""
    with _mistakes_as_damage():
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if found != "ok":
        raise DamageError(found)


def check_tables(connection: sqlite3.Connection) -> None:
    """Raises DamageError unless chats can be kept in it; leaves nothing in it.

    A file that can only be read raises what SQLite raises. One that another window is writing to
    is not checked.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return
        raise
    try:
        with _mistakes_as_damage():
            for statement in _TRIAL:
                connection.execute(statement)
    finally:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


@contextmanager
def _mistakes_as_damage() -> Iterator[None]:
    """What would be wrong in a statement is wrong in the file, if the statement is right."""
    try:
        yield
    except UnicodeDecodeError as error:  # in what SQLite says of a damaged schema
        raise DamageError("malformed database schema") from error
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
            raise DamageError(str(error)) from error
        raise


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
