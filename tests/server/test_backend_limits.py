"""Too many requests, and the end of the server, as answers see them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from edgespec.server.backend import Backend
from edgespec.server.errors import ApiError
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

# Too many.


async def test_a_full_queue_refuses_before_any_work(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of(loaded, queue=1)
    loaded.model.hold()
    reading = [asyncio.create_task(text_of(await prepared(backend))) for _ in range(2)]
    await until_running(backend)
    await asyncio.sleep(0)
    assert backend.admission.waiting == 1
    monkeypatch.setattr(loaded.engine, "prepare", pytest.fail)
    with pytest.raises(ApiError) as caught:
        await prepared(backend)
    assert caught.value.status == 503
    loaded.model.release()
    await asyncio.gather(*reading)


async def test_those_whose_prompts_are_read_count_already(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of(loaded, queue=2)
    may_go = threading.Event()
    prepare = loaded.engine.prepare

    def slowly(*arguments: Any, **options: Any) -> Any:
        assert may_go.wait(PATIENCE)
        return prepare(*arguments, **options)

    monkeypatch.setattr(loaded.engine, "prepare", slowly)

    async def request() -> str:
        return await text_of(await prepared(backend))

    asked = [asyncio.create_task(request()) for _ in range(20)]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    may_go.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results] == [str] * 3 + [ApiError] * 17
    assert len(done) == 17
    assert holds_nothing(backend)


async def test_who_was_let_through_is_not_refused_any_more(loaded: Loaded) -> None:
    backend = backend_of(loaded, queue=1)
    answers = [await prepared(backend) for _ in range(5)]
    assert len(await asyncio.gather(*map(text_of, answers))) == 5
    assert counted(backend) == {"length": 5}


# Stopping.


async def test_stopping_refuses_who_waits_and_ends_the_others_in_time(
    loaded: Loaded, backend: Backend
) -> None:
    loaded.model.hold()
    chunks = (await prepared(backend)).chunks()
    first = asyncio.ensure_future(anext(chunks))
    await until_running(backend)
    waiting = asyncio.create_task(text_of(await prepared(backend)))
    unread = await prepared(backend)
    await asyncio.sleep(0)
    backend.stop(2 * PATIENCE)
    with pytest.raises(ApiError, match="shutting down"):
        await waiting
    for late in (all_of(unread), prepared(backend)):
        with pytest.raises(ApiError, match="shutting down"):
            await late
    loaded.model.let(1)
    async with asyncio.timeout(PATIENCE):
        assert (await first).text  # it is still at work
        await asyncio.to_thread(loaded.model.wait, 2)
        backend.stop(0.0)
        with pytest.raises(ApiError, match="shutting down"):
            await anext(chunks)
    assert holds_nothing(backend)
    loaded.model.let(9)
    assert is_free(loaded)
    loaded.model.release()


async def test_an_answer_that_ends_in_time_is_whole(loaded: Loaded, backend: Backend) -> None:
    expected = loaded.generate("abc", max_tokens=12).text
    loaded.model.hold()
    reading = asyncio.create_task(text_of(await prepared(backend)))
    await until_running(backend)
    backend.stop(2 * PATIENCE)
    loaded.model.release()
    assert await reading == expected


async def test_what_is_read_slowly_is_not_cut(backend: Backend) -> None:
    chunks = (await prepared(backend)).chunks()
    async with asyncio.timeout(PATIENCE):
        read = [await anext(chunks)]
        while backend.answers:
            await asyncio.sleep(0.001)
        backend.stop(0.0)
        await asyncio.sleep(0.01)
        read += [chunk async for chunk in chunks]
    assert read[-1].finish_reason == "length"
