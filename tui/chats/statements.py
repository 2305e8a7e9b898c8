"""The changes that are made to chats, each by the ids of its rows.

What is there already is left alone: a chat may be put back, or written later, by two windows.
"""

from __future__ import annotations

import json
from typing import Any

from edgespec.tui.chats.database import Statement
from edgespec.tui.chats.records import Chat, Message

CHAT = "id, title, created, updated, settings, leaf"
MESSAGE = "id, chat, parent, role, text, created, finish_reason, stats, provenance"


def insert_chat(chat: Chat) -> Statement:
    settings = json.dumps(dict(chat.settings))
    return Statement(
        f"INSERT OR IGNORE INTO chats ({CHAT}) VALUES (?, ?, ?, ?, ?, ?)",
        (chat.id, chat.title, chat.created, chat.updated, settings, chat.leaf),
    )


def insert_message(new: Message) -> list[Statement]:
    """With its attachments."""
    first = (new.id, new.chat, new.parent, new.role, new.text, new.created)
    last = (new.finish_reason, json.dumps(dict(new.stats)), new.provenance)
    attach = "INSERT OR IGNORE INTO attachments VALUES (?, ?, ?, ?)"
    return [
        Statement(
            f"INSERT OR IGNORE INTO messages ({MESSAGE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*first, *last),
        ),
        *(
            Statement(attach, (new.id, place, one.name, one.text))
            for place, one in enumerate(new.attachments)
        ),
    ]


def update(table: str, row_id: int, **values: Any) -> Statement:
    """Set these columns of one row."""
    columns = ", ".join(f"{column} = ?" for column in values)
    return Statement(f"UPDATE {table} SET {columns} WHERE id = ?", (*values.values(), row_id))
