"""Reads TOML tables and refuses what does not belong there, naming the file and the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edgespec.errors import CatalogError

T = TypeVar("T")
_KINDS: dict[type, str] = {str: "a text", int: "a whole number", dict: "a table", list: "a list"}


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a TOML file. `section` and `name` are the two parts of `[section.name]`."""

    file: Path
    data: Mapping[str, Any]
    section: str = ""
    name: str = ""

    def error(self, what: str) -> CatalogError:
        """An error that says where in the file it is."""
        place = ".".join(part for part in (self.section, _quoted(self.name)) if part)
        return CatalogError(f"{self.file}: {f'[{place}] ' if place else ''}{what}")

    def allow(self, *keys: str) -> None:
        """Raises CatalogError for any other key, suggesting the nearest."""
        for key, value in self.data.items():
            if key in keys:
                continue
            if self.name and isinstance(value, dict):
                raise self._dotted_name(key, value)
            known = f" Known keys: {', '.join(keys)}."
            raise self.error(f"has the unknown key {key!r}.{did_you_mean(key, keys) or known}")

    def text(self, key: str) -> str | None:
        """Raises CatalogError when the value is not a text."""
        return self._value(key, str)

    def integer(self, key: str) -> int | None:
        """Raises CatalogError when the value is not a whole number."""
        return self._value(key, int)

    def boolean(self, key: str) -> bool:
        """False when it is not there. Raises CatalogError when the value is not true or false."""
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false, not {_shown(value)}.")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Raises CatalogError when the value is not a list of texts."""
        values = self._value(key, list) or []
        if not all(isinstance(value, str) for value in values):
            raise self.error(f'{key} must be a list of texts, such as ["a.gguf"].')
        return tuple(values)

    def tables(self, key: str) -> dict[str, Table]:
        """The tables `[key.NAME]`. Raises CatalogError when one of them is not a table."""
        section = Table(self.file, self._value(key, dict) or {}, key)
        for name in section.data:
            section._value(name, dict)
        return {name: Table(self.file, data, key, name) for name, data in section.data.items()}

    def _value(self, key: str, kind: type[T]) -> T | None:
        value = self.data.get(key)
        # `true` is an int to Python, but no number to whoever wrote it.
        if value is None:
            return None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(f"{key} must be {_KINDS[kind]}, not {_shown(value)}.")
        return value

    def _dotted_name(self, key: str, value: dict[str, Any]) -> CatalogError:
        """`[models.qwen2.5-7b]` means a table `5-7b` inside `qwen2`, which nobody wants."""
        name = f"{self.name}.{key}"
        while len(value) == 1 and isinstance(inner := next(iter(value.values())), dict):
            name += f".{next(iter(value))}"
            value = inner
        quoted = f'[{self.section}."{name}"]'
        return self.error(f"holds another table. A name with a dot needs quotes: write {quoted}.")


def read_table(file: Path) -> Table:
    """The top of a TOML file.

    Raises CatalogError when it cannot be read or is not TOML.
    """
    try:
        # Windows editors put a byte order mark in front, which TOML does not allow.
        return Table(file, tomllib.loads(file.read_text(encoding="utf-8-sig")))
    except OSError as error:
        reason = error.strerror or str(error)
        raise CatalogError(
            f"Cannot read {file}: {reason}. Check the file's permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise CatalogError(f"{file} is not UTF-8 text. Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{file} is not valid TOML: {error}. Correct it there.") from error


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest word, or nothing when none is near."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[near[0]]!r}?" if near else ""


def _quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
