"""Answers between the engine's thread and the event loop: begun, read, left alone, failed."""

from __future__ import annotations

import asyncio

import pytest

from edgespec.errors import BackendError, ContextFullError, EngineClosedError, OptionError
from edgespec.server.backend import Answer, Backend
from tests.fake_engine import Loaded
from tests.server.answers import (
    all_of,
    backend_of,
    counted,
    holds_nothing,
    is_free,
    prepared,
    text_of,
    until_running,
)
from tests.server.asgi import PATIENCE
from tests.server.scripted import says

# Reading.


async def test_an_answer_is_that_of_the_engine(loaded: Loaded, backend: Backend) -> None:
    expected = loaded.generate("abc", max_tokens=12)
    chunks = await all_of(await prepared(backend))
    assert "".join(chunk.text for chunk in chunks) == expected.text
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * 11
    assert chunks[-1].completion is not None
    assert chunks[-1].completion.tokens == expected.tokens
    assert (await (await prepared(backend)).completion()).text == expected.text
    assert holds_nothing(backend)
    assert counted(backend) == {"length": 2}


async def test_what_makes_no_sense_is_refused_before_anything_is_held(backend: Backend) -> None:
    with pytest.raises(OptionError):
        await prepared(backend, temperature=-1.0)
    with pytest.raises(ContextFullError):
        await prepared(backend, "x" * 1000)
    assert holds_nothing(backend)


async def test_the_servers_limit_counts_where_the_request_has_none(loaded: Loaded) -> None:
    backend = backend_of(loaded, max_tokens=3)
    for asked, tokens in ((None, 3), (5, 5)):
        answer = await prepared(backend, max_tokens=asked)
        assert (await answer.completion()).usage.completion_tokens == tokens


async def test_one_that_is_dropped_unread_holds_nothing(loaded: Loaded) -> None:
    backend = backend_of(loaded, queue=0)
    dropped = await asyncio.create_task(prepared(backend))
    unstarted = (await asyncio.create_task(prepared(backend))).chunks()
    await unstarted.aclose()
    assert holds_nothing(backend)
    assert is_free(loaded)
    assert not dropped.generation.cancelled
    assert await asyncio.create_task(text_of(await prepared(backend)))
    assert counted(backend) == {"length": 1}


async def test_one_that_makes_no_sense_holds_nothing(loaded: Loaded) -> None:
    backend = backend_of(loaded, queue=0)
    with pytest.raises(OptionError):
        await prepared(backend, temperature=-1)
    await asyncio.create_task(prepared(backend))


async def test_the_state_of_one_in_the_making(loaded: Loaded, backend: Backend) -> None:
    loaded.model.hold()
    answer = await prepared(backend)
    reading = asyncio.create_task(all_of(answer))
    loaded.model.let(3)
    await asyncio.to_thread(loaded.model.wait, 4)
    await asyncio.sleep(0)
    assert backend.answers == [answer]
    assert answer.state() == {
        "is_processing": True,
        "n_ctx": loaded.model.n_ctx,
        "n_prompt_tokens": len("abc") + 1,
        "n_decoded": 3,
    }
    loaded.model.release()
    await reading


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("abc", False),
        ("<think>", True),
        ("abc<think>\n\n ", True),
        ("<think>\nSo", False),
        ("<think></think>\n\n", False),
    ],
)
async def test_a_prompt_may_begin_a_thought(backend: Backend, prompt: str, opens: bool) -> None:
    assert (await prepared(backend, prompt)).opens_thought is opens


# Ending early.


async def test_closing_it_ends_the_generation(loaded: Loaded, backend: Backend) -> None:
    loaded.model.hold()
    answer = await prepared(backend)
    chunks = answer.chunks()
    loaded.model.let(1)
    async with asyncio.timeout(PATIENCE):
        await anext(chunks)
    await asyncio.to_thread(loaded.model.wait, 2)
    await chunks.aclose()
    assert holds_nothing(backend)
    assert answer.generation.cancelled
    loaded.model.let(10)
    assert is_free(loaded)
    assert loaded.model.passes == 2  # the one under way was the last
    loaded.model.release()
    await asyncio.sleep(0.01)
    assert counted(backend) == {"cancelled": 1}


async def test_cancelling_its_reader_ends_the_generation(loaded: Loaded, backend: Backend) -> None:
    loaded.model.hold()
    reading = asyncio.create_task((await prepared(backend)).completion())
    await asyncio.to_thread(loaded.model.wait)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert holds_nothing(backend)
    assert is_free(loaded)  # the pass over the prompt was given up
    assert loaded.model.passes == 0
    loaded.model.release()
    await asyncio.sleep(0)
    assert counted(backend) == {"cancelled": 1}
    # There was no first token for which anybody has waited.
    assert b"edgespec_time_to_first_token_seconds_count 0.0" in backend.metrics.text()


async def test_one_that_is_cancelled_while_it_waits_never_starts(
    loaded: Loaded, backend: Backend
) -> None:
    loaded.model.hold()
    first = asyncio.create_task(text_of(await prepared(backend)))
    await until_running(backend)
    waiting = await prepared(backend, "zzz")
    reading = asyncio.create_task(text_of(waiting))
    await asyncio.sleep(0)
    assert backend.admission.waiting == 1
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    loaded.model.release()
    assert await first
    assert is_free(loaded)
    assert not waiting.generation.cancelled  # the engine never heard of it
    assert counted(backend) == {"length": 1}


async def test_whoever_reads_slowly_does_not_keep_others_waiting(
    loaded: Loaded, backend: Backend
) -> None:
    expected = loaded.generate("abc", max_tokens=12).text
    slow = await prepared(backend)
    chunks = slow.chunks()
    async with asyncio.timeout(PATIENCE):
        read = [await anext(chunks)]
        # All the places there are belong to one who does not read on.
        assert await text_of(await prepared(backend, "xyz"))
        assert holds_nothing(backend)
        read += [chunk async for chunk in chunks]
    assert "".join(chunk.text for chunk in read) == expected
    assert not slow.generation.cancelled
    assert counted(backend) == {"length": 2}


# Failures.


async def test_a_failure_comes_after_what_came_before_it(loaded: Loaded, backend: Backend) -> None:
    loaded.model.hold()
    chunks = (await prepared(backend)).chunks()
    first = asyncio.ensure_future(anext(chunks))
    await asyncio.to_thread(loaded.model.wait)
    loaded.model.let(2)
    loaded.model.wait(3)
    loaded.model.fail_next = BackendError("It broke.")
    loaded.model.let(1)
    # Nothing of it was read yet: the loop stands still here.
    assert is_free(loaded)
    async with asyncio.timeout(PATIENCE):
        assert (await first).text
        assert (await anext(chunks)).text
        with pytest.raises(BackendError, match="It broke"):
            await anext(chunks)
    assert holds_nothing(backend)
    loaded.model.release()
    assert await text_of(await prepared(backend))


async def test_a_failure_ends_all_and_disturbs_no_one_who_comes(loaded: Loaded) -> None:
    backend = backend_of(loaded, parallel=4)
    loaded.model.hold()
    answers = [asyncio.create_task(text_of(await prepared(backend, "abc" + c))) for c in "defg"]
    await until_running(backend, 4)
    loaded.model.let(1)  # before the next pass the engine hears of all of them
    await asyncio.to_thread(loaded.model.wait, 2)
    loaded.model.fail_next = BackendError("It broke.")
    loaded.model.release()
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [BackendError] * 4
    assert holds_nothing(backend)
    assert not loaded.model.aborted
    assert await text_of(await prepared(backend))


@pytest.mark.parametrize("passes", [0, 3])
async def test_the_engine_is_closed_during_an_answer(
    loaded: Loaded, backend: Backend, passes: int
) -> None:
    loaded.model.hold()
    reading = asyncio.create_task(text_of(await prepared(backend)))
    waiting = asyncio.create_task(text_of(await prepared(backend)))
    loaded.model.let(passes)
    await asyncio.to_thread(loaded.model.wait, passes + 1)
    await asyncio.to_thread(loaded.engine.close)
    for task in (reading, waiting):
        with pytest.raises(EngineClosedError):
            await task
    assert holds_nothing(backend)
    with pytest.raises(EngineClosedError):
        await prepared(backend)
    assert holds_nothing(backend)


async def test_the_engine_is_closed_before_an_answer_is_read(
    loaded: Loaded, backend: Backend
) -> None:
    answer = await prepared(backend)
    await asyncio.to_thread(loaded.engine.close)
    with pytest.raises(EngineClosedError):
        await all_of(answer)
    assert holds_nothing(backend)


def test_the_loop_is_closed_during_an_answer() -> None:
    loaded = Loaded()

    async def begin() -> Answer:
        answer = await prepared(backend_of(loaded), max_tokens=400)
        loaded.model.hold()
        loaded.engine.start(answer.generation)
        return answer

    with loaded.engine:
        answer = asyncio.run(begin())
        loaded.model.release()
        while not is_free(loaded):  # it hears of it after a pass
            pass
        assert answer.generation.cancelled
        assert loaded.model.passes < 400


async def test_a_warm_up_counts_as_an_answer_without_tokens() -> None:
    loaded = Loaded(says("abc"))
    with loaded.engine:
        backend = backend_of(loaded)
        answer = await backend.prepare(
            None, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, client="a"
        )
        completion = await answer.completion()
    assert (completion.text, completion.usage.completion_tokens) == ("", 0)
    assert counted(backend) == {"length": 1}
    assert b"edgespec_time_to_first_token_seconds_count 1.0" in backend.metrics.text()
