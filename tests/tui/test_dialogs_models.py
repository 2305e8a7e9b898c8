"""The dialog of models: a target, then what drafts for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from edgespec.errors import CatalogError
from edgespec.tui.dialogs.models import ModelChoice, ModelDialog
from edgespec.tui.dialogs.picker import Picker
from edgespec.tui.shelf import DraftEntry, Entry, Shelf
from tests.tui.dialog_host import SMALL, USUAL, answer, details, listed, opened, said
from tests.tui.waiting import wait_until

PAIR = Entry("pair", "pair", "a + b · here", Path("/m/a.gguf"), pair=True, draft="b")
FILE = Entry("/m/big.gguf", "big[/]\x1b", "Q4_K_M · 4.7 GB · ollama", Path("/m/big.gguf"))
AWAY = Entry("away", "away", "1.0 GB · MIT · to be pulled", None)
SHELF = Shelf((PAIR, FILE, AWAY))
DRAFTS = [
    DraftEntry("auto", "auto", "small, fits, 1.42x measured"),
    DraftEntry("none", "none", "no draft model"),
    DraftEntry("/m/small.gguf", "small", "fits, 1.42x measured · 1.0 GB of memory"),
    DraftEntry("/m/odd.gguf", "odd", "does not fit: token 5 differs", fits=False),
]


def models(
    found: Callable[[], Shelf] = lambda: SHELF,
    drafts: Callable[[Path], list[DraftEntry]] = lambda path: DRAFTS,
    current: str = "",
) -> ModelDialog:
    return ModelDialog(found, drafts, current)


async def until_listed(pilot: Pilot[None], dialog: ModelDialog, *names: str) -> None:
    await wait_until(pilot, lambda: listed(dialog) == list(names), f"{names}")


async def until_models(pilot: Pilot[None], dialog: ModelDialog) -> None:
    await until_listed(pilot, dialog, "pair", "big[/]\x1b", "away")


async def until_drafts(pilot: Pilot[None], dialog: ModelDialog) -> None:
    await until_listed(pilot, dialog, "auto", "none", "small", "odd")


@pytest.mark.parametrize(
    ("keys", "choice"),
    [
        ((), ModelChoice("pair", True, None)),
        (("down", "down"), ModelChoice("away", False, "auto")),
        (("a", "w", "a"), ModelChoice("away", False, "auto")),
    ],
)
async def test_pairs_and_models_to_be_pulled_are_chosen_at_once(
    keys: Sequence[str], choice: ModelChoice
) -> None:
    dialog = models()
    async with opened(dialog) as (pilot, answers):
        await until_models(pilot, dialog)
        await pilot.press(*keys, "enter")
        assert await answer(pilot, answers) == choice


@pytest.mark.parametrize("size", [SMALL, USUAL])
@pytest.mark.parametrize(("downs", "draft"), [(0, "auto"), (1, "none"), (2, "/m/small.gguf")])
async def test_a_file_gets_a_draft_model(size: tuple[int, int], downs: int, draft: str) -> None:
    asked: list[Path] = []
    dialog = models(drafts=lambda path: asked.append(path) or DRAFTS)  # type: ignore[func-returns-value]
    async with opened(dialog, size) as (pilot, answers):
        await until_models(pilot, dialog)
        await pilot.press(*"ollama", "enter")
        await until_drafts(pilot, dialog)
        assert asked == [FILE.target]
        assert details(dialog)[3] == "does not fit: token 5 differs"
        assert dialog.query_one(Picker).text == ""
        await pilot.press(*["down"] * downs, "enter")
        assert await answer(pilot, answers) == ModelChoice(FILE.name, False, draft)


async def test_a_draft_model_that_does_not_fit_cannot_be_chosen() -> None:
    dialog = models()
    async with opened(dialog) as (pilot, answers):
        await until_models(pilot, dialog)
        await pilot.press("down", "enter")
        await until_drafts(pilot, dialog)
        await pilot.press("up", "enter")
        await wait_until(pilot, lambda: bool(said(dialog, ".complaint")), "a complaint")
        assert said(dialog, ".complaint").startswith("odd does not fit: choose another")
        assert said(dialog, ".about") == "odd: does not fit: token 5 differs"
        assert not answers


async def test_backspace_goes_back_to_the_models() -> None:
    dialog = models()
    async with opened(dialog) as (pilot, answers):
        await until_models(pilot, dialog)
        await pilot.press("backspace", "down", "enter")
        await until_drafts(pilot, dialog)
        await pilot.press("s", "backspace", "backspace")
        await until_models(pilot, dialog)
        assert dialog.query_one(Picker).key == "1"
        await pilot.press("escape")
        assert await answer(pilot, answers) is None


async def test_what_is_loaded_is_marked_and_highlighted() -> None:
    for current in ("big.gguf", FILE.name):
        dialog = models(current=current)
        async with opened(dialog) as (pilot, _):
            await until_models(pilot, dialog)
            assert dialog.query_one(Picker).key == "1"
            assert [row.item.current for row in dialog.query_one(Picker).rows] == [0, 1, 0]


async def test_looking_for_models_blocks_nothing() -> None:
    gate = threading.Event()
    dialog = models(found=lambda: SHELF if gate.wait(30) else Shelf(()))
    async with opened(dialog) as (pilot, answers):
        assert said(dialog, "Picker > Static") == "looking for models"
        await pilot.press(*"pair", "enter")
        assert not answers
        gate.set()
        await until_listed(pilot, dialog, "pair")
        await pilot.press("enter")
        assert (await answer(pilot, answers)).name == "pair"


async def test_what_was_looked_for_is_not_shown_after_going_back() -> None:
    gate = threading.Event()
    dialog = models(drafts=lambda path: DRAFTS if gate.wait(30) else [])
    async with opened(dialog) as (pilot, answers):
        await until_models(pilot, dialog)
        await pilot.press("down", "enter")
        doing = "looking which draft models fit big[/]�"
        await wait_until(pilot, lambda: said(dialog, "Picker > Static") == doing, doing)
        await pilot.press("backspace")
        await until_models(pilot, dialog)
        gate.set()
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        await until_models(pilot, dialog)
        await pilot.press("up", "enter")
        assert (await answer(pilot, answers)).name == "pair"


async def test_a_dialog_may_be_left_while_it_looks() -> None:
    gate = threading.Event()
    dialog = models(found=lambda: SHELF if gate.wait(30) else Shelf(()))
    async with opened(dialog) as (pilot, answers):
        await pilot.press("escape")
        assert await answer(pilot, answers) is None
        gate.set()


def refuse(*arguments: object) -> Any:
    raise CatalogError("models.toml: is damaged [bold. Correct it.")


async def test_a_complaint_stands_below_what_there_is() -> None:
    dialog = models(found=lambda: Shelf((PAIR,), "models.toml: line 3 is [/] wrong."))
    async with opened(dialog, SMALL) as (pilot, answers):
        await until_listed(pilot, dialog, "pair")
        assert said(dialog, ".complaint") == "models.toml: line 3 is [/] wrong."
        await pilot.press("enter")
        assert (await answer(pilot, answers)).name == "pair"


async def test_errors_are_told_and_the_dialog_stays() -> None:
    dialog = models(found=refuse)
    async with opened(dialog) as (pilot, answers):
        complaint = "models.toml: is damaged [bold. Correct it."
        await wait_until(pilot, lambda: said(dialog, ".complaint") == complaint, complaint)
        assert said(dialog, "Picker > Static") == "nothing was found"
        await pilot.press("enter", "escape")
        assert await answer(pilot, answers) is None


async def test_a_target_that_cannot_be_read_is_told_and_another_can_be_chosen() -> None:
    dialog = models(drafts=refuse)
    async with opened(dialog) as (pilot, answers):
        await until_models(pilot, dialog)
        await pilot.press("down", "enter")
        await wait_until(pilot, lambda: "is damaged" in said(dialog, ".complaint"), "a complaint")
        await pilot.press("backspace")
        await until_models(pilot, dialog)
        assert said(dialog, ".complaint") == ""
        await pilot.press("up", "enter")
        assert (await answer(pilot, answers)).name == "pair"


async def test_what_nobody_expected_is_told_too() -> None:
    def fail() -> Shelf:
        raise KeyError("x")

    dialog = models(found=fail)
    async with opened(dialog) as (pilot, _):
        await wait_until(pilot, lambda: "KeyError" in said(dialog, ".complaint"), "a complaint")
