"""Whose turn it is: order, the short lane, requests that replace others, and who goes away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.server.admission import Kind
from edgespec.server.errors import ApiError
from tests.server.room import Room, refused, settle

# Order.


async def test_so_many_run_and_the_others_come_in_turn() -> None:
    room = Room(2)
    await room.come("a1", "b1", "c1", "d1")
    assert room.running == "a1 b1"
    assert (room.admission.running, room.admission.waiting) == (2, 2)
    await room.leave("b1")
    assert room.running == "a1 c1"
    await room.leave("a1", "c1")
    assert room.running == "d1"
    await room.leave("d1")
    assert room.is_empty()


async def test_who_has_the_fewest_running_goes_first() -> None:
    room = Room(3, 300)
    flood = [f"a{number}" for number in range(200)]
    await room.come(*flood, "b1", "c1", "b2")
    assert room.running == "a0 a1 a2"
    await room.leave("a0")
    assert room.running == "a1 a2 b1"
    await room.leave("a1")
    assert room.running == "a2 b1 c1"
    await room.leave("c1")  # a and b have one each, but a's last turn is longer ago
    assert room.running == "a2 a3 b1"
    await room.leave("a2")
    assert room.running == "a3 b1 b2"
    await room.leave("b1")
    assert room.running == "a3 a4 b2"


async def test_fewest_running_counts_before_whose_turn_is_longest_ago() -> None:
    room = Room(2)
    await room.come("a1", "b1", "a2", "b2")
    await room.leave("b1")
    assert room.running == "a1 b2"


async def test_clients_take_turns_where_one_at_a_time_is_answered() -> None:
    room = Room(1, 300)
    await room.come(*(f"a{number}" for number in range(50)), "b1", "b2", "c1")
    order = []
    for _ in range(7):
        order.append(room.running)
        await room.leave(room.running)
        if order[-1] == "c1":
            await room.come("c2")  # who comes again has had his turn
    assert order == ["a0", "b1", "c1", "a1", "b2", "c2", "a2"]


async def test_who_was_here_long_ago_is_forgotten() -> None:
    admission = Room(1).admission
    for number in range(1000):
        async with admission.turn(Kind(f"client {number}")):
            pass
    assert list(admission._last) == [f"client {number}" for number in range(744, 1000)]


async def test_a_short_one_does_not_wait_for_long_ones() -> None:
    room = Room(2, lane=True)
    await room.come("a1", "b1", "c1")
    await room.come("d1", short=True)
    assert room.running == "a1 b1 d1"
    await room.come("e1", short=True)
    assert not room["e1"].runs
    await room.leave("d1")
    assert room.running == "a1 b1 e1"
    await room.leave("a1")
    assert room.running == "b1 c1 e1"


async def test_short_ones_of_a_client_pass_its_long_ones_by() -> None:
    room = Room(1)
    await room.come("a1", "a2")
    await room.come("a3", short=True)
    await room.leave("a1")
    assert room.running == "a3"


async def test_short_ones_of_a_client_do_not_pass_long_ones_of_others_by() -> None:
    room = Room(1)
    await room.come("a1", "a2", "a3", short=True)
    await room.come("b1")
    await room.leave("a1")
    assert room.running == "b1"


async def test_short_ones_without_end_do_not_keep_a_long_one_out() -> None:
    room = Room(2, lane=True)
    names = [f"a{number}" for number in range(9)]
    await room.come(*names, short=True)
    await room.come("b1")
    assert room.running == "a0 a1 a2"
    await room.leave("a0")
    assert room.running == "a1 a2 b1"


async def test_the_lane_is_for_short_ones_alone() -> None:
    room = Room(2, lane=True)
    await room.come("a1", "a2", "a3", "b1")
    assert room.running == "a1 a2"
    room = Room(2, lane=False)
    await room.come("a1", "a2")
    await room.come("b1", short=True)
    assert room.running == "a1 a2"


# The end of a turn.


async def test_a_turn_may_end_before_its_block_does() -> None:
    room = Room(1)
    await room.come("a1", "b1")
    end = room["a1"].end
    assert end is not None
    end()
    end()  # it is over already
    await settle()
    assert room["b1"].runs
    assert room.admission.running == 1
    await room.leave("a1")
    assert room["b1"].runs
    assert room.admission.running == 1


async def test_who_is_cancelled_leaves_nothing_behind() -> None:
    room = Room(1)
    await room.come("a1", "b1", "c1")
    room["b1"].task.cancel()
    await settle()
    assert (room.admission.running, room.admission.waiting) == (1, 1)
    room["a1"].task.cancel()
    await settle()
    assert room["c1"].runs
    assert (room.admission.running, room.admission.waiting) == (1, 0)


async def test_who_is_called_and_cancelled_at_once_gives_the_place_to_the_next() -> None:
    room = Room(1)
    await room.come("a1", "b1", "c1")
    end = room["a1"].end
    assert end is not None
    end()
    room["b1"].task.cancel()
    await settle()
    assert not room["b1"].began.is_set()
    assert room["c1"].runs


async def test_who_is_cancelled_just_before_its_turn_does_not_hinder_the_others() -> None:
    room = Room(1)
    await room.come("a1", "b1", "c1")
    room["b1"].task.cancel()  # and has no time to leave
    end = room["a1"].end
    assert end is not None
    end()
    await settle()
    assert not room["b1"].began.is_set()
    assert room["c1"].runs


async def test_who_fails_leaves_nothing_behind() -> None:
    room = Room(1)
    with pytest.raises(ZeroDivisionError):
        async with room.admission.turn(Kind("a")):
            raise ZeroDivisionError
    assert room.is_empty()


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_nobody_is_lost_whatever_happens(data: st.DataObject) -> None:
    asyncio.run(anything(data))


async def anything(data: st.DataObject) -> None:
    room = Room(data.draw(st.integers(1, 3)), lane=data.draw(st.booleans()))
    most = room.admission._places
    for number in range(data.draw(st.integers(0, 25))):
        event = data.draw(st.sampled_from(("come", "leave", "cancel", "end")))
        if event == "come" or not room.callers:
            kind = {"short": data.draw(st.booleans()), "replaceable": data.draw(st.booleans())}
            await room.come(data.draw(st.sampled_from("abc")) + str(number), **kind)
            continue
        caller = room[data.draw(st.sampled_from(sorted(room.callers)))]
        if event == "leave":
            caller.leave.set()
        elif event == "cancel":
            caller.task.cancel()
        elif caller.end is not None:
            caller.end()
        await settle() if data.draw(st.booleans()) else None
        assert room.admission.running <= most
    await settle()
    # Nobody waits while there is a place for him.
    running, waiting = room.admission._expected()
    assert not any(room.admission._has_place(kind, running) for kind in waiting)
    for caller in room.callers.values():
        caller.leave.set()
    results = await asyncio.gather(
        *(one.task for one in room.callers.values()), return_exceptions=True
    )
    wrong = [
        one
        for one in results
        if not isinstance(one, (ApiError, asyncio.CancelledError, type(None)))
    ]
    assert wrong == []
    assert room.is_empty()


# Replacing.


async def test_a_newer_request_replaces_the_one_that_waits() -> None:
    room = Room(1)
    await room.come("a1", replaceable=True)
    await room.come("b1", "a2", replaceable=True)
    await room.come("a3")  # another kind of request
    await room.come("a4", replaceable=True)
    with refused() as errors:
        await room["a2"].end_of_task()
    assert errors[0].headers["x-should-retry"] == "false"
    # The one that runs, other clients' and other kinds are left alone.
    assert [name for name in room.callers if not room[name].task.done()] == ["a1", "b1", "a3", "a4"]
    await room.leave("a1", "b1", "a3", "a4")
    assert room.is_empty()


async def test_one_that_is_just_cancelled_can_be_replaced() -> None:
    room = Room(1)
    await room.come("b1")
    await room.come("a1", replaceable=True)
    room["a1"].task.cancel()  # and has no time to leave before the next one comes:
    entering = room.admission.turn(Kind("a", replaceable=True)).__aenter__()
    entering.send(None)
    assert room.admission.waiting == 1
    with pytest.raises(asyncio.CancelledError):
        entering.throw(asyncio.CancelledError())
    await settle()
    assert room["a1"].task.cancelled()
    await room.leave("b1")
    assert room.is_empty()


def test_who_waits_longest_is_not_forgotten() -> None:
    """Under steady load from clients of equal activity, the order is that of coming."""

    async def play() -> list[str]:
        room = Room(1, 64)
        await room.come("x1")
        await room.come(*(f"{client}1" for client in "abcdefgh"))
        order: list[Any] = []
        await room.leave("x1")
        while room.running:
            order.append(room.running)
            await room.leave(room.running)
        return order

    assert asyncio.run(play()) == [f"{client}1" for client in "abcdefgh"]
