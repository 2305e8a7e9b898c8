"""Prompts in a JSONL file, one a line.

The schema is that of MT-Bench, Spec-Bench and SPEED-Bench, whose files can be used as they are:
{"question_id": "chat-01", "category": "chat", "turns": ["..."]}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from edgespec.bench.records import ALL
from edgespec.errors import BenchError

Record = dict[str, Any]

MAX_BYTES = 64 << 20  # far above any real suite: the whole file is held in memory

_EXAMPLE = '{"question_id": "1", "category": "chat", "turns": ["Hello."]}'
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user says, one turn after another. Later turns follow the model's own answers."""

    question_id: str
    category: str
    turns: tuple[str, ...]


def read_prompts(name: str) -> list[Prompt]:
    """The prompts of a file, in its order.

    Raises BenchError when the file cannot be read or is not in the schema. Raises
    FileNotFoundError when there is none: the caller knows what else the name may have meant.
    """
    try:
        with open(name, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        if os.path.isdir(name):
            raise BenchError(f"{shown(name)} is a directory. Name a JSONL file in it.") from error
        reason = getattr(error, "strerror", None) or str(error)
        raise BenchError(f"Cannot read {shown(name)}: {reason}. Check the path.") from error
    return parse_prompts(data, shown(name))


def parse_prompts(
    data: bytes, file: str, convert: Callable[[Record], Record] | None = None
) -> list[Prompt]:
    """The prompts in the content of a file, in its order. Keys that are not known are ignored.

    convert: brings a line of another schema into this one.
    Raises BenchError, naming the file and the line.
    """
    prompts = []
    places: dict[str, str] = {}
    for place, record in _records(data, file):
        prompt = _prompt(convert(record) if convert else record, place)
        name = prompt.question_id
        if name in places:
            raise BenchError(
                f"{place}: question_id {name[:60]!r} is taken already by {places[name]}."
                " Give every prompt its own."
            )
        places[name] = place
        prompts.append(prompt)
    if not prompts:
        raise BenchError(f"{file} has no prompts. Each line must be such as {_EXAMPLE}")
    return prompts


def shown(name: str) -> str:
    """A file's name as it can be printed on one line."""
    return name if name.isprintable() else repr(name)


def _records(data: bytes, file: str) -> Iterator[tuple[str, Record]]:
    """The JSON object of every line that is not blank, and where it stands."""
    if len(data) > MAX_BYTES:
        raise BenchError(f"{file} is larger than {MAX_BYTES >> 20} MiB. Split it into several.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise BenchError(f"{file}, line {number}: not UTF-8 text. Save it as UTF-8.") from error
    # Not splitlines(): a JSON string may hold other line separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{file}, line {number}"
            yield place, _record(line, place)


def _record(line: str, place: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise _fault(place, f"not JSON ({error.msg}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise _fault(place, "a number is too long or the nesting too deep") from error
    if not isinstance(record, dict):
        raise _fault(place, "not a JSON object")
    return record


def _prompt(record: Record, place: str) -> Prompt:
    for key in ("question_id", "category", "turns"):
        if key not in record:
            raise _fault(place, f"{key} is missing")
    question_id, category, turns = record["question_id"], record["category"], record["turns"]
    if isinstance(question_id, int) and not isinstance(question_id, bool):
        question_id = str(question_id)
    for key, value in (("question_id", question_id), ("category", category)):
        # They end up in tables and on terminals.
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise _fault(place, f"{key} must be a printable text that is not empty")
    if category == ALL:
        raise _fault(place, f"the category {ALL!r} is the name of all categories together")
    if not isinstance(turns, list) or not turns or not all(map(_is_turn, turns)):
        raise _fault(place, "turns must be a list of texts that are not empty")
    return Prompt(question_id, category, tuple(turns))


def _is_turn(value: object) -> bool:
    # Half a surrogate pair is possible in JSON but not in UTF-8, which a tokenizer needs.
    return isinstance(value, str) and bool(value.strip()) and not _SURROGATE.search(value)


def _fault(place: str, what: str) -> BenchError:
    return BenchError(f"{place}: {what}. A line must be such as {_EXAMPLE}")
