"""A chat as a document: Markdown to read, JSON with all there is."""

from __future__ import annotations

import itertools
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgespec.errors import OptionError
from edgespec.tui import thinking
from edgespec.tui.attachments import Attachment
from edgespec.tui.chats.records import Chat, Message
from edgespec.tui.fences import Fences

_UNTITLED = "Untitled chat"
_NAME_BYTES = 100
_NAMES = {"user": "You", "assistant": "Assistant"}
_ENDS = {
    "stop": "",  # as long as the model wanted it
    "cancelled": "stopped",
    "length": "cut at max_tokens",
    "context": "cut: the context is full",
    None: "interrupted",
}


def as_markdown(chat: Chat, messages: Iterable[Message]) -> str:
    """For people: who said what. Of attached files the names only."""
    parts = [f"# {chat.title or _UNTITLED}"]
    begun = _time(chat.created)
    if begun:
        parts.append(f"{begun.astimezone():%Y-%m-%d %H:%M}")
    system = str(chat.settings.get("system") or "")
    if system:
        parts += ["## System prompt", _closed(system)]
    for message in messages:
        parts += _told(message)
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def as_json(chat: Chat, messages: Iterable[Message]) -> str:
    """For programs: everything that is kept of the chat, attached files included."""
    document = {
        "format": "edgespec-chat-1",
        "title": chat.title,
        "created": _iso(chat.created),
        "updated": _iso(chat.updated),
        "settings": chat.settings,
        "messages": [
            {
                "role": message.role,
                "text": message.text,
                "created": _iso(message.created),
                "finish_reason": message.finish_reason,
                "stats": message.stats,
                "provenance": message.provenance,
                "attachments": [
                    {"name": one.name, "text": one.text} for one in message.attachments
                ],
            }
            for message in messages
        ],
    }
    return json.dumps(_plain(document), indent=2, ensure_ascii=False) + "\n"


def file_name(chat: Chat, suffix: str) -> str:
    """Such as `2026-11-30-why-is-the-sky-blue.md`: a name that no system refuses."""
    words = _words(chat.title) or "chat"
    begun = _time(chat.created)
    date = f"{begun.astimezone():%Y-%m-%d}" if begun else "edgespec"
    return f"{date}-{words}.{suffix.lstrip('.')}"


def write_export(directory: Path, chat: Chat, messages: Iterable[Message], format: str) -> Path:
    """Write a new file into `directory`, made if it is absent; returns its path.

    format: "md" or "json". Raises OptionError when it cannot be written; no file is overwritten.
    """
    writers = {"md": as_markdown, "json": as_json}
    if format not in writers:
        raise OptionError(f"a chat can be exported as md or json, not as {format!r}.")
    content = writers[format](chat, messages).encode("utf-8", "replace")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _written(directory / file_name(chat, format), content)
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise OptionError(
            f"the chat cannot be exported to {directory}: {why}; name another directory."
        ) from None


def _written(path: Path, content: bytes) -> Path:
    for number in itertools.count(1):
        tail = f"-{number}" if number > 1 else ""
        free = path.with_name(f"{path.stem}{tail}{path.suffix}")
        try:
            file = free.open("xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(content)
        except OSError:
            free.unlink(missing_ok=True)
            raise
        return free
    raise AssertionError("counting has no end")


def _told(message: Message) -> Iterator[str]:
    yield f"## {_NAMES[message.role]}"
    for attachment in message.attachments:
        yield _listed(attachment)
    if message.role == "user":
        yield _closed(message.text)
        return
    parts = thinking.split(message.text)
    if parts.thought:
        yield "\n".join(f"> {line}".rstrip() for line in _closed(parts.thought).split("\n"))
    yield _closed(parts.answer)
    end = _ENDS.get(message.finish_reason, message.finish_reason)
    yield f"*({end})*" if end else ""


def _listed(attachment: Attachment) -> str:
    return f"Attached: {' '.join(attachment.name.splitlines())} ({attachment.size} bytes)"


def _closed(text: str) -> str:
    """With an end to the code block in which an answer was cut off."""
    fences = Fences()
    for line in text.split("\n"):
        fences.takes(line)
    return f"{text}\n{fences.open}" if fences.open else text


def _words(title: str) -> str:
    """Letters and digits of all scripts; hyphens for everything between them."""
    words = ""
    for letter in unicodedata.normalize("NFC", title):
        kind = unicodedata.category(letter)[0]
        # A mark belongs to the letter before it.
        if kind in "LN" or (kind == "M" and words and words[-1] != "-"):
            words += letter
        elif words and words[-1] != "-":
            words += "-"
    cut = words.encode("utf-8", "ignore")[:_NAME_BYTES].decode("utf-8", "ignore")
    return cut.strip("-")


def _time(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a clock that was wrong by ages
        return None


def _iso(seconds: float) -> str | None:
    time = _time(seconds)
    return time.isoformat(timespec="seconds") if time else None


def _plain(value: Any) -> Any:
    """As JSON has it: no infinities."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
