"""Files that a prompt names as `@path`."""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edgespec.tui.fences import Fences

MAX_BYTES = 1_000_000

# A mention begins a word; in quotes it may hold spaces.
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]\S*))')
# An end that is seldom part of a name: "see @notes.txt, please".
_PUNCTUATION = ".,;:!?)]}>'\"`*"
_SEPARATORS = tuple({"/", os.sep, os.altsep or "/"})
_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9_]{0,9}$")
_DECORATOR = re.compile(r"\s*@[\w.]+(\(.*)?\s*$")
_DECORATED = re.compile(r"\s*((async\s+)?def|class)\s")
_BACKTICKS = re.compile(r"`+")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP)
# Where completion stops reading a huge directory.
_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file that goes to the model with a message. name: as the user wrote it."""

    name: str
    text: str

    @property
    def size(self) -> int:
        """In bytes of UTF-8."""
        return len(self.text.encode("utf-8", "replace"))


class Found(NamedTuple):
    """complaints: one line for each file that was meant, but cannot be attached."""

    attachments: tuple[Attachment, ...]
    complaints: tuple[str, ...]


class _ComplaintError(Exception):
    """Why a file cannot be attached, for the user."""


def find(text: str, directory: Path) -> Found:
    """The files that `text` names; relative paths start at `directory`.

    Code in backticks or fences names no files. A word that is no file is plain text unless it
    looks like a path.
    """
    attachments: dict[Path, Attachment] = {}
    complaints: dict[str, None] = {}
    for word, is_code in _mentioned(text):
        try:
            meant = _meant(word, directory)
            if meant is not None:
                name, path = meant
                attachments.setdefault(path.resolve(), Attachment(name, _read(name, path)))
        except _ComplaintError as complaint:
            if not is_code:
                complaints[str(complaint)] = None
    return Found(tuple(attachments.values()), tuple(complaints))


def as_prompt(text: str, attachments: Iterable[Attachment]) -> str:
    """What the model gets: the files as fenced blocks, then what the user wrote."""
    return "".join([*map(_as_block, attachments), text])


def complete(prefix: str, directory: Path, limit: int = 8) -> list[str]:
    """Paths that begin with `prefix`, which was typed after `@`; those of directories end in `/`.

    Case is ignored; hidden files come only where the name begins with a dot.
    """
    if prefix == "~":
        return ["~/"]
    cut = max(prefix.rfind(separator) for separator in _SEPARATORS) + 1
    above, start = prefix[:cut], prefix[cut:].casefold()
    try:
        with os.scandir(directory / os.path.expanduser(above)) as entries:
            names = [
                entry.name + ("/" if _is_directory(entry) else "")
                for entry in itertools.islice(entries, _MAX_ENTRIES)
                if entry.name.casefold().startswith(start)
                and entry.name.isprintable()
                and (start.startswith(".") or not entry.name.startswith("."))
            ]
    except (OSError, ValueError):
        return []
    return [above + name for name in heapq.nsmallest(limit, names, key=_in_order)]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, say
        return False


def _in_order(name: str) -> tuple[str, str]:
    return name.casefold(), name


def _mentioned(text: str) -> Iterator[tuple[str, bool]]:
    """Every word after an `@`, and whether it is likely to be code all the same."""
    lines = text.split("\n")
    decorators = _decorators(lines)
    for number, line in enumerate(_without_code(lines)):
        for match in _MENTION.finditer(line):
            yield match[1] or match[2], number in decorators


def _decorators(lines: Sequence[str]) -> set[int]:
    """The lines that stand above a function or class as Python's decorators do."""
    found = set()
    above = False
    for number in reversed(range(len(lines))):
        if above and _DECORATOR.match(lines[number]):
            found.add(number)
        else:
            above = bool(_DECORATED.match(lines[number]))
    return found


def _without_code(lines: Iterable[str]) -> Iterator[str]:
    """The lines with all that is in backticks or fences blotted out."""
    fences = Fences()
    for line in lines:
        yield "" if fences.takes(line) else _without_spans(line)


def _without_spans(line: str) -> str:
    """Without what stands between two equally long runs of backticks."""
    runs = [match.span() for match in _BACKTICKS.finditer(line)]
    following: dict[int, int] = {}  # the next run of a length
    ends = [0] * len(runs)  # where the span ends that a run begins; 0: it begins none
    for number in reversed(range(len(runs))):
        begin, end = runs[number]
        ends[number] = following.get(end - begin, 0)
        following[end - begin] = end
    kept, at = [], 0
    for (begin, _), end in zip(runs, ends, strict=True):
        if end and begin >= at:
            # Not a space: what follows must not look like the beginning of a word.
            kept += [line[at:begin], "x"]
            at = end
    return "".join([*kept, line[at:]])


def _meant(word: str, directory: Path) -> tuple[str, Path] | None:
    """The name and path of the file that `word` means, None when it means none."""
    for name in _readings(word):
        try:
            path = directory / os.path.expanduser(name)
            path.stat()
        except ValueError:  # a character that no path holds
            continue
        except OSError as error:
            if error.errno in _ABSENT:
                continue
            if _looks_like_a_path(name):
                raise _ComplaintError(_unreadable(name, error)) from None
            return None
        return name, path
    shortest = word.rstrip(_PUNCTUATION)
    if _looks_like_a_path(shortest):
        raise _ComplaintError(
            f"There is no file {shortest} in {directory}; check the name, or write "
            f"`@{shortest}` in backticks if no file is meant."
        )
    return None


def _readings(word: str) -> Iterator[str]:
    """`word`, then without what may be punctuation after it."""
    while word.strip("."):
        yield word
        if word[-1] not in _PUNCTUATION:
            return
        word = word[:-1]


def _looks_like_a_path(name: str) -> bool:
    # A call such as @app.get("/items") is code.
    if "(" in name:
        return False
    return any(one in name for one in _SEPARATORS) or bool(_ENDING.search(name))


def _read(name: str, path: Path) -> str:
    try:
        # Asked before opening: to open a pipe may take forever.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _ComplaintError(f"{name} is a directory; name a file in it.")
        if not stat.S_ISREG(mode):
            raise _ComplaintError(f"{name} is no ordinary file; attach a text file.")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _ComplaintError(_unreadable(name, error)) from None
    if len(content) > MAX_BYTES:
        raise _ComplaintError(
            f"{name} is larger than {MAX_BYTES // 1_000_000} MB; attach the part that matters."
        )
    text = _decoded(content)
    if text is None:
        raise _ComplaintError(f"{name} is not text (UTF-8 or UTF-16); attach a text file.")
    return text.replace("\r\n", "\n")


def _decoded(content: bytes) -> str | None:
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _unreadable(name: str, error: OSError) -> str:
    return f"{name} cannot be read: {error.strerror or error}; attach a file that you may read."


def _as_block(attachment: Attachment) -> str:
    fence = _fence_around(attachment.text)
    ending = "" if attachment.text.endswith("\n") or not attachment.text else "\n"
    name = " ".join(attachment.name.splitlines())
    return f"File {name}:\n{fence}\n{attachment.text}{ending}{fence}\n\n"


def _fence_around(text: str) -> str:
    """Backticks, more than `text` has anywhere in a row."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    return "`" * max(longest + 1, 3)
