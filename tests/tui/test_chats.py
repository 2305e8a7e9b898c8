"""What is said is kept, found and branched, whatever it is and whoever else writes."""

from __future__ import annotations

import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgespec.catalog import paths
from edgespec.tui.attachments import Attachment
from edgespec.tui.chats.store import Chat, ChatStore, Message, as_title
from tests.tui.kept_chats import (
    Clock,
    Opener,
    opening,
    talked,
    texts,
    titles,
    written_and_killed,
)


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


@pytest.fixture
def store(opened: Opener) -> ChatStore:
    return opened()


# What is kept


def test_chats_lie_with_what_the_user_made(
    edgespec_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert paths.chats_file() == edgespec_home / "data" / "chats.db"
    assert not edgespec_home.exists()
    monkeypatch.delenv("EDGESPEC_HOME")
    assert paths.data_dir().is_absolute()
    assert "edgespec" in paths.data_dir().parts
    assert paths.chats_file().is_relative_to(paths.data_dir())


def test_what_was_written_is_there_after_opening_again(opened: Opener, clock: Clock) -> None:
    store = opened()
    chat = store.create({"temperature": 0.5, "k": "auto"})
    clock.now += 1
    question = store.add(
        chat.id, None, "user", "Why?", [Attachment("a.txt", "A"), Attachment("b", "")]
    )
    clock.now += 1
    answer = store.add(chat.id, question.id, "assistant", "")
    clock.now += 1
    store.write(answer.id, "Because.", "3t5m", {"tokens": 7, "seconds": 0.25}, "stop")
    store.close()

    again = opened()
    assert again.problem == ""
    assert again.chat(chat.id) == Chat(
        chat.id,
        "Why?",
        chat.created,
        chat.created + 3,
        {"temperature": 0.5, "k": "auto"},
        answer.id,
    )
    assert again.branch(chat.id) == [
        Message(
            question.id,
            chat.id,
            None,
            "user",
            "Why?",
            chat.created + 1,
            None,
            {},
            "",
            (Attachment("a.txt", "A"), Attachment("b", "")),
            (question.id,),
        ),
        Message(
            answer.id,
            chat.id,
            question.id,
            "assistant",
            "Because.",
            chat.created + 2,
            "stop",
            {"tokens": 7, "seconds": 0.25},
            "3t5m",
            (),
            (answer.id,),
        ),
    ]


def test_an_answer_is_what_was_written_of_it_last(store: ChatStore) -> None:
    chat = talked(store, "q", "")
    answer = store.branch(chat.id)[-1]
    for text in ("A", "A long", "A long answer"):
        store.write(answer.id, text, f"{len(text)}t")
    kept = store.message(answer.id)
    assert kept is not None
    assert (kept.text, kept.provenance, kept.finish_reason) == ("A long answer", "13t", None)
    store.write(answer.id, "A long answer.", "14t", {"a": 1}, "length")
    kept = store.message(answer.id)
    assert kept is not None
    assert (kept.text, kept.stats, kept.finish_reason) == ("A long answer.", {"a": 1}, "length")


def test_what_add_returns_is_what_is_kept(store: ChatStore) -> None:
    chat = store.create({})
    message = store.add(chat.id, None, "user", "hello", [Attachment("n", "t")])
    assert store.message(message.id) == message
    assert store.branch(chat.id) == [message]


def test_what_is_not_there_is_none_or_empty(store: ChatStore) -> None:
    assert store.chat(1) is None
    assert store.message(1) is None
    assert store.branch(1) == []
    assert store.chats() == []
    store.choose(1)
    store.write(1, "text")
    store.rename(1, "title")
    store.delete(1)
    assert store.problem == ""


def test_the_file_is_for_its_owner_only(store: ChatStore, file: Path) -> None:
    talked(store, "secret")
    if sys.platform != "win32":
        for one in file.parent.iterdir():
            assert stat.S_IMODE(one.stat().st_mode) == 0o600


# The list of chats


def test_chats_are_listed_the_newest_first_and_none_without_messages(
    store: ChatStore, clock: Clock
) -> None:
    first = talked(store, "first")
    clock.now += 1
    talked(store, "second")
    store.create({}, title="nothing said")
    assert titles(store) == ["second", "first"]
    clock.now += 1
    store.add(first.id, first.leaf, "user", "more")
    assert titles(store) == ["first", "second"]
    assert [chat.title for chat in store.chats(limit=1)] == ["first"]
    clock.now += 1
    store.write(store.chats("second")[0].leaf or 0, "second, changed")
    assert titles(store) == ["second", "first"]


def test_of_chats_of_the_same_time_the_later_one_comes_first(store: ChatStore) -> None:
    for number in range(5):
        talked(store, f"number {number}")
    assert titles(store) == [f"number {number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", ["müßig", "100%_sure", "plain"]),
        ("   ", ["müßig", "100%_sure", "plain"]),
        ("PLAIN", ["plain"]),
        ("answer to", ["müßig", "100%_sure", "plain"]),
        ("ANSWER to Plain", ["plain"]),
        ("%", ["100%_sure"]),
        ("_", ["100%_sure"]),
        ("0%_s", ["100%_sure"]),
        ("MÜSSIG", ["müßig"]),
        ("\\", []),
        ("'; DROP TABLE chats; --", []),
        ("after the nul", ["plain"]),
        ("\ud800", []),
    ],
)
def test_the_search_looks_into_titles_and_texts(
    store: ChatStore, clock: Clock, search: str, found: list[str]
) -> None:
    for text in ("plain", "100%_sure", "müßig"):
        clock.now += 1
        chat = talked(store, text, f"an answer to {text}\0{'AFTER the NUL' * (text == 'plain')}")
    assert titles(store, search) == found
    store.rename(chat.id, "Another")
    assert titles(store, "aNOTHER") == ["Another"]
    assert store.problem == ""


def test_the_first_question_gives_the_title(store: ChatStore) -> None:
    chat = talked(store, "\n  \tWhat is\x1b[31m a \u202etoken?\x07\nSecond line", "answer", "next")
    kept = store.chat(chat.id)
    assert kept is not None
    assert kept.title == "What is[31m a token?"


def test_a_title_that_is_there_stays(store: ChatStore) -> None:
    chat = store.create({}, title="  Given\n")
    store.add(chat.id, None, "user", "question")
    assert titles(store) == ["Given"]
    store.rename(chat.id, "New\x00 name")
    store.add(chat.id, None, "user", "question")
    assert titles(store) == ["New name"]


def test_an_answer_gives_no_title_and_a_later_question_does(store: ChatStore) -> None:
    chat = talked(store, " \n\x07 ", "answer")
    assert titles(store) == [""]
    store.add(chat.id, None, "user", "Spoken")
    assert titles(store) == ["Spoken"]


def test_a_title_is_cut_to_60_characters() -> None:
    assert as_title("a" * 60) == "a" * 60
    assert as_title("a" * 61) == "a" * 59 + "…"
    assert as_title("語" * 1_000_000) == "語" * 59 + "…"
    assert len(as_title("word " * 100)) <= 60
    assert as_title("") == as_title("\n\x00\n") == ""
    assert as_title("क्‍ष") == "क्‍ष"  # its joiner is part of the word


def test_settings_are_replaced(store: ChatStore) -> None:
    chat = store.create({"k": 1, "system": "Be \ud83d brief."})
    store.set_settings(chat.id, {"k": 2})
    kept = store.chat(chat.id)
    assert kept is not None
    assert kept.settings == {"k": 2}


def test_deleting_takes_all_messages_along(store: ChatStore, file: Path) -> None:
    keep = talked(store, "keep", "this")
    chat = store.create({})
    parent = None
    # Deeper than SQLite follows cascades.
    for number in range(1500):
        parent = store.add(chat.id, parent, "user", str(number), [Attachment("n", "t")]).id
    store.delete(chat.id)
    assert store.problem == ""
    assert titles(store) == ["keep"]
    assert texts(store.branch(keep.id)) == ["keep", "this"]
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("SELECT count(*) FROM messages").fetchone() == (2,)
        assert raw.execute("SELECT count(*) FROM attachments").fetchone() == (0,)


def test_questions_are_listed_the_newest_last_and_none_twice(store: ChatStore) -> None:
    talked(store, "first", "answer", "again")
    talked(store, "again", "answer", "x" * 10_000, "answer", "last")
    assert store.questions() == ["first", "again", "last"]
    assert store.questions(limit=1) == ["last"]


# Branches


def test_a_regenerated_answer_is_a_sibling_and_the_old_one_stays(store: ChatStore) -> None:
    chat = talked(store, "q1", "a1", "q2", "a2")
    q1, a1, q2, a2 = store.branch(chat.id)
    a2b = store.add(chat.id, q2.id, "assistant", "a2b")
    assert texts(store.branch(chat.id)) == ["q1", "a1", "q2", "a2b"]
    assert store.branch(chat.id)[-1].siblings == (a2.id, a2b.id)
    assert store.branch(chat.id)[0].siblings == (q1.id,)
    q1b = store.add(chat.id, None, "user", "q1b")
    assert texts(store.branch(chat.id)) == ["q1b"]
    assert q1b.siblings == (q1.id, q1b.id)
    assert [one.text for one in map(store.message, (a1.id, a2.id)) if one] == ["a1", "a2"]


def test_choosing_shows_the_newest_branch_below(store: ChatStore, opened: Opener) -> None:
    chat = talked(store, "q1", "a1", "q2", "a2")
    q1, a1, q2, a2 = store.branch(chat.id)
    a1b = store.add(chat.id, q1.id, "assistant", "a1b")
    store.add(chat.id, q2.id, "assistant", "a2b")
    q1b = store.add(chat.id, None, "user", "q1b")
    store.choose(q1.id)
    assert texts(store.branch(chat.id)) == ["q1", "a1", "q2", "a2b"]
    store.choose(a2.id)
    assert texts(store.branch(chat.id)) == ["q1", "a1", "q2", "a2"]
    store.choose(a1b.id)
    assert texts(store.branch(chat.id)) == ["q1", "a1b"]
    store.choose(a1.id)
    assert texts(store.branch(chat.id)) == ["q1", "a1", "q2", "a2b"]
    store.choose(q1b.id)
    assert texts(opened().branch(chat.id)) == ["q1b"]


def test_siblings_of_another_chat_are_none_of_this_one(store: ChatStore) -> None:
    first, second = talked(store, "one"), talked(store, "two")
    assert [len(store.branch(chat.id)[0].siblings) for chat in (first, second)] == [1, 1]


def test_a_clock_that_goes_back_changes_no_order(opened: Opener, clock: Clock) -> None:
    store = opened()
    chat = talked(store, "q1", "a1")
    leaf = store.branch(chat.id)[-1].id
    clock.now = 1.0
    for window in (store, opened()):
        leaf = window.add(chat.id, leaf, "user", "later").id
    window.add(chat.id, None, "user", "sibling")
    window.choose(leaf)
    assert texts(window.branch(chat.id)) == ["q1", "a1", "later", "later"]
    assert len(window.branch(chat.id)[0].siblings) == 2
    assert window.branch(chat.id)[0].siblings[0] == window.branch(chat.id)[0].id


def test_a_circle_of_parents_ends(store: ChatStore, file: Path) -> None:
    chat = talked(store, "q", "a")
    first, last = store.branch(chat.id)
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("UPDATE messages SET parent = ? WHERE id = ?", (last.id, first.id))
    assert texts(store.branch(chat.id)) == ["q", "a"]
    store.choose(first.id)


# Whatever a text holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "a\0b",
        "\x1b]52;c;aGk=\x07",
        "'); DROP TABLE messages; --",
        "👩‍👩‍👧 \U0010ffff \ufeff",
        "\r\n\t ",
    ],
)
def test_any_text_comes_back_as_it_was(opened: Opener, text: str) -> None:
    store = opened()
    chat = store.create({"system": text}, title=text)
    store.add(chat.id, None, "user", text, [Attachment(text, text)])
    store.close()
    again = opened()
    (message,) = again.branch(chat.id)
    assert message.text == text
    assert message.attachments == (Attachment(text, text),)
    kept = again.chat(chat.id)
    assert kept is not None
    assert kept.settings == {"system": text}
    assert again.problem == ""


def test_halves_of_surrogate_pairs_are_replaced_one_by_one(store: ChatStore) -> None:
    chat = store.create({}, title="t\udc80")
    half = "a\ud83d b\ude00 c"
    message = store.add(chat.id, None, "assistant", half, [Attachment("n\udcff", half)])
    assert message.text == "a\ufffd b\ufffd c"
    store.write(message.id, half * 2, "1t\ud800", {"note": half}, "stop")
    (kept,) = store.branch(chat.id)
    assert kept.text == "a\ufffd b\ufffd ca\ufffd b\ufffd c"
    assert kept.stats == {"note": half}
    assert kept.attachments == (Attachment("n\ufffd", "a\ufffd b\ufffd c"),)
    assert store.problem == ""


def test_a_megabyte_comes_back(store: ChatStore) -> None:
    text = "täglich\n" * 131_072
    chat = talked(store, text, text)
    assert texts(store.branch(chat.id)) == [text, text]
    assert titles(store, "LICH\nTÄG") == ["täglich"]


@pytest.mark.parametrize("kept", ["", "[]", "7", "{", "[" * 100_000, b"\xff\xfe", 5])
def test_settings_that_cannot_be_read_are_none(store: ChatStore, file: Path, kept: object) -> None:
    chat = talked(store, "q")
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("UPDATE chats SET settings = ?", (kept,))
        raw.execute("UPDATE messages SET stats = ?", (kept,))
        raw.execute("UPDATE messages SET text = CAST(X'61ff62' AS TEXT)")
    found = store.chat(chat.id)
    assert found is not None
    assert found.settings == {}
    (message,) = store.branch(chat.id)
    assert (message.text, message.stats) == ("a\ufffdb", {})
    assert titles(store, "a\ufffd") == ["q"]


# Several windows, and programs that die


def test_what_was_written_before_a_kill_is_there(store: ChatStore, file: Path) -> None:
    written_and_killed(file)
    (chat,) = store.chats()
    answer = store.branch(chat.id)[-1]
    assert (chat.title, chat.settings) == ("Are you there?", {"k": 3})
    assert (answer.text, answer.provenance) == ("Yes, I", "6t")
    assert answer.finish_reason is None
    assert store.problem == ""


def test_what_was_written_before_a_kill_is_there_for_the_next_start(
    opened: Opener, file: Path
) -> None:
    written_and_killed(file)
    store = opened()
    assert texts(store.branch(store.chats()[0].id)) == ["Are you there?", "Yes, I"]
    assert store.problem == ""


def test_two_windows_see_what_the_other_writes(opened: Opener) -> None:
    first, second = opened(), opened()
    chat = talked(first, "from the first")
    leaf = second.branch(chat.id)[-1].id
    other = second.add(chat.id, leaf, "assistant", "from the second")
    first.write(other.id, "changed by the first")
    assert texts(second.branch(chat.id)) == ["from the first", "changed by the first"]
    talked(second, "another")
    assert len(first.chats()) == 2
    assert first.problem == second.problem == ""


def test_a_chat_that_another_window_deletes_comes_back_when_it_goes_on(opened: Opener) -> None:
    here, there = opened(), opened()
    chat = talked(here, "q1", "a1")
    a1 = here.branch(chat.id)[-1]
    there.delete(chat.id)
    assert here.branch(chat.id) == []
    here.add(chat.id, a1.id, "user", "q2", [Attachment("n", "t")])
    assert texts(here.branch(chat.id)) == ["q1", "a1", "q2"]
    assert texts(there.branch(chat.id)) == ["q1", "a1", "q2"]
    assert titles(there) == ["q1"]
    assert here.problem == ""


def test_an_answer_goes_on_whose_chat_another_window_deletes(opened: Opener) -> None:
    here, there = opened(), opened()
    chat = talked(here, "q", "")
    answer = here.branch(chat.id)[-1]
    there.delete(chat.id)
    here.write(answer.id, "All of it.", "10t", {"n": 1}, "stop")
    question, kept = there.branch(chat.id)
    assert (question.text, kept.text, kept.stats) == ("q", "All of it.", {"n": 1})
    assert kept.finish_reason == "stop"


def test_a_chat_that_this_window_deletes_stays_deleted(store: ChatStore) -> None:
    chat = talked(store, "q", "a")
    answer = store.branch(chat.id)[-1]
    store.delete(chat.id)
    store.write(answer.id, "more")
    assert store.chats() == []


def test_adding_to_what_is_not_there_is_told(store: ChatStore) -> None:
    message = store.add(17, 18, "user", "Where am I?")
    assert (message.text, message.siblings) == ("Where am I?", (message.id,))
    assert "is not kept" in store.problem
    assert store.take_problem() == store.problem
    assert store.take_problem() == ""
    talked(store, "q")
    assert store.problem == ""


def test_closing_twice_is_once(opened: Opener) -> None:
    store = opened()
    store.close()
    store.close()
