"""Work on the engine's thread between two passes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from edgespec.errors import EngineClosedError
from tests.fake_engine import PATIENCE, Loaded


@pytest.fixture
def loaded() -> Iterator[Loaded]:
    one = Loaded()
    with one.engine:
        yield one
        one.model.release()


def test_it_runs_on_the_engines_thread_and_leaves_memory_as_it_is(loaded: Loaded) -> None:
    loaded.generate()
    work = loaded.engine.between(lambda: threading.current_thread().name)
    assert work.result(PATIENCE) == "edgespec-engine"
    assert loaded.generate().usage.cached_tokens > 0


def test_it_runs_in_the_middle_of_an_answer_which_stays_the_same(loaded: Loaded) -> None:
    alone = loaded.generate()
    loaded.model.hold()
    running = loaded.submit()
    loaded.model.wait()
    before = loaded.model.passes
    work = loaded.engine.between(lambda: loaded.model.passes)
    loaded.model.let(1)
    assert work.result(PATIENCE) == before + 1
    loaded.model.release()
    assert running.result().tokens == alone.tokens


def test_what_it_raises_is_told_and_the_engine_goes_on(loaded: Loaded) -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loaded.engine.between(work).result(PATIENCE)
    assert loaded.generate().tokens


def test_it_can_be_taken_back_before_its_turn(loaded: Loaded) -> None:
    done: list[str] = []
    loaded.model.hold()
    running = loaded.submit()
    loaded.model.wait()
    first, second = (
        loaded.engine.between(lambda name=name: done.append(name))  # type: ignore[misc]
        for name in ("first", "second")
    )
    assert first.cancel()
    loaded.model.release()
    second.result(PATIENCE)
    running.result()
    assert done == ["second"]


def test_a_closed_engine_refuses_and_one_that_closes_says_so(loaded: Loaded) -> None:
    loaded.model.hold()
    loaded.submit()
    loaded.model.wait()
    waiting = loaded.engine.between(lambda: None)
    loaded.engine.close()
    with pytest.raises(EngineClosedError):
        waiting.result(PATIENCE)
    with pytest.raises(EngineClosedError):
        loaded.engine.between(lambda: None)
