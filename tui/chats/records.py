"""Chats and messages, as the rest of the terminal UI has them and as they are kept."""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgespec.tui.attachments import Attachment

Role = Literal["user", "assistant"]

_TITLE_LENGTH = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
_JOINERS = "\u200c\u200d"  # invisible, but some scripts are wrong without them


@dataclass(frozen=True, slots=True)
class Chat:
    """title: "" until something was said. leaf: the last message of the branch that is shown."""

    id: int
    title: str
    created: float
    updated: float
    settings: Mapping[str, Any]
    leaf: int | None


@dataclass(frozen=True, slots=True)
class Message:
    """finish_reason: None while an answer is written, so later: it was interrupted.

    siblings: all messages that answer the same one, this one included, the oldest first.
    """

    id: int
    chat: int
    parent: int | None
    role: Role
    text: str
    created: float
    finish_reason: str | None
    stats: Mapping[str, Any]
    provenance: str
    attachments: tuple[Attachment, ...]
    siblings: tuple[int, ...]


def chat_of(row: sqlite3.Row) -> Chat:
    """The chat that a row of all its columns holds."""
    return Chat(
        row["id"],
        row["title"],
        row["created"],
        row["updated"],
        _mapping(row["settings"]),
        row["leaf"],
    )


def message_of(
    row: sqlite3.Row, attachments: Iterable[sqlite3.Row], siblings: Iterable[int]
) -> Message:
    """The message that a row of all its columns holds, with what other rows say of it."""
    return Message(
        row["id"],
        row["chat"],
        row["parent"],
        row["role"],
        row["text"],
        row["created"],
        row["finish_reason"],
        _mapping(row["stats"]),
        row["provenance"],
        tuple(Attachment(one["name"], one["text"]) for one in attachments),
        tuple(siblings),
    )


def as_title(text: str) -> str:
    """The first line of `text` that shows anything, without control characters, cut to fit."""
    for line in text.splitlines():
        letters = (" " if letter.isspace() else letter for letter in line[:1000])
        title = " ".join("".join(filter(_is_shown, letters)).split())
        if len(title) > _TITLE_LENGTH:
            return f"{title[: _TITLE_LENGTH - 1].rstrip()}…"
        if title:
            return title
    return ""


def _is_shown(letter: str) -> bool:
    return letter in _JOINERS or unicodedata.category(letter) not in ("Cc", "Cf", "Cs")


def storable(text: str) -> str:
    """Halves of surrogate pairs are no characters: UTF-8 cannot hold them."""
    return _SURROGATE.sub("\ufffd", text)


def _mapping(kept: str) -> dict[str, Any]:
    try:
        found = json.loads(kept)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
