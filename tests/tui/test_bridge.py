"""The bridge without any screen: order of events, stopping at every moment, failures."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from edgespec.errors import BackendError, CatalogError, ModelLoadError
from edgespec.tui.bridge import (
    Bridge,
    Event,
    Failed,
    Loaded,
    NotLoaded,
    Progress,
    Question,
    Started,
    Wish,
)
from edgespec.tui.settings import ChatSettings
from edgespec.types import Chunk, Completion
from tests.fake_engine import PATIENCE
from tests.tui.conftest import GREEDY, FakeLoader, MakeLoader


class Listener:
    """Takes events until there is one that the test waits for."""

    def __init__(self, loader: FakeLoader) -> None:
        self.loader = loader
        self.bridge = Bridge(loader)
        self.events: list[Event] = []
        self._coming: list[Event] = []

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Raises AssertionError when it does not come."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self._coming += self.bridge.take()
            while self._coming:
                event = self._coming.pop(0)
                self.events.append(event)
                if wanted(event):
                    return event
            time.sleep(0.001)
        raise AssertionError(f"waited in vain; there were {self.events}")

    def until_a(self, kind: type) -> Event:
        return self.until(lambda event: isinstance(event, kind))

    def load(self, wish: Wish = Wish()) -> Event:  # noqa: B008  frozen
        self.bridge.load(wish)
        return self.until(lambda event: isinstance(event, Loaded | NotLoaded))

    def ask(self, text: str = "Hello", **options: object) -> None:
        question = Question([{"role": "user", "content": text}], GREEDY, **options)  # type: ignore[arg-type]
        self.bridge.ask(question)

    def completion(self) -> Completion:
        chunk = self.until(lambda event: isinstance(event, Chunk) and event.completion is not None)
        assert isinstance(chunk, Chunk)
        assert chunk.completion is not None
        return chunk.completion


Listen = Callable[..., Listener]


@pytest.fixture
def listen(make_loader: MakeLoader) -> Listen:
    def make(*arguments: object, **options: object) -> Listener:
        return Listener(make_loader(*arguments, **options))

    return make


def test_loading_tells_how_far_it_is_and_what_came_of_it(listen: Listen) -> None:
    listener = listen()
    loaded = listener.load()
    assert isinstance(loaded, Loaded)
    assert loaded.info.target == "fake"
    assert loaded.has_template
    assert Progress("loading fake.gguf", 0.4) in listener.events


def test_an_answer(listen: Listen) -> None:
    listener = listen()
    listener.load()
    listener.ask("Hello")
    completion = listener.completion()
    assert completion.text == "You said: Hello"
    (started,) = [event for event in listener.events if isinstance(event, Started)]
    assert started.prompt_tokens == completion.usage.prompt_tokens
    chunks = [event for event in listener.events if isinstance(event, Chunk)]
    assert "".join(chunk.text for chunk in chunks) == completion.text
    assert listener.bridge.take() == []


def test_a_question_waits_for_the_model_that_is_being_loaded(listen: Listen) -> None:
    listener = listen()
    listener.bridge.load(Wish())
    listener.ask()
    assert listener.completion().text == "You said: Hello"


def test_a_question_without_a_model(listen: Listen) -> None:
    listener = listen()
    listener.ask()
    failed = listener.until_a(Failed)
    assert failed == Failed("No model is loaded: choose one with /model.")


def test_stopping_while_the_prompt_is_read(listen: Listen) -> None:
    listener = listen()
    listener.load()
    model = listener.loader.model.model
    model.hold()
    listener.ask()
    listener.until_a(Started)
    model.wait(1)
    listener.bridge.stop()
    assert listener.completion().finish_reason == "cancelled"
    model.release()
    listener.ask("again")
    assert listener.completion().text == "You said: again"


def test_stopping_in_the_middle_keeps_what_was_said(listen: Listen) -> None:
    listener = listen()
    listener.load()
    model = listener.loader.model.model
    model.hold()
    listener.ask()
    model.let(4)
    listener.until(lambda event: isinstance(event, Chunk) and bool(event.text))
    listener.bridge.stop()
    model.release()
    completion = listener.completion()
    assert completion.finish_reason == "cancelled"
    assert completion.text
    assert "You said: Hello".startswith(completion.text)


def test_stopping_before_the_engine_has_the_question(listen: Listen) -> None:
    listener = listen()
    listener.bridge.load(Wish())
    listener.ask()
    listener.bridge.stop()
    event = listener.until(
        lambda event: (
            isinstance(event, NotLoaded)
            or (isinstance(event, Chunk) and event.completion is not None)
        )
    )
    if isinstance(event, NotLoaded):
        assert event.why == ""
    else:
        assert isinstance(event, Chunk)
        assert event.finish_reason == "cancelled"


def test_stopping_when_nothing_runs_does_no_harm(listen: Listen) -> None:
    listener = listen()
    listener.bridge.stop()
    listener.load()
    listener.bridge.stop()
    listener.ask()
    assert listener.completion().finish_reason == "stop"


def test_an_engine_that_fails_in_the_middle(listen: Listen) -> None:
    listener = listen()
    listener.load()
    model = listener.loader.model.model
    model.hold()
    listener.ask()
    model.let(3)
    listener.until(lambda event: isinstance(event, Chunk) and bool(event.text))
    model.fail_next = BackendError("The device is gone.")
    model.release()
    assert listener.until_a(Failed) == Failed("The device is gone.")
    listener.ask("still there?")
    assert listener.completion().text == "You said: still there?"


def test_what_cannot_be_fetched_leaves_the_model_alone(listen: Listen) -> None:
    listener = listen()
    listener.load()
    engine = listener.bridge.engine
    listener.loader.fetch_errors["other"] = CatalogError("There is no model other.")
    assert listener.load(Wish("other")) == NotLoaded("There is no model other.")
    assert listener.bridge.engine is engine
    listener.ask()
    assert listener.completion().text == "You said: Hello"


def test_what_cannot_be_loaded_brings_the_old_model_back(listen: Listen) -> None:
    listener = listen()
    listener.load(Wish("first", n_ctx=2048))
    listener.loader.errors["broken"] = ModelLoadError("broken.gguf is no model.")
    listener.bridge.load(Wish("broken"))
    assert listener.until_a(NotLoaded) == NotLoaded("broken.gguf is no model.")
    back = [event for event in listener.events if isinstance(event, Loaded)][-1]
    assert back.wish is None
    assert listener.loader.wishes == [
        Wish("first", n_ctx=2048),
        Wish("broken"),
        Wish("first", n_ctx=2048),
    ]
    listener.ask()
    assert listener.completion().text == "You said: Hello"


def test_only_one_model_is_in_memory(listen: Listen) -> None:
    listener = listen()
    listener.load()
    listener.load(Wish("other"))
    first, second = listener.loader.loaded
    assert len(first.freed) == 1
    assert not second.freed


def test_an_unexpected_error_is_told_and_the_thread_lives_on(listen: Listen) -> None:
    listener = listen()

    def load(wish: Wish, report: object) -> None:
        raise RuntimeError("who knows")

    keep = listener.loader.load
    listener.loader.load = load  # type: ignore[method-assign,assignment]
    listener.bridge.load(Wish())
    assert listener.until_a(NotLoaded) == NotLoaded("Unexpected RuntimeError: who knows.")
    listener.loader.load = keep  # type: ignore[method-assign]
    assert isinstance(listener.load(), Loaded)


def test_a_download_can_be_given_up(listen: Listen) -> None:
    listener = listen()
    listener.load()

    def fetch(wish: Wish, report: Callable[[str, float], None]) -> None:
        while True:
            report("downloading", 0.1)

    listener.loader.fetch = fetch  # type: ignore[method-assign]
    listener.bridge.load(Wish("large"))
    listener.until(lambda event: event == Progress("downloading", 0.1))
    listener.bridge.stop()
    assert listener.until_a(NotLoaded) == NotLoaded("")
    assert listener.bridge.engine is not None


def test_plain_answers_and_seeds(listen: Listen) -> None:
    listener = listen()
    listener.load()
    listener.ask(plain=True, seed=42)
    completion = listener.completion()
    assert completion.seed == 42
    assert completion.stats.drafted == 0
    listener.ask()
    assert listener.completion().stats.drafted > 0


def test_the_system_prompt_comes_first(listen: Listen) -> None:
    listener = listen()
    listener.load()
    settings = ChatSettings(temperature=0.0, system="Be brief.")
    listener.bridge.ask(Question([{"role": "user", "content": "Hi"}], settings))
    longer = listener.completion().usage.prompt_tokens
    listener.ask("Hi")
    assert longer > listener.completion().usage.prompt_tokens


def messages(turns: int) -> list[dict[str, str]]:
    one = [
        {"role": "user", "content": "question " * 5},
        {"role": "assistant", "content": "answer " * 5},
    ]
    return [*(one * turns), {"role": "user", "content": "last"}]


def test_the_oldest_turns_go_when_the_context_is_full(listen: Listen) -> None:
    listener = listen(n_ctx=1024)
    listener.load()
    listener.bridge.ask(Question(messages(20), GREEDY))
    started = listener.until_a(Started)
    assert isinstance(started, Started)
    assert 0 < started.forgotten < 40
    assert started.forgotten % 2 == 0  # whole turns
    assert started.prompt_tokens <= 1024 * 3 / 4
    assert listener.completion().text == "You said: last"
    # The next turn fits without leaving out more: the model need not read all again.
    more = [*messages(20), {"role": "assistant", "content": "ok"}, {"role": "user", "content": "x"}]
    listener.bridge.ask(Question(more, GREEDY, forgotten=started.forgotten))
    again = listener.until_a(Started)
    assert isinstance(again, Started)
    assert again.forgotten == started.forgotten
    assert listener.completion().usage.cached_tokens > started.prompt_tokens / 2


def test_nothing_is_forgotten_while_there_is_room(listen: Listen) -> None:
    listener = listen(n_ctx=4096)
    listener.load()
    listener.bridge.ask(Question(messages(3), GREEDY))
    started = listener.until_a(Started)
    assert isinstance(started, Started)
    assert started.forgotten == 0


def test_a_question_that_alone_is_too_long(listen: Listen) -> None:
    listener = listen(n_ctx=256)
    listener.load()
    listener.ask("x" * 1000)
    failed = listener.until_a(Failed)
    assert isinstance(failed, Failed)
    assert "but the context holds 256. Shorten it, or set a larger context (ctrl+g)." in failed.why


def test_settings_that_do_not_fit_the_engine(listen: Listen) -> None:
    listener = listen()
    listener.load()
    settings = ChatSettings(drafter="corpus")
    listener.bridge.ask(Question([{"role": "user", "content": "Hi"}], settings))
    failed = listener.until_a(Failed)
    assert isinstance(failed, Failed)
    assert "There is no drafter 'corpus' here" in failed.why


def test_closing_frees_the_model(listen: Listen) -> None:
    listener = listen()
    listener.load()
    assert listener.bridge.close()
    assert len(listener.loader.model.freed) == 1


def test_closing_during_a_load_does_not_wait(listen: Listen) -> None:
    listener = listen()
    listener.bridge.loading = True
    assert not listener.bridge.close()
