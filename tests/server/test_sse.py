"""Streams: what is sent, when, and that the iterator is closed once however it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from edgespec.server.sse import DONE, ClientGone, EventStream, data, event, unless_disconnected
from tests.server.asgi import PATIENCE, Client, scope


def test_an_event_is_one_line_of_json() -> None:
    assert data({"a": ["é", 1]}) == 'data: {"a":["é",1]}\n\n'.encode()
    assert event("ping", {}) == b"event: ping\ndata: {}\n\n"
    assert DONE == b"data: [DONE]\n\n"


def test_an_event_survives_any_text() -> None:
    text = "a\nb\r\nc\u2028d\x85 \ud83d \ud83d\ude42"
    raw = data(text)
    assert raw.count(b"\n") == 2
    assert b"\r" not in raw
    assert len(raw.decode().splitlines()) == 2
    assert json.loads(raw.removeprefix(b"data: ")) == "a\nb\r\nc\u2028d\x85 \ufffd 🙂"


class Events:
    """An iterator that counts what is done to it; it waits for ever once its items are out."""

    def __init__(self, *items: bytes | str, end: bool = False, error: Exception | None = None):
        self.items = list(items)
        self.end = end
        self.error = error
        self.asked = 0
        self.closed = 0

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes | str:
        self.asked += 1
        if self.items:
            return self.items.pop(0)
        if self.error is not None:
            raise self.error
        if self.end:
            raise StopAsyncIteration
        await asyncio.Event().wait()
        raise AssertionError("never reached")

    async def aclose(self) -> None:
        await asyncio.sleep(0)  # as one that waits for the engine
        self.closed += 1


async def run(stream: EventStream, client: Client) -> None:
    async with asyncio.timeout(PATIENCE):
        await stream(scope(), client.receive, client.send)


async def test_events_come_in_order_and_the_iterator_is_closed() -> None:
    events = Events(data(1), "data: zwei\n\n", "half \ud800", DONE, end=True)
    client = Client()
    await run(EventStream(events), client)
    assert client.status == 200
    assert client.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    bodies = [message["body"] for message in client.sent[1:]]
    half = "half \ufffd".encode()
    assert bodies == [b"data: 1\n\n", b"data: zwei\n\n", half, b"data: [DONE]\n\n", b""]
    assert client.complete
    assert events.closed == 1


async def test_other_types_and_headers() -> None:
    client = Client()
    stream = EventStream(
        Events("{}\n", end=True), media_type="application/x-ndjson", headers={"X-Id": "7"}
    )
    await run(stream, client)
    assert client.headers["content-type"] == "application/x-ndjson"
    assert client.headers["x-id"] == "7"
    assert client.headers["cache-control"] == "no-cache"


async def test_headers_are_sent_before_the_first_event() -> None:
    events, client = Events(), Client()
    task = asyncio.create_task(run(EventStream(events), client))
    await asyncio.wait_for(client.arrived.wait(), PATIENCE)
    assert client.sent[0]["type"] == "http.response.start"
    client.hang_up()
    await task
    assert len(client.sent) == 1
    assert events.closed == 1


async def test_silence_is_filled_with_comments() -> None:
    events, client = Events(data(1)), Client()
    task = asyncio.create_task(run(EventStream(events, heartbeat=0.02), client))
    while len(client.sent) < 5:
        await asyncio.sleep(0.01)
    client.hang_up()
    await task
    bodies = [message["body"] for message in client.sent[1:]]
    assert bodies[0] == data(1)
    assert set(bodies[1:]) == {b": waiting\n\n"}
    assert events.closed == 1


async def test_there_are_no_comments_while_events_come() -> None:
    async def busy() -> AsyncIterator[bytes]:
        for number in range(35):
            await asyncio.sleep(0.02)
            yield data(number)

    client = Client()
    await run(EventStream(busy(), heartbeat=0.5), client)
    assert b":" not in client.body.replace(b"data:", b"")


async def test_a_format_without_comments_gets_none() -> None:
    events, client = Events("{}\n"), Client()
    stream = EventStream(events, heartbeat=0.001, comment=None)
    task = asyncio.create_task(run(stream, client))
    await asyncio.sleep(0.05)
    client.hang_up()
    await task
    assert client.body == b"{}\n"
    assert events.closed == 1


async def test_a_comment_never_comes_into_the_middle_of_an_event() -> None:
    client = Client()
    slow_sends = 0
    sending = False

    async def send(message: Message) -> None:
        nonlocal sending, slow_sends
        assert not sending
        sending = True
        await asyncio.sleep(0.02)
        sending = False
        slow_sends += 1
        await client.send(message)

    events = Events(*[data(number) for number in range(5)], end=True)
    async with asyncio.timeout(PATIENCE):
        await EventStream(events, heartbeat=0.005)(scope(), client.receive, send)
    assert slow_sends >= 7
    assert client.complete


class Guarded:
    """A generator whose `finally` is seen."""

    def __init__(self) -> None:
        self.began = 0
        self.ended = 0

    async def events(self, *items: bytes) -> AsyncIterator[bytes]:
        self.began += 1
        try:
            for item in items:
                yield item
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended += 1


@pytest.mark.parametrize("items", [(), (data(1),), (data(1), data(2))])
async def test_hanging_up_runs_the_generators_finally(items: tuple[bytes, ...]) -> None:
    guarded, client = Guarded(), Client()
    task = asyncio.create_task(run(EventStream(guarded.events(*items)), client))
    while len(client.sent) < 1 + len(items):
        await asyncio.sleep(0)
    assert guarded.ended == 0
    client.hang_up()
    await task
    assert (guarded.began, guarded.ended) == (1, 1)
    assert not client.complete


async def test_a_client_already_gone_still_closes_what_was_made_for_it() -> None:
    guarded, client = Guarded(), Client()
    client.hang_up()
    await run(EventStream(guarded.events(data(1))), client)
    assert (guarded.began, guarded.ended) == (1, 1)


@pytest.mark.parametrize("allowed", [0, 1, 2])
async def test_a_send_that_fails_runs_the_generators_finally(allowed: int) -> None:
    guarded, client = Guarded(), Client()

    async def send(message: Message) -> None:
        if len(client.sent) == allowed:
            raise OSError("broken pipe")
        await client.send(message)

    stream = EventStream(guarded.events(data(1), data(2)))
    with pytest.raises(OSError, match="broken pipe"):
        await asyncio.wait_for(stream(scope(), client.receive, send), PATIENCE)
    assert (guarded.began, guarded.ended) == (1, 1)


async def test_a_heartbeat_that_fails_runs_the_generators_finally() -> None:
    guarded, client = Guarded(), Client()

    async def send(message: Message) -> None:
        if client.sent:
            raise OSError("broken pipe")
        await client.send(message)

    stream = EventStream(guarded.events(), heartbeat=0.01)
    with pytest.raises(OSError, match="broken pipe"):
        await asyncio.wait_for(stream(scope(), client.receive, send), PATIENCE)
    assert (guarded.began, guarded.ended) == (1, 1)


async def test_a_send_that_blocks_does_not_outlive_the_client() -> None:
    guarded, client = Guarded(), Client()
    blocked = asyncio.Event()

    async def send(message: Message) -> None:
        if client.sent:
            blocked.set()
            await asyncio.Event().wait()
        await client.send(message)

    stream = EventStream(guarded.events(data(1)))
    task = asyncio.create_task(stream(scope(), client.receive, send))
    await asyncio.wait_for(blocked.wait(), PATIENCE)
    client.hang_up()
    await asyncio.wait_for(task, PATIENCE)
    assert (guarded.began, guarded.ended) == (1, 1)


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_at_any_moment_runs_the_generators_finally(turns: int) -> None:
    guarded, client = Guarded(), Client()
    stream = EventStream(guarded.events(data(1), data(2)))
    task = asyncio.create_task(stream(scope(), client.receive, client.send))
    for _ in range(1 + turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert (guarded.began, guarded.ended) == (1, 1)


@pytest.mark.parametrize("turns", range(12))
async def test_hanging_up_at_any_moment_closes_once(turns: int) -> None:
    events, client = Events(data(1), data(2), end=True), Client()
    task = asyncio.create_task(run(EventStream(events), client))
    for _ in range(turns):
        await asyncio.sleep(0)
    client.hang_up()
    await task
    assert events.closed == 1


async def test_cancelling_twice_does_not_interrupt_the_closing() -> None:
    closing, may_close = asyncio.Event(), asyncio.Event()
    closed = 0

    class Slow(Events):
        async def aclose(self) -> None:
            nonlocal closed
            closing.set()
            await may_close.wait()
            closed += 1

    client = Client()
    stream = EventStream(Slow())
    task = asyncio.create_task(stream(scope(), client.receive, client.send))
    await asyncio.wait_for(client.arrived.wait(), PATIENCE)
    task.cancel()
    await asyncio.wait_for(closing.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    may_close.set()
    async with asyncio.timeout(PATIENCE):
        while not closed:
            await asyncio.sleep(0)
    assert closed == 1


async def test_what_the_iterator_raises_ends_the_answer_unfinished() -> None:
    events, client = Events(data(1), error=ValueError("bug")), Client()
    with pytest.raises(ValueError, match="bug"):
        await run(EventStream(events), client)
    assert client.body == data(1)
    assert not client.complete
    assert events.closed == 1


async def test_a_fault_in_the_cleaning_up_is_not_hidden() -> None:
    async def events() -> AsyncIterator[bytes]:
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            raise ValueError("cleaning up failed")

    client = Client()
    client.hang_up()
    with pytest.raises(ValueError, match="cleaning up failed"):
        await run(EventStream(events()), client)


async def test_an_iterator_without_aclose_is_fine() -> None:
    class Bare:
        def __aiter__(self) -> Bare:
            return self

        async def __anext__(self) -> bytes:
            raise StopAsyncIteration

    client = Client()
    await run(EventStream(Bare()), client)
    assert client.complete


# Answers in one piece.


async def test_a_result_is_passed_on() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    client = Client()
    assert await unless_disconnected(Request(scope(), client.receive), work()) == 7


async def test_a_failure_is_passed_on() -> None:
    async def work() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await unless_disconnected(Request(scope(), Client().receive), work())


class Work:
    """Waits for ever, and takes a while to stop."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = 0

    async def __call__(self) -> None:
        try:
            self.began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended += 1


async def test_hanging_up_cancels_the_work() -> None:
    work, client = Work(), Client()
    task = asyncio.create_task(unless_disconnected(Request(scope(), client.receive), work()))
    await asyncio.wait_for(work.began.wait(), PATIENCE)
    client.hang_up()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(task, PATIENCE)
    assert work.ended == 1
    assert issubclass(ClientGone, ClientDisconnect)


async def test_cancelling_the_caller_cancels_the_work() -> None:
    work, client = Work(), Client()
    task = asyncio.create_task(unless_disconnected(Request(scope(), client.receive), work()))
    await asyncio.wait_for(work.began.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert work.ended == 1


async def test_a_result_that_came_before_the_hanging_up_counts() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_result(7)
    client = Client()
    client.hang_up()
    assert await unless_disconnected(Request(scope(), client.receive), future) == 7
