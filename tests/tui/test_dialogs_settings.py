"""The dialog of settings: what is saved, and what is said of what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Button, Select

from edgespec.tui.dialogs.settings import Field, SettingsChange, SettingsDialog
from edgespec.tui.settings import ChatSettings
from tests.tui.dialog_host import SMALL, USUAL, answer, opened, said
from tests.tui.waiting import wait_until

LOADED = ("model", "n-gram")


def field(dialog: ModalScreen[Any], name: str) -> Field:
    return dialog.query_one(f"#{name}", Field)


async def typed(pilot: Pilot[None], dialog: ModalScreen[Any], name: str, text: str) -> None:
    value = field(dialog, name).value
    value.focus()
    await wait_until(pilot, lambda: value.has_focus, name)
    await pilot.press("ctrl+end", "end", "ctrl+u", *text)


def complaints(dialog: ModalScreen[Any]) -> dict[str, str]:
    fields = dialog.query(Field)
    return {one.id or "": one.complaint for one in fields if one.complaint}


async def test_settings_that_were_not_touched_stay_what_they_are() -> None:
    settings = ChatSettings(system=" Be brief. \n", temperature=0.123456789, seed=7, k=3)
    dialog = SettingsDialog(settings, LOADED, 4096)
    async with opened(dialog) as (pilot, answers):
        await pilot.press("ctrl+s")
        assert await answer(pilot, answers) == SettingsChange(settings, None)


async def test_what_is_typed_is_saved() -> None:
    dialog = SettingsDialog(ChatSettings(), LOADED, 4096, trained=32768)
    async with opened(dialog) as (pilot, answers):
        assert field(dialog, "system").value.has_focus
        await pilot.press(*"Be", "enter", *"brief")
        numbers = {"temperature": "0", "top_k": "5", "top_p": "0.5", "min_p": "0.1"}
        numbers |= {"repeat_penalty": "1.1", "seed": "42", "max_tokens": "0", "k": "4"}
        for name, text in {**numbers, "context": "8192"}.items():
            await typed(pilot, dialog, name, text)
        await pilot.press("ctrl+s")
        expected = ChatSettings(
            system="Be\nbrief",
            temperature=0.0,
            top_k=5,
            top_p=0.5,
            min_p=0.1,
            repeat_penalty=1.1,
            seed=42,
            max_tokens=0,
            k=4,
        )
        assert await answer(pilot, answers) == SettingsChange(expected, 8192)


async def test_an_empty_seed_is_drawn_and_k_can_be_auto() -> None:
    dialog = SettingsDialog(ChatSettings(seed=7, k=3), LOADED, 4096)
    async with opened(dialog) as (pilot, answers):
        await typed(pilot, dialog, "seed", "")
        await typed(pilot, dialog, "k", "auto")
        await pilot.press("ctrl+s")
        assert (await answer(pilot, answers)).settings == ChatSettings()


@pytest.mark.parametrize("size", [SMALL, USUAL])
async def test_what_is_wrong_is_said_below_it_and_the_dialog_stays(size: tuple[int, int]) -> None:
    dialog = SettingsDialog(ChatSettings(), LOADED, 4096)
    async with opened(dialog, size) as (pilot, answers):
        await typed(pilot, dialog, "min_p", "2")
        await typed(pilot, dialog, "k", "many")
        await typed(pilot, dialog, "context", "12")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: bool(complaints(dialog)), "complaints")
        assert complaints(dialog) == {
            "min_p": "min_p must be between 0 and 1, not 2.",
            "k": "k must be auto or a whole number, not 'many'.",
            "context": "context must be between 256 and 2147483647 tokens, not 12.",
        }
        wrong = field(dialog, "min_p")
        await wait_until(pilot, lambda: wrong.value.has_focus, "the focus")
        form = dialog.query_one(VerticalScroll)
        await wait_until(pilot, lambda: form.region.contains_region(wrong.region), "all of it")
        await typed(pilot, dialog, "min_p", "0.2")
        await typed(pilot, dialog, "k", "0")
        await typed(pilot, dialog, "context", "4096")
        assert not answers
        await pilot.press("ctrl+s")
        change = await answer(pilot, answers)
        assert change == SettingsChange(ChatSettings(min_p=0.2, k=0), None)


@pytest.mark.parametrize("text", ["", "a lot", "1e4", "-4096", "99999999999"])
async def test_no_size_of_a_context_is_complained_of(text: str) -> None:
    dialog = SettingsDialog(ChatSettings(), (), 4096)
    async with opened(dialog) as (pilot, answers):
        await typed(pilot, dialog, "context", text)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: list(complaints(dialog)) == ["context"], "a complaint")
        await pilot.press("escape")
        assert await answer(pilot, answers) is None


async def test_it_says_that_another_context_loads_the_model_again() -> None:
    dialog = SettingsDialog(ChatSettings(), (), 4096, trained=8192)
    async with opened(dialog):
        about = said(dialog, "#context .about")
        assert about == "tokens, trained for 8192; another size loads the model again"


async def test_without_a_model_there_is_no_context() -> None:
    dialog = SettingsDialog(ChatSettings(), (), 0)
    async with opened(dialog) as (pilot, answers):
        assert not dialog.query("#context")
        await pilot.press("ctrl+s")
        assert await answer(pilot, answers) == SettingsChange(ChatSettings(), None)


async def test_a_drafter_is_chosen_by_keys() -> None:
    dialog = SettingsDialog(ChatSettings(), LOADED, 4096)
    async with opened(dialog, SMALL) as (pilot, answers):
        drafter = field(dialog, "drafter").value
        drafter.focus()
        await wait_until(pilot, lambda: drafter.has_focus, "the drafter")
        await pilot.press("enter", "down", "down", "enter")
        await wait_until(pilot, lambda: field(dialog, "drafter").text == "n-gram", "the choice")
        await pilot.press("enter", "escape")
        assert not answers
        await pilot.press("ctrl+s")
        assert (await answer(pilot, answers)).settings.drafter == "n-gram"


@pytest.mark.parametrize("name", ["model", "[bold]x[/"])
async def test_a_drafter_that_is_not_loaded_is_kept(name: str) -> None:
    settings = ChatSettings(drafter=name)
    dialog = SettingsDialog(settings, ("n-gram",), 4096)
    async with opened(dialog) as (pilot, answers):
        select = dialog.query_one(Select)
        await wait_until(pilot, lambda: select.value == name, "the drafter")
        await pilot.press("ctrl+s")
        assert (await answer(pilot, answers)).settings == settings


async def test_enter_goes_to_the_next_field_and_the_button_saves() -> None:
    dialog = SettingsDialog(ChatSettings(), (), 4096)
    async with opened(dialog, SMALL) as (pilot, answers):
        await pilot.press("tab")
        assert field(dialog, "temperature").value.has_focus
        await pilot.press("enter")
        assert field(dialog, "top_k").value.has_focus
        await pilot.press(*["tab"] * 9)
        assert dialog.query_one(Button).has_focus
        await pilot.press("enter")
        assert await answer(pilot, answers) == SettingsChange(ChatSettings(), None)
