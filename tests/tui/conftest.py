"""The app on the fake model: what it is asked and how fast it answers is up to the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgespec.engine import Engine
from edgespec.errors import EdgespecError
from edgespec.tui.app import EdgespecApp, Start
from edgespec.tui.bridge import Report, Wish
from edgespec.tui.settings import ChatSettings
from tests.fake_chat import Answers, chatting
from tests.fake_engine import Loaded

GREEDY = ChatSettings(temperature=0.0)


class FakeLoader:
    """Loads engines on the fake model. What is in `errors` is raised for that name; `loaded` has
    all engines, the newest last."""

    def __init__(self, answers: Answers, **options: object) -> None:
        self.loaded: list[Loaded] = []
        self.errors: dict[str, EdgespecError] = {}
        self.fetch_errors: dict[str, EdgespecError] = {}
        self.wishes: list[Wish] = []
        self.held = False
        self._answers = answers
        self._options = {"k": 3, "tick": 0.002, "n_ctx": 4096, "max_sequences": 1} | options

    def fetch(self, wish: Wish, report: Report) -> None:
        report("looking for the model", 0.0)
        if wish.name in self.fetch_errors:
            raise self.fetch_errors[wish.name]

    def load(self, wish: Wish, report: Report) -> Engine:
        self.wishes.append(wish)
        report("loading fake.gguf", 0.4)
        if wish.name in self.errors:
            raise self.errors[wish.name]
        made = Loaded(chatting(self._answers), **self._options)  # type: ignore[arg-type]
        if self.held:
            made.model.hold()
        self.loaded.append(made)
        return made.engine

    @property
    def model(self) -> Loaded:
        return self.loaded[-1]

    def close(self) -> None:
        for made in self.loaded:
            made.model.release()
            made.engine.close()


MakeLoader = Callable[..., FakeLoader]


@pytest.fixture
def make_loader() -> Iterator[MakeLoader]:
    made: list[FakeLoader] = []

    def make(
        answers: Answers = lambda question: f"You said: {question}", **options: object
    ) -> FakeLoader:
        made.append(FakeLoader(answers, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


@pytest.fixture
def start(tmp_path: Path, make_loader: MakeLoader) -> Start:
    """What the app begins with: everything below tmp_path."""
    return Start(
        loader=make_loader(),
        settings=GREEDY,
        has_gpu=lambda: False,
        chats=tmp_path / "data" / "chats.db",
        preferences=tmp_path / "config" / "tui.json",
        log=tmp_path / "edgespec.log",
        clipboard=tmp_path / "clipboard.txt",
        paths=[("chats", "/where/chats/lie.db")],
    )


MakeApp = Callable[..., EdgespecApp]


@pytest.fixture
def make_app(start: Start) -> MakeApp:
    """The app with a clock that stands still; changes: fields of Start."""
    from dataclasses import replace

    def make(**changes: object) -> EdgespecApp:
        return EdgespecApp(replace(start, **changes), clock=lambda: 0.0)  # type: ignore[arg-type]

    return make
