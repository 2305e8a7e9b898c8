"""All chats with their messages, kept in one SQLite file."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgespec.tui.attachments import Attachment
from edgespec.tui.chats.database import Database, Statement
from edgespec.tui.chats.records import (
    Chat,
    Message,
    Role,
    as_title,
    chat_of,
    message_of,
    storable,
)
from edgespec.tui.chats.schema import MIGRATIONS, Migrations
from edgespec.tui.chats.statements import CHAT, MESSAGE, insert_chat, insert_message, update

__all__ = ["Chat", "ChatStore", "Message", "Role", "as_title"]

# In characters; longer ones are not looked for in the history of the prompt.
_LONG_QUESTION = 10_000


class ChatStore:
    """Chats and messages of the file at `path`. For one thread; several windows may share a file.

    Whatever state the file is in, this works: `problem` says what the user should know. A message
    has a parent, so asking again makes a sibling and nothing is ever overwritten. Settings and
    stats are plain JSON types.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        patience_s: float = 2.0,
        migrations: Migrations = MIGRATIONS,
    ) -> None:
        self.path = path
        self._clock = clock
        self._last_id = 0
        self._told = ""
        # The chat in use: it comes back if another window deletes it while this one goes on.
        self._chat: Chat | None = None
        self._shown: dict[int, Message] = {}
        self._database = Database(path, migrations, patience_s, clock())

    @property
    def problem(self) -> str:
        """What is wrong with the file, in one line for the user; "" if nothing is."""
        return self._database.problem

    def take_problem(self) -> str:
        """`problem` if it is another one than last time, else ""."""
        before, self._told = self._told, self.problem
        return self._told if self._told != before else ""

    def close(self) -> None:
        """Nothing may be asked afterwards."""
        self._database.close()

    # Chats

    def create(self, settings: Mapping[str, Any], title: str = "") -> Chat:
        """A chat with nothing in it. The first thing said gives it a title if it has none."""
        now = self._clock()
        chat = Chat(self._new_id(0), as_title(title), now, now, dict(settings), None)
        self._database.write(insert_chat(chat))
        self._chat = chat
        return chat

    def chats(self, search: str = "", limit: int = 200) -> list[Chat]:
        """The chats in which something was said, the newest first.

        search: what the title or a message must contain, whatever the case of its letters.
        """
        sought = storable(search.strip()).casefold()
        where = "EXISTS (SELECT 1 FROM messages WHERE chat = chats.id)"
        values: tuple[Any, ...] = ()
        if sought:
            where = (
                f"{where} AND (holds(CAST(title AS BLOB), ?) OR EXISTS "
                "(SELECT 1 FROM messages WHERE chat = chats.id AND holds(CAST(text AS BLOB), ?)))"
            )
            values = (sought, sought)
        rows = self._database.read(
            f"SELECT {CHAT} FROM chats WHERE {where} ORDER BY updated DESC, id DESC LIMIT ?",
            *values,
            max(limit, 0),
        )
        return [chat_of(row) for row in rows]

    def chat(self, chat_id: int) -> Chat | None:
        """None if there is none of that id."""
        rows = self._database.read(f"SELECT {CHAT} FROM chats WHERE id = ?", chat_id)
        if not rows:
            return None
        self._chat = chat_of(rows[0])
        return self._chat

    def rename(self, chat_id: int, title: str) -> None:
        """Give it another title; control characters and all but the first line are left out."""
        self._update("chats", chat_id, title=as_title(title))

    def delete(self, chat_id: int) -> None:
        """With all of its messages."""
        if self._chat is not None and self._chat.id == chat_id:
            self._chat, self._shown = None, {}
        self._database.write(Statement("DELETE FROM chats WHERE id = ?", (chat_id,)))

    def set_settings(self, chat_id: int, settings: Mapping[str, Any]) -> None:
        """In place of those it has."""
        self._update("chats", chat_id, settings=json.dumps(dict(settings)))

    # Messages

    def add(
        self,
        chat_id: int,
        parent: int | None,
        role: Role,
        text: str,
        attachments: Sequence[Attachment] = (),
    ) -> Message:
        """A new message; the branch that is shown ends with it."""
        now = self._clock()
        new = Message(
            id=self._new_id(chat_id),
            chat=chat_id,
            parent=parent,
            role=role,
            text=storable(text),
            created=now,
            finish_reason=None,
            stats={},
            provenance="",
            attachments=tuple(Attachment(storable(a.name), storable(a.text)) for a in attachments),
            siblings=(),
        )
        statements = [*insert_message(new), update("chats", chat_id, leaf=new.id, updated=now)]
        if role == "user" and not self._in_use(chat_id).title:
            statements.append(update("chats", chat_id, title=as_title(text)))
        self._write(chat_id, *statements)
        new = self.message(new.id) or replace(new, siblings=(new.id,))
        self._shown = {one.id: one for one in [*self._shown.values(), new] if one.chat == chat_id}
        return new

    def write(
        self,
        message_id: int,
        text: str,
        provenance: str = "",
        stats: Mapping[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """What an answer is so far, in place of what was written of it before."""
        text, provenance, stats = storable(text), storable(provenance), dict(stats or {})
        statements = (
            update(
                "messages",
                message_id,
                text=text,
                provenance=provenance,
                stats=json.dumps(stats),
                finish_reason=finish_reason,
            ),
            Statement(
                "UPDATE chats SET updated = ? "
                "WHERE id = (SELECT chat FROM messages WHERE messages.id = ?)",
                (self._clock(), message_id),
            ),
        )
        shown = self._shown.get(message_id)
        if shown is None:
            self._database.write(*statements)
            return
        self._shown[message_id] = replace(
            shown, text=text, provenance=provenance, stats=stats, finish_reason=finish_reason
        )
        self._write(shown.chat, *statements)

    def message(self, message_id: int) -> Message | None:
        """None if there is none of that id."""
        rows = self._database.read(f"SELECT {MESSAGE} FROM messages WHERE id = ?", message_id)
        return self._message(rows[0]) if rows else None

    def branch(self, chat_id: int) -> list[Message]:
        """What is shown of a chat: its leaf and all above, the first message first."""
        # Ids grow along a branch (`_new_id`): that puts it in order, and ends it in any case.
        rows = self._database.read(
            f"""WITH RECURSIVE up (id, parent) AS (
                SELECT m.id, m.parent FROM messages m JOIN chats ON m.id = leaf WHERE chats.id = ?
                UNION ALL
                SELECT m.id, m.parent FROM messages m JOIN up ON m.id = up.parent AND m.id < up.id
            )
            SELECT {MESSAGE} FROM messages WHERE id IN (SELECT id FROM up) ORDER BY id""",
            chat_id,
        )
        messages = [self._message(row) for row in rows]
        if messages:
            self._shown = {message.id: message for message in messages}
        return messages

    def choose(self, message_id: int) -> None:
        """Show the branch of this message, down to the newest message below it."""
        rows = self._database.read(
            """WITH RECURSIVE down (id) AS (
                SELECT id FROM messages WHERE id = ?
                UNION
                SELECT m.id FROM messages m JOIN down ON m.parent = down.id
            )
            SELECT id, chat FROM messages WHERE id = (SELECT max(id) FROM down)""",
            message_id,
        )
        if rows:
            self._update("chats", rows[0]["chat"], leaf=rows[0]["id"])

    def questions(self, limit: int = 200) -> list[str]:
        """What the user asked in any chat, the newest last and none twice."""
        rows = self._database.read(
            "SELECT text FROM messages WHERE role = 'user' AND length(text) < ? "
            "ORDER BY id DESC LIMIT ?",
            _LONG_QUESTION,
            limit,
        )
        return list(dict.fromkeys(row["text"] for row in rows))[::-1]

    def _write(self, chat_id: int, *statements: Statement) -> None:
        """In one transaction with what puts the chat back, if it is not there any more."""
        for _ in range(2):  # when it fails, memory takes over, and may have to begin with nothing
            self._database.write(*self._put_back(chat_id), *statements)
            if self.chat(chat_id) is not None:
                return

    def _put_back(self, chat_id: int) -> list[Statement]:
        if self.chat(chat_id) is not None:
            return []
        messages = [message for message in self._shown.values() if message.chat == chat_id]
        leaf = messages[-1].id if messages else None
        statements = [insert_chat(replace(self._in_use(chat_id), leaf=leaf))]
        for message in messages:
            statements += insert_message(message)
        return statements

    def _in_use(self, chat_id: int) -> Chat:
        """The chat, or what is known of one that is gone."""
        now = self._clock()
        known = self._chat if self._chat is not None and self._chat.id == chat_id else None
        return self.chat(chat_id) or known or Chat(chat_id, "", now, now, {}, None)

    def _message(self, row: sqlite3.Row) -> Message:
        attachments = self._database.read(
            "SELECT name, text FROM attachments WHERE message = ? ORDER BY place", row["id"]
        )
        siblings = self._database.read(
            "SELECT id FROM messages WHERE chat = ? AND parent IS ? ORDER BY id",
            row["chat"],
            row["parent"],
        )
        return message_of(row, attachments, [one["id"] for one in siblings])

    def _update(self, table: str, row_id: int, **values: Any) -> None:
        self._database.write(update(table, row_id, **values))

    def _new_id(self, chat_id: int) -> int:
        """Larger than any id of the chat, and of no other window that writes at the same time.

        Chosen here and not by SQLite, so that what memory keeps can go into the file later.
        """
        rows = self._database.read("SELECT max(id) FROM messages WHERE chat = ?", chat_id)
        newest = (rows[0][0] if rows else None) or 0
        base = max(int(self._clock() * 1000) << 20, newest, self._last_id)
        self._last_id = base + 1 + secrets.randbelow(1 << 20)
        return self._last_id
