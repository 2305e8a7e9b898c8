"""Chats outlive new versions, damaged files, full disks, and places that cannot be written."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgespec.tui.attachments import Attachment
from edgespec.tui.chats.schema import MIGRATIONS, Migrations
from edgespec.tui.chats.store import ChatStore
from tests.tui.kept_chats import (
    Clock,
    Opener,
    opening,
    talked,
    texts,
    titles,
    written_and_killed,
)

# One more version than there is, to see an older file brought up to date.
NEXT = (*MIGRATIONS, ("ALTER TABLE chats ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'",))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def opened(file: Path, clock: Clock) -> Iterator[Opener]:
    with opening(file, clock) as opener:
        yield opener


def broken_files(file: Path) -> list[Path]:
    return sorted(file.parent.glob("chats.broken-*.db"))


# Files of older and newer versions


def test_an_older_file_is_brought_up_to_date_and_copied_before(opened: Opener, file: Path) -> None:
    old = opened()
    chat = talked(old, "old question", "old answer")
    old.close()
    new = opened(migrations=NEXT)
    assert new.problem == ""
    assert texts(new.branch(chat.id)) == ["old question", "old answer"]
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (2,)
        assert raw.execute("SELECT colour FROM chats").fetchall() == [("blue",)]
    copy = file.with_name("chats.db.v1.bak")
    with closing(sqlite3.connect(copy)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (1,)
        assert raw.execute("SELECT text FROM messages ORDER BY id").fetchall() == [
            ("old question",),
            ("old answer",),
        ]
    assert not list(file.parent.glob("*.tmp"))
    if sys.platform != "win32":
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_the_copy_holds_what_a_killed_program_left_in_the_log(opened: Opener, file: Path) -> None:
    written_and_killed(file)
    opened(migrations=NEXT)
    with closing(sqlite3.connect(file.with_name("chats.db.v1.bak"))) as raw:
        assert raw.execute("SELECT count(*) FROM messages").fetchone() == (2,)


def test_a_file_that_is_up_to_date_or_new_is_not_copied(opened: Opener, file: Path) -> None:
    talked(opened(migrations=NEXT), "q")
    opened(migrations=NEXT)
    assert not list(file.parent.glob("*.bak"))


def test_a_migration_that_fails_changes_nothing_and_hides_nothing(
    opened: Opener, file: Path
) -> None:
    talked(opened(), "precious", "answer")
    failing = (*NEXT, ("DELETE FROM chats", "CREATE UNIQUE INDEX one ON messages (chat)"))
    store = opened(migrations=failing)
    assert "messages.chat" in store.problem
    assert "\n" not in store.problem
    assert broken_files(file) == []
    talked(store, "in memory")
    again = opened()
    assert again.problem == ""
    assert titles(again) == ["precious"]


def test_migrations_are_made_once_each_and_in_order(opened: Opener, file: Path) -> None:
    steps: Migrations = (
        *NEXT,
        ("UPDATE chats SET colour = colour || '-3'",),
        ("UPDATE chats SET colour = colour || '-4'",),
    )
    talked(opened(), "q")
    for count in (2, 4, 4):
        opened(migrations=steps[:count]).close()
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("SELECT colour FROM chats").fetchall() == [("blue-3-4",)]
    assert sorted(one.name for one in file.parent.glob("*.bak")) == [
        "chats.db.v1.bak",
        "chats.db.v2.bak",
    ]


def test_a_file_of_a_newer_edgespec_is_left_alone(opened: Opener, file: Path) -> None:
    talked(opened(migrations=NEXT), "from the future")
    before = file.read_bytes()
    store = opened()
    assert "newer edgespec" in store.problem
    assert str(file) in store.problem
    assert "update edgespec" in store.problem
    assert "\n" not in store.problem
    chat = talked(store, "now")
    assert texts(store.branch(chat.id)) == ["now"]
    assert titles(store) == ["now"]
    store.close()
    assert file.read_bytes() == before
    assert titles(opened(migrations=NEXT)) == ["from the future"]


# Damaged files


def some_chats(file: Path) -> bytes:
    """A file with enough in it to be damaged in the middle."""
    store = ChatStore(file)
    talked(store, *(f"message {number} " * 200 for number in range(20)))
    store.close()
    return file.read_bytes()


def make_noise(file: Path) -> None:
    file.write_bytes(bytes((7 * number * number + 13) % 251 for number in range(20_000)))


def make_text(file: Path) -> None:
    file.write_text("This is no database.\n" * 100, encoding="utf-8")


def cut_in_half(file: Path) -> None:
    content = some_chats(file)
    file.write_bytes(content[: len(content) // 2])


def cut_in_the_header(file: Path) -> None:
    file.write_bytes(some_chats(file)[:50])


def overwrite_the_middle(file: Path) -> None:
    content = some_chats(file)
    file.write_bytes(content[:4096] + b"\xa5" * (len(content) - 8192) + content[-4096:])


def overwrite_one_page(file: Path) -> None:
    content = some_chats(file)
    middle = len(content) // 8192 * 4096
    file.write_bytes(content[:middle] + b"\xa5" * 4096 + content[middle + 4096 :])


def overwrite_the_schema(file: Path) -> None:
    content = some_chats(file)
    file.write_bytes(content[:100] + b"\xff" * 1000 + content[1100:])


def garble_a_name_in_the_schema(file: Path) -> None:
    content = some_chats(file)
    file.write_bytes(content.replace(b"attachments", b"attach\x9bents"))


def garble_a_reference_in_the_schema(file: Path) -> None:
    content = some_chats(file)
    file.write_bytes(content.replace(b"REFERENCES chats", b"REFERENCES ch\x9bts"))


def spoil_the_format(file: Path) -> None:
    content = some_chats(file)
    file.write_bytes(content[:44] + b"\x09\x09\x09\x09" + content[48:])


def lose_a_table(file: Path) -> None:
    some_chats(file)
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("DROP TABLE attachments")


def belong_to_another_program(file: Path) -> None:
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE bookmarks (address TEXT)")


@pytest.mark.parametrize(
    "damage",
    [
        make_noise,
        make_text,
        cut_in_half,
        cut_in_the_header,
        overwrite_the_middle,
        overwrite_one_page,
        overwrite_the_schema,
        garble_a_name_in_the_schema,
        garble_a_reference_in_the_schema,
        spoil_the_format,
        lose_a_table,
        belong_to_another_program,
    ],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begins(
    opened: Opener, file: Path, damage: Callable[[Path], None]
) -> None:
    file.parent.mkdir()
    damage(file)
    damaged = file.read_bytes()
    store = opened()
    (kept,) = broken_files(file)
    assert kept.read_bytes() == damaged
    assert kept.name in store.problem
    assert "\n" not in store.problem
    assert store.chats() == []
    talked(store, "new")
    assert kept.name in store.problem  # still true
    again = opened()
    assert titles(again) == ["new"]
    assert again.problem == ""


def test_a_second_damaged_file_overwrites_no_first(opened: Opener, file: Path) -> None:
    file.parent.mkdir()
    contents = [b"first" * 300, b"second" * 300, b"third" * 300]
    for content in contents:
        file.write_bytes(content)
        opened().close()
        for ending in ("-wal", "-shm"):
            file.with_name(f"{file.name}{ending}").unlink(missing_ok=True)
    assert sorted(one.read_bytes() for one in broken_files(file)) == contents


def test_the_log_of_a_damaged_file_is_not_taken_for_the_new_ones(
    opened: Opener, file: Path
) -> None:
    written_and_killed(file)
    assert file.with_name("chats.db-wal").stat().st_size
    make_noise(file)
    file.with_name("chats.db-wal").write_bytes(b"no log" * 1000)
    store = opened()
    assert len(broken_files(file)) == 1
    talked(store, "new")
    store.close()
    assert titles(opened()) == ["new"]


def test_damage_done_while_it_is_open_loses_nothing_that_is_seen(
    opened: Opener, file: Path
) -> None:
    store = opened()
    chat = talked(store, "q", "a")
    shown = store.branch(chat.id)
    with closing(sqlite3.connect(file)) as other:
        other.execute("DROP TABLE messages")
    assert store.chats() == []
    assert store.questions() == []
    assert store.branch(chat.id) == []
    assert "cannot be read" in store.problem
    assert "\n" not in store.problem
    store.add(chat.id, shown[-1].id, "user", "goes on")
    assert texts(store.branch(chat.id)) == ["q", "a", "goes on"]
    assert titles(store) == ["q"]
    assert "cannot be written" in store.problem


def test_an_empty_file_is_a_new_one(opened: Opener, file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    store = opened()
    assert store.problem == ""
    talked(store, "q")
    assert titles(opened()) == ["q"]
    assert broken_files(file) == []


# Places where nothing can be kept


def test_a_directory_in_its_place_is_left_alone(opened: Opener, file: Path) -> None:
    (file / "inside").mkdir(parents=True)
    store = opened()
    assert "is a directory" in store.problem
    assert "move it away" in store.problem
    chat = talked(store, "q", "a")
    assert texts(store.branch(chat.id)) == ["q", "a"]
    assert "is a directory" in store.problem
    assert (file / "inside").is_dir()


def test_below_a_regular_file_chats_live_in_memory(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    path = tmp_path / "file" / "data" / "chats.db"
    store = opened(path)
    assert str(path) in store.problem
    assert "memory" in store.problem
    assert "EDGESPEC_HOME" in store.problem
    assert "\n" not in store.problem
    chat = talked(store, "q", "a")
    store.add(chat.id, None, "user", "q again")
    assert len(store.branch(chat.id)[0].siblings) == 2
    store.delete(chat.id)
    assert store.chats() == []


@pytest.mark.skipif(
    sys.platform == "win32" or not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="permissions do not bind this user",
)
def test_a_directory_that_can_only_be_read_shows_its_chats(opened: Opener, file: Path) -> None:
    some_chats(file)
    file.chmod(0o400)
    file.parent.chmod(0o500)
    try:
        store = opened()
        assert "EDGESPEC_HOME" in store.problem
        assert len(store.chats("message 19")) == 1
        talked(store, "in memory")
        assert len(store.chats()) == 2
    finally:
        file.parent.chmod(0o700)


def test_a_file_that_cannot_be_written_is_read_into_memory(
    opened: Opener, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_chats(file)

    def connect(place: object, *arguments: object, **options: object) -> sqlite3.Connection:
        # As root may write everywhere, the refusal is made up.
        if place == file:
            return real(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None)
        return real(place, *arguments, **options)  # type: ignore[call-overload,no-any-return]

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    store = opened()
    assert "readonly" in store.problem
    assert len(store.chats("message 19")) == 1
    talked(store, "in memory")
    assert len(store.chats()) == 2
    monkeypatch.undo()
    assert len(opened().chats()) == 1


def test_a_held_file_keeps_nobody_from_going_on(opened: Opener, file: Path) -> None:
    store = opened()
    chat = talked(store, "q1", "a1")
    answer = store.branch(chat.id)[-1]
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.write(answer.id, "a1 longer")
        assert "another program holds it" in store.problem
        assert "\n" not in store.problem
        store.write(answer.id, "a1 longer still")
        q2 = store.add(chat.id, answer.id, "user", "q2", [Attachment("n", "t")])
        fresh = talked(store, "fresh")
        store.rename(chat.id, "renamed")
        assert texts(store.branch(chat.id)) == ["q1", "a1 longer still", "q2"]
        assert texts(store.branch(fresh.id)) == ["fresh"]
        other.execute("ROLLBACK")
    store.add(chat.id, q2.id, "assistant", "a2")
    assert store.problem == ""
    again = opened()
    assert texts(again.branch(chat.id)) == ["q1", "a1 longer still", "q2", "a2"]
    assert again.branch(chat.id)[2].attachments == (Attachment("n", "t"),)
    assert texts(again.branch(fresh.id)) == ["fresh"]
    assert set(titles(again)) == {"renamed", "fresh"}


def test_what_is_owed_is_written_at_the_latest_when_closing(opened: Opener, file: Path) -> None:
    store = opened()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        chat = talked(store, "first question", "answer", "second question")
        other.execute("ROLLBACK")
    store.close()
    again = opened()
    assert texts(again.branch(chat.id)) == ["first question", "answer", "second question"]
    assert titles(again) == ["first question"]


def test_what_is_owed_to_a_chat_that_is_gone_holds_up_nothing_else(
    opened: Opener, file: Path
) -> None:
    store = opened()
    chat, other_chat = talked(store, "q"), talked(store, "other")
    leaf = store.branch(chat.id)[-1].id
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.add(chat.id, leaf, "assistant", "a")
        store.rename(other_chat.id, "renamed")
        other.execute("DELETE FROM messages WHERE chat = ?", (chat.id,))
        other.execute("DELETE FROM chats WHERE id = ?", (chat.id,))
        other.execute("COMMIT")
    talked(store, "more")
    assert store.problem == ""
    assert set(titles(opened())) == {"more", "renamed"}


def test_a_held_file_at_the_start_is_written_later(opened: Opener, file: Path) -> None:
    opened().close()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store = opened()
        talked(store, "q")
        assert titles(store) == ["q"]
        other.execute("ROLLBACK")
    talked(store, "second")
    assert store.problem == ""
    assert set(titles(opened())) == {"q", "second"}


FILLS_THE_DISK = """
import resource, sys
from pathlib import Path
from edgespec.tui.chats.store import ChatStore
file = Path(sys.argv[1])
store = ChatStore(file)
chat = store.create({})
question = store.add(chat.id, None, "user", "before")
answer = store.add(chat.id, question.id, "assistant", "")
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
for length in range(100_000, 1_000_000, 100_000):
    store.write(answer.id, "x" * length)
    assert "cannot be written" in store.problem, store.problem
    assert [m.text for m in store.branch(chat.id)] == ["before", "x" * length]
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
store.write(answer.id, "the end", finish_reason="stop")
assert store.problem == "", store.problem
store.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_loses_nothing_that_is_seen(opened: Opener, file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", FILLS_THE_DISK, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    store = opened()
    assert texts(store.branch(store.chats()[0].id)) == ["before", "the end"]
