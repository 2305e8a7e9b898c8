"""What tests of kept chats have in common."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgespec.tui.chats.schema import MIGRATIONS, Migrations
from edgespec.tui.chats.store import Chat, ChatStore, Message

Opener = Callable[..., ChatStore]

_WRITER = """
import os, sys
from pathlib import Path
from edgespec.tui.chats.store import ChatStore
store = ChatStore(Path(sys.argv[1]))
chat = store.create({"k": 3})
question = store.add(chat.id, None, "user", "Are you there?")
answer = store.add(chat.id, question.id, "assistant", "Y")
store.write(answer.id, "Yes, I", "6t")
os._exit(9)
"""


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@contextmanager
def opening(file: Path, clock: Clock) -> Iterator[Opener]:
    """Opens the file, as often as asked; all are closed in the end."""
    stores = []

    def open_store(path: Path = file, migrations: Migrations = MIGRATIONS) -> ChatStore:
        stores.append(ChatStore(path, clock, patience_s=0.0, migrations=migrations))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def written_and_killed(file: Path) -> None:
    """Another process has asked, got half an answer, and died."""
    ended = subprocess.run([sys.executable, "-P", "-c", _WRITER, str(file)], timeout=60)
    assert ended.returncode == 9


def talked(store: ChatStore, *texts: str) -> Chat:
    """A chat of questions and answers."""
    chat = store.create({})
    parent = None
    for number, text in enumerate(texts):
        parent = store.add(chat.id, parent, "assistant" if number % 2 else "user", text).id
    return chat


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def titles(store: ChatStore, search: str = "") -> list[str]:
    return [chat.title for chat in store.chats(search)]
