"""The dialog of chats: finding, opening, renaming, deleting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from textual.widgets import Input

from edgespec.tui.chats.store import ChatStore
from edgespec.tui.dialogs.chats import ChatsDialog, when
from edgespec.tui.dialogs.picker import Picker
from tests.tui.dialog_host import answer, lines, listed, opened, said
from tests.tui.waiting import wait_until

NOW = datetime(2026, 11, 30, 18, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    """Three chats, the newest first: soup, borrow checker, old times."""
    moments = iter(float(n) for n in range(10**9))
    store = ChatStore(tmp_path / "chats.db", clock=lambda: next(moments))
    for title in ("Old times", "The borrow checker", "Soup for [bold]winter"):
        store.add(store.create({}, title).id, None, "user", f"Tell me about {title.lower()}")
    yield store
    store.close()


def ids(store: ChatStore) -> list[int]:
    return [chat.id for chat in store.chats()]


def titles(store: ChatStore) -> list[str]:
    return [chat.title for chat in store.chats()]


async def test_chats_are_listed_and_the_open_one_is_highlighted(store: ChatStore) -> None:
    dialog = ChatsDialog(store, ids(store)[1])
    async with opened(dialog) as (pilot, answers):
        assert listed(dialog) == ["Soup for [bold]winter", "The borrow checker", "Old times"]
        assert [row.item.current for row in dialog.query_one(Picker).rows] == [False, True, False]
        await wait_until(pilot, lambda: "• The borrow checker" in lines(dialog)[1], "the rows")
        assert lines(dialog)[0].strip().startswith("Soup for [bold]winter")
        assert "1 Jan 1970" in lines(dialog)[0] or "31 Dec 1969" in lines(dialog)[0]
        await pilot.press("enter")
        assert await answer(pilot, answers) == ids(store)[1]


async def test_up_and_down_move_from_the_line_of_input(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        await pilot.press("down", "down", "up", "enter")
        assert await answer(pilot, answers) == ids(store)[1]


async def test_typing_filters_and_enter_opens_what_is_listed_then(store: ChatStore) -> None:
    dialog = ChatsDialog(store, ids(store)[0])
    async with opened(dialog) as (pilot, answers):
        await pilot.press(*"TIMES", "enter")
        assert await answer(pilot, answers) == ids(store)[2]


async def test_a_pasted_word_and_enter_at_once_open_the_right_chat(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        line = dialog.query_one(Picker).input
        line.value = "borrow"
        await line.action_submit()  # before the list has followed
        assert await answer(pilot, answers) == ids(store)[1]


async def test_what_nothing_matches_opens_nothing(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        await pilot.press(*"zebra")
        await wait_until(pilot, lambda: listed(dialog) == [], "the empty list")
        assert said(dialog, "Picker > Static") == "No chat holds these words."
        await pilot.press("enter", "down", "pageup", "ctrl+t", "ctrl+d", "ctrl+d", "escape")
        assert await answer(pilot, answers) is None
        assert len(ids(store)) == 3


async def test_without_chats_it_says_so(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        assert said(dialog, "Picker > Static") == "There are no chats yet."
        await pilot.press("escape")
        assert await answer(pilot, answers) is None
    store.close()


async def test_enter_twice_answers_once(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        line = dialog.query_one(Picker).input
        await line.action_submit()
        await line.action_submit()
        assert await answer(pilot, answers) == ids(store)[0]
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1


async def test_a_chat_gets_another_title(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        await pilot.press("down", "ctrl+t")
        title = dialog.query_one(".rename > Input", Input)
        await wait_until(pilot, lambda: title.has_focus, "the line for the title")
        assert title.value == "The borrow checker"
        await pilot.press("ctrl+u", *"Rust", "enter")
        await wait_until(pilot, lambda: "Rust" in listed(dialog), "the new title")
        assert titles(store) == ["Soup for [bold]winter", "Rust", "Old times"]
        assert dialog.query_one(Picker).input.has_focus
        await pilot.press("enter")
        assert await answer(pilot, answers) == ids(store)[1]


async def test_escape_leaves_a_title_before_it_leaves_the_dialog(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        await pilot.press("ctrl+t", *"xyz", "escape")
        await wait_until(pilot, lambda: dialog.query_one(Picker).input.has_focus, "the list")
        assert not answers
        await pilot.press("ctrl+t", "ctrl+u", "enter", "escape")
        assert await answer(pilot, answers) is None
        assert titles(store)[0] == "Soup for [bold]winter"


async def test_in_a_title_ctrl_d_deletes_a_character(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, _):
        await pilot.press("ctrl+t", "home", "ctrl+d", "ctrl+d", "enter")
        await wait_until(pilot, lambda: "up for [bold]winter" in listed(dialog), "the new title")
        assert len(ids(store)) == 3


async def test_a_chat_is_deleted_by_the_second_press_only(store: ChatStore) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, answers):
        await pilot.press("down", "ctrl+d")
        assert said(dialog, ".note") == "press ctrl+d again to delete 'The borrow checker'"
        assert len(ids(store)) == 3
        await pilot.press("ctrl+d")
        assert titles(store) == ["Soup for [bold]winter", "Old times"]
        assert said(dialog, ".note") == ""
        await pilot.press("enter")
        assert await answer(pilot, answers) == ids(store)[1]


@pytest.mark.parametrize("keys", [("down",), ("s",), ("down", "up"), ("ctrl+t", "escape")])
async def test_another_key_between_spares_the_chat(store: ChatStore, keys: Sequence[str]) -> None:
    dialog = ChatsDialog(store, None)
    async with opened(dialog) as (pilot, _):
        await pilot.press("ctrl+d")
        assert said(dialog, ".note")
        await pilot.press(*keys)
        await wait_until(pilot, lambda: not said(dialog, ".note"), "the warning to go")
        await pilot.press("ctrl+d")
        assert len(ids(store)) == 3


async def test_all_chats_can_be_deleted(store: ChatStore) -> None:
    dialog = ChatsDialog(store, ids(store)[0])
    async with opened(dialog) as (pilot, _):
        await pilot.press("down", "down", *["ctrl+d"] * 8)
        assert ids(store) == []
        assert said(dialog, "Picker > Static") == "There are no chats yet."


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 11, 30, 14, 2, tzinfo=UTC), "today 14:02"),
        (datetime(2026, 11, 29, 23, 59, tzinfo=UTC), "yesterday 23:59"),
        (datetime(2026, 11, 3, 1, tzinfo=UTC), "3 Nov"),
        (datetime(2026, 1, 1, tzinfo=UTC), "1 Jan"),
        (datetime(2025, 12, 31, 23, tzinfo=UTC), "31 Dec 2025"),
    ],
)
def test_moments_are_told_from_now(moment: datetime, text: str) -> None:
    assert when(moment.timestamp(), NOW) == text


@pytest.mark.parametrize("moment", [1e300, float("nan"), float("inf"), -1e18])
def test_what_is_no_moment_is_nothing(moment: float) -> None:
    assert when(moment, NOW) == ""
