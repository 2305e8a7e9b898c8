"""Reading and writing chats: while the file cannot be written, memory stands in for it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from edgespec.tui.chats.file import empty_memory, explained, memory_copy, open_file
from edgespec.tui.chats.schema import SQLITE_ERRORS, DamageError, Migrations, transaction

log = logging.getLogger(__name__)

# How long to wait for a file that was held a moment ago, while the user is typing.
_IMPATIENT_S = 0.02


class Statement(NamedTuple):
    """One change. It names rows by ids, so that it can be made again in another copy.

    An update has the id of its row last, and sets columns without looking at what they hold.
    """

    sql: str
    values: tuple[Any, ...]


class Database:
    """The file of chats, or memory in its place. For one thread.

    problem: "" or one line for the user; it may change with every read and write.
    """

    def __init__(self, path: Path, migrations: Migrations, patience_s: float, now: float) -> None:
        opened = open_file(path, migrations, patience_s, now)
        self.problem = self._lasting_problem = opened.problem
        self._path = path
        self._migrations = migrations
        self._patience_s = patience_s
        self._connection = opened.connection
        self._in_memory = opened.in_memory
        self._file: sqlite3.Connection | None = None  # while memory stands in for it
        self._owed: dict[object, Statement] = {}

    def read(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """The rows; none when they cannot be read."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.ProgrammingError:
            raise  # of the caller's making
        except SQLITE_ERRORS as error:
            log.error("cannot read from %s: %s", self._path, error)
            why, step = explained(error)
            self.problem = f"Chats cannot be read from {self._path}: {why}; {step}."
            return []

    def write(self, *statements: Statement) -> None:
        """All of them or none."""
        self._catch_up()
        try:
            self._apply(statements)
        except sqlite3.ProgrammingError:
            raise  # of the caller's making
        except sqlite3.IntegrityError as error:
            log.error("nothing to write to in %s: %s", self._path, error)
            self.problem = (
                "This chat was deleted, perhaps in another window: what is added to it is not "
                "kept; start a new one."
            )
        except SQLITE_ERRORS as error:
            log.error("cannot write to %s: %s", self._path, error)
            if not self._in_memory:
                self._stand_in()
                self.write(*statements)
            why, step = explained(error)
            self.problem = (
                f"Chats cannot be written to {self._path}: {why}. They live in memory and will be "
                f"written once that works; {step}."
            )
        else:
            if self._file is None:
                self.problem = self._lasting_problem
            else:
                self._owe(statements)

    def close(self) -> None:
        """Write what is owed, if that works by now."""
        if self._file is not None:
            self._be_patient(self._file, self._patience_s)
            self._catch_up()
        if self._owed:
            log.error("%d changes could not be written to %s", len(self._owed), self._path)
        self._connection.close()
        if self._file is not None:
            self._file.close()

    def _apply(self, statements: Iterable[Statement]) -> None:
        with transaction(self._connection):
            for statement in statements:
                self._connection.execute(*statement)

    def _stand_in(self) -> None:
        """From here on memory holds what the file held."""
        try:
            memory = memory_copy(self._connection, self._migrations)
        except (*SQLITE_ERRORS, DamageError) as error:
            log.error("cannot copy %s: %s", self._path, error)
            memory = empty_memory(self._migrations)
        self._file, self._connection, self._in_memory = self._connection, memory, True
        self._be_patient(self._file, _IMPATIENT_S)

    def _owe(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            key: object = object()
            if statement.sql.startswith("UPDATE"):
                # Only the last of many versions of a growing answer is of use.
                key = (statement.sql, statement.values[-1])
                self._owed.pop(key, None)
            self._owed[key] = statement

    def _catch_up(self) -> None:
        """Go back to the file if it takes by now what it is owed."""
        if self._file is None or not self._owed:
            return
        try:
            self._pay(self._file)
        except SQLITE_ERRORS as error:
            log.info("still cannot write to %s: %s", self._path, error)
            return
        self._connection.close()
        self._connection, self._file, self._in_memory = self._file, None, False
        self._owed.clear()
        self._be_patient(self._connection, self._patience_s)
        self.problem = self._lasting_problem

    def _pay(self, file: sqlite3.Connection) -> None:
        with transaction(file):
            for statement in self._owed.values():
                try:
                    file.execute(*statement)
                except sqlite3.IntegrityError as error:
                    log.warning("left out, its chat was deleted in another window: %s", error)

    @staticmethod
    def _be_patient(connection: sqlite3.Connection, seconds: float) -> None:
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
