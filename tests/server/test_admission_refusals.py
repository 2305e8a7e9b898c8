"""Who is refused, and for how long: a full queue, a flood, the end of the server."""

from __future__ import annotations

import asyncio

import pytest

from edgespec.server.admission import Kind
from edgespec.server.errors import ApiError
from tests.server.room import Room, refused, settle


def check(room: Room, client: str, **kind: bool) -> None:
    room.admission.check(Kind(client, **kind))


async def test_a_full_queue_refuses() -> None:
    room = Room(1, queue=2)
    check(room, "a")
    await room.come("a1", "b1")
    check(room, "c")
    await room.come("c1")
    with refused(after=15):  # two before it and its own, at 5 s
        check(room, "d")
    # Only who asks is refused: who was let through before may wait.
    await room.come("d1")
    assert room.admission.waiting == 3
    await room.leave("a1", "b1", "c1")
    check(room, "d")


async def test_without_a_queue_those_are_served_for_whom_there_is_a_place() -> None:
    room = Room(2, queue=0, lane=True)
    check(room, "a")
    await room.come("a1", "a2")
    with refused():
        check(room, "b")
    check(room, "b", short=True)
    await room.come("b1", short=True)
    with refused():
        check(room, "b", short=True)


async def test_who_floods_the_queue_leaves_room_for_others() -> None:
    room = Room(1, queue=8)
    accepted = 0
    for number in range(200):
        try:
            check(room, "a")
        except ApiError:
            continue
        accepted += 1
        await room.come(f"a{number}")
    assert accepted == 1 + 6
    check(room, "b")
    await room.come("b1")
    with refused():
        check(room, "b")  # has one in the queue, as a has
    check(room, "c")
    await room.come("c1")
    with refused():
        check(room, "d")


async def test_one_that_takes_anothers_place_needs_none() -> None:
    room = Room(1, queue=1)
    await room.come("a1")
    await room.come("a2", replaceable=True)
    check(room, "a", replaceable=True)
    with refused():
        check(room, "a")
    with refused():
        check(room, "b", replaceable=True)


@pytest.mark.parametrize(
    ("seconds", "answers", "after"),
    [(5.0, 1, 10), (0.0, 300, 1), (40.0, 100, 60), (1.0, 300, 2)],
)
async def test_it_says_for_how_long_to_wait(seconds: float, answers: int, after: int) -> None:
    room = Room(1, queue=1)
    for _ in range(answers):
        async with room.admission.turn(Kind("a")):
            room.clock.now += seconds
    await room.come("a1", "b1")
    with refused(after=after):
        check(room, "c")


async def test_only_answers_that_were_finished_tell_how_long_they_take() -> None:
    room = Room(1, queue=1)
    for number in range(100):
        await room.come(f"a{number}")
        room.clock.now += 1000
        room[f"a{number}"].task.cancel()
        await settle()
    await room.come("a1", "b1")
    with refused(after=10):
        check(room, "c")


async def test_after_closing_nobody_comes_and_who_waits_is_told() -> None:
    room = Room(1)
    await room.come("a1", "b1", "c1")
    room.admission.close()
    for name in ("b1", "c1"):
        with refused(after=5):
            await room[name].end_of_task()
    with refused(after=5):
        check(room, "d")
    with refused(after=5):
        async with room.admission.turn(Kind("d")):
            raise AssertionError
    assert room["a1"].runs
    await room.leave("a1")
    assert room.is_empty()


# Promises.


async def promised(room: Room, client: str, **kind: bool) -> asyncio.Task[None]:
    """A task with a promise, which lasts until it is cancelled."""

    async def hold() -> None:
        room.admission.promise(Kind(client, **kind))
        await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await settle()
    return task


async def test_who_has_a_promise_counts() -> None:
    room = Room(2, queue=1, lane=True)
    tasks = [await promised(room, client) for client in "abc"]
    assert room.is_empty()
    with refused(after=7):  # one waits then, for one of two places
        check(room, "d")
    check(room, "d", short=True)
    tasks.append(await promised(room, "d", short=True))
    with refused():
        check(room, "e", short=True)
    for task in tasks[1:]:
        task.cancel()
    await settle()
    check(room, "e")
    tasks[0].cancel()
    await settle()
    assert room.admission._expected() == ([], [])


async def test_a_request_has_one_promise_for_all_its_answers() -> None:
    room = Room(1, queue=0)
    promise = room.admission.promise(Kind("a"))
    assert room.admission.promise(Kind("a")) is promise
    async with room.admission.turn(Kind("a"), promise):
        assert room.admission._expected() == ([Kind("a")], [])
        with refused():
            room.admission.promise(Kind("a"))
    async with room.admission.turn(Kind("a"), promise):
        pass
    assert room.admission._expected() == ([], [])


async def test_a_promise_can_be_given_back() -> None:
    room = Room(1, queue=0)
    room.admission.forget(room.admission.promise(Kind("a")))
    room.admission.forget(None)
    check(room, "b")


async def test_no_more_come_than_there_is_room_for_however_many_come_at_once() -> None:
    room = Room(1, queue=8)

    async def request(client: str) -> None:
        promise = room.admission.promise(Kind(client))
        await settle()  # its prompt is read
        async with room.admission.turn(Kind(client), promise):
            await asyncio.sleep(0.001)

    results = await asyncio.gather(*(request("a") for _ in range(200)), return_exceptions=True)
    assert results.count(None) == 1 + 6
    assert room.is_empty()
