"""What all dialogs have in common, and the two that only show or ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual._cells import cell_len
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static, TextArea

from edgespec.tui.chats.store import ChatStore
from edgespec.tui.dialogs.chats import ChatsDialog
from edgespec.tui.dialogs.frame import Box
from edgespec.tui.dialogs.help import Columns, HelpDialog
from edgespec.tui.dialogs.models import ModelDialog
from edgespec.tui.dialogs.picker import Item, Row, matching
from edgespec.tui.dialogs.settings import SettingsDialog
from edgespec.tui.settings import ChatSettings
from edgespec.tui.shelf import Shelf
from tests.tui.dialog_host import SMALL, USUAL, answer, opened
from tests.tui.waiting import wait_until

HELP = [("ctrl+r", "/retry", "another answer to the last question; the old one is kept")] * 30


# Rows.


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60))), st.integers(1, 90))
def test_rows_fit_and_their_details_stand_below_each_other(
    texts: list[tuple[str, str]], width: int
) -> None:
    rows = Row.of_all([Item(str(at), title, detail) for at, (title, detail) in enumerate(texts)])
    for row in rows:
        line = row.line(width).plain
        assert cell_len(line) <= width
        assert "\n" not in line
        assert "\x1b" not in line


def test_details_stand_below_each_other() -> None:
    rows = Row.of_all([Item("1", "漢字", "today 14:02"), Item("2", "longer", "3 Nov", True)])
    assert [row.line(40).plain for row in rows] == ["  漢字    today 14:02", "• longer  3 Nov"]


def test_a_long_title_is_cut_and_leaves_the_detail() -> None:
    line = Row(Item("1", "漢字" * 40 + "\x1b[31m", "today 14:02")).line(40).plain
    assert line.endswith("…  today 14:02")


def test_a_long_detail_leaves_half_of_the_room_to_the_title() -> None:
    line = Row(Item("1", "t" * 50, "d" * 50)).line(40).plain
    assert line == f"  {'t' * 17}…  {'d' * 17}…"


def test_items_match_by_all_their_words() -> None:
    items = [Item("1", "Qwen3", "code, 8B"), Item("2", "Gemma", "chat")]
    assert [item.key for item in matching(items, "  CODE qwen ")] == ["1"]
    assert [item.key for item in matching(items, "")] == ["1", "2"]
    assert matching(items, "code gemma") == []


# Help.


def test_the_last_column_is_wrapped_beside_the_others() -> None:
    table = Columns([("^r", "/retry", "one two three four five"), ("f1", "", "help")], ("",) * 3)
    assert [line.plain.rstrip() for line in table.lines(28)] == [
        "^r  /retry  one two three",
        "            four five",
        "f1          help",
    ]
    assert all(line.cell_length <= 10 for line in table.lines(10))


@pytest.mark.parametrize("size", [SMALL, USUAL])
@pytest.mark.parametrize("key", ["escape", "f1", "q", "enter"])
async def test_help_scrolls_and_is_left(size: tuple[int, int], key: str) -> None:
    dialog = HelpDialog(HELP, [("chats", "/home/[bold]me/\x1b.db")])
    async with opened(dialog, size) as (pilot, answers):
        scroll = dialog.query_one(VerticalScroll)
        assert scroll.has_focus
        assert scroll.max_scroll_y > 0 or size == USUAL
        await pilot.press("end")
        await wait_until(pilot, lambda: scroll.scroll_y == scroll.max_scroll_y, "the end")
        path = dialog.query(Static).last()
        assert str(path.content) == "chats  /home/[bold]me/�.db"
        await wait_until(pilot, lambda: dialog.region.contains_region(path.region), "the path")
        await pilot.press(key)
        assert await answer(pilot, answers) is None


async def test_help_of_nothing_is_empty() -> None:
    dialog = HelpDialog([], [])
    async with opened(dialog) as (pilot, answers):
        await pilot.press("escape")
        assert await answer(pilot, answers) is None


# Sure?


# All of them.


@pytest.fixture(params=["chats", "settings", "models", "help"])
def any_dialog(request: pytest.FixtureRequest, tmp_path: Path) -> ModalScreen[Any]:
    long = "a very long question " * 40
    made: dict[str, Callable[[], ModalScreen[Any]]] = {
        "chats": lambda: ChatsDialog(ChatStore(tmp_path / "chats.db"), None),
        "settings": lambda: SettingsDialog(ChatSettings(system=long), ("model", "n-gram"), 4096),
        "models": lambda: ModelDialog(lambda: Shelf(()), lambda path: [], ""),
        "help": lambda: HelpDialog(HELP, [("chats", "/" + "long/" * 40)]),
    }
    return made[request.param]()


@pytest.mark.parametrize("size", [SMALL, USUAL, (30, 8)])
async def test_a_dialog_fits_the_screen(
    any_dialog: ModalScreen[Any], size: tuple[int, int]
) -> None:
    async with opened(any_dialog, size) as (pilot, answers):
        box = any_dialog.query_one(Box)
        assert any_dialog.region.contains_region(box.region)
        focused = pilot.app.focused
        assert focused is not None
        assert isinstance(focused, Input | TextArea | VerticalScroll | Button)
        if size[1] > 8:
            assert box.content_region.contains_region(focused.region)
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: any_dialog.size.width == 80, "the other size")
        assert any_dialog.region.contains_region(box.region)
        await pilot.press("escape")
        assert not await answer(pilot, answers)
