"""Screens that somebody has looked at stay as they are (see looking.py)."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edgespec.errors import ModelLoadError
from edgespec.tui.app import Start
from edgespec.tui.bridge import Wish
from edgespec.tui.shelf import DraftEntry, Entry, Shelf
from tests.fake_engine import PATIENCE
from tests.tui.conftest import GREEDY, MakeApp, MakeLoader
from tests.tui.looking import check_golden, text
from tests.tui.test_app import LARGE, SMALL, ask, loader, ready, type_in
from tests.tui.waiting import wait_until

ANSWER = """\
Speculative decoding lets a small model guess several tokens ahead; the large model then checks \
all of them in **one** pass.

```python
def accept(target, draft):
    kept = 0
    while kept < len(draft) and target[kept] == draft[kept]:
        kept += 1
    return kept
```

1. much agreement: long runs are kept
2. little agreement: `k` shrinks

| drafter | costs   |
|---------|---------|
| n-gram  | nothing |
| model   | a pass  |
"""
QUESTION = "Explain speculative decoding briefly, with code."


@pytest.fixture
def start(start: Start, make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Answers worth looking at, and nothing that moves by itself."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("textual.constants.TEXTUAL_ANIMATIONS", "none", raising=False)
    return replace(
        start, loader=make_loader(lambda question: ANSWER), settings=replace(GREEDY, seed=1)
    )


@pytest.mark.parametrize("size", [LARGE, SMALL], ids=["large", "small"])
async def test_an_answer(size: tuple[int, int], make_app: MakeApp) -> None:
    async with make_app().run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, QUESTION)
        await pilot.pause()
        check_golden(pilot.app, "answer-large" if size == LARGE else "answer-small")


async def test_before_anything_is_asked(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE) as pilot:
        await ready(pilot)
        await pilot.pause()
        check_golden(pilot.app, "idle")


async def test_light(make_app: MakeApp) -> None:
    async with make_app(theme="textual-light").run_test(size=LARGE) as pilot:
        await ready(pilot)
        await ask(pilot, QUESTION)
        await pilot.pause()
        check_golden(pilot.app, "light", colours=True)


async def test_without_colours(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with make_app().run_test(size=LARGE) as pilot:
        await ready(pilot)
        await ask(pilot, QUESTION)
        await pilot.press("f3")
        await pilot.pause()
        check_golden(pilot.app, "no-colour", colours=True)


async def test_plain_characters_only(make_app: MakeApp) -> None:
    async with make_app(ascii=True).run_test(size=LARGE) as pilot:
        await ready(pilot)
        await ask(pilot, QUESTION)
        await pilot.pause()
        check_golden(pilot.app, "ascii")


async def test_in_the_middle_and_stopped(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE) as pilot:
        shown = await ready(pilot)
        model = loader(shown.edgespec).model.model
        model.hold()
        await type_in(pilot, QUESTION)
        model.let(40)
        model.wait(41)
        await wait_until(
            pilot, lambda: len(shown.transcript.answers[-1].text) > 80, "the text of 40 passes"
        )
        await shown.paint()
        shown.show_numbers()
        await pilot.pause()
        check_golden(pilot.app, "generating")
        await pilot.press("escape")
        model.release()
        await wait_until(pilot, lambda: not shown.answering.busy, "the end")
        await pilot.pause()
        check_golden(pilot.app, "stopped")


async def test_loading(make_app: MakeApp) -> None:
    app = make_app()
    held = loader(app)
    go_on = held.load
    waiting = threading.Event()

    def load(wish: object, report: object) -> object:
        report("loading Qwen2.5-7B-Q4_K_M.gguf", 0.42)  # type: ignore[operator]
        waiting.wait(PATIENCE)
        return go_on(wish, report)  # type: ignore[arg-type]

    held.load = load  # type: ignore[method-assign,assignment]
    async with app.run_test(size=SMALL) as pilot:
        await wait_until(pilot, lambda: "42%" in app.chat_screen.model.loading, "the progress")
        app.chat_screen.show_numbers()
        await pilot.pause()
        check_golden(app, "loading")
        waiting.set()
        await ready(pilot)


async def test_an_error(make_app: MakeApp, make_loader: MakeLoader) -> None:
    broken = make_loader()
    broken.errors[""] = ModelLoadError("fake.gguf is damaged: edgespec models pull --force fake.")
    async with make_app(loader=broken).run_test(size=SMALL) as pilot:
        app = pilot.app
        await wait_until(pilot, lambda: bool(app.screen.query("Note.error")), "the error")
        await pilot.pause()
        check_golden(app, "error")


async def test_tokens(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE) as pilot:
        await ready(pilot)
        await ask(pilot, QUESTION)
        await pilot.press("f3")
        await pilot.pause()
        check_golden(pilot.app, "tokens", colours=True)


async def test_comparison(make_app: MakeApp, make_loader: MakeLoader) -> None:
    short = make_loader(lambda question: "Both write the same, one of them faster.")
    async with make_app(loader=short).run_test(size=LARGE) as pilot:
        shown = await ready(pilot)
        await ask(pilot, QUESTION)
        await pilot.press("f4")
        await wait_until(
            pilot,
            lambda: len(shown.transcript.answers) == 2 and not shown.answering.busy,
            "the comparison",
        )
        await pilot.pause()
        check_golden(pilot.app, "comparison")


_MODELS = [
    Entry("default", "default", "smollm2-135m, 98 MB", None, pair=True),
    Entry("/m/big.gguf", "big.gguf", "Q4_K_M, 4.7 GB, LM Studio", Path("/m/big.gguf")),
    Entry("qwen2.5-coder-7b", "qwen2.5-coder-7b", "to be pulled, 4.7 GB", None),
]
_DRAFTS = [
    DraftEntry("auto", "auto", "the best: small.gguf, 1.42x measured"),
    DraftEntry("none", "none", "n-gram drafts only"),
    DraftEntry("/m/small.gguf", "small.gguf", "fits, 1.42x measured"),
    DraftEntry("/m/other.gguf", "other.gguf", "does not fit: token 5 differs", fits=False),
]


async def test_choosing_models(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.tui.shelf.entries", lambda: Shelf(tuple(_MODELS)))
    monkeypatch.setattr("edgespec.tui.shelf.drafts", lambda target, gpu: _DRAFTS)
    async with make_app().run_test(size=SMALL) as pilot:
        shown = await ready(pilot)
        await pilot.press("ctrl+t")
        await wait_until(pilot, lambda: "big.gguf" in text(pilot.app), "the models")
        check_golden(pilot.app, "models")
        await pilot.press(*"big", "enter")
        await wait_until(pilot, lambda: "small.gguf" in text(pilot.app), "the drafts")
        check_golden(pilot.app, "drafts")
        await pilot.press(*"small", "down", "enter")  # the first one is auto
        await wait_until(pilot, lambda: len(loader(shown.edgespec).wishes) == 2, "the wish")
        assert loader(shown.edgespec).wishes[1] == Wish("/m/big.gguf", "/m/small.gguf")


async def test_settings(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE) as pilot:
        shown = await ready(pilot)
        await pilot.press("ctrl+g")
        await wait_until(pilot, lambda: "system prompt" in text(pilot.app), "the form")
        await pilot.pause()
        check_golden(pilot.app, "settings")
        await pilot.press("escape")
        await wait_until(pilot, lambda: pilot.app.screen is shown, "the chat")


async def test_help(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE) as pilot:
        await ready(pilot)
        await pilot.press("f1")
        await wait_until(pilot, lambda: "/export" in text(pilot.app), "the help")
        check_golden(pilot.app, "help")
