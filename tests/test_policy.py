"""The fixed policy: every k, room and set of widths, against counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

import pytest

from edgespec.decoding.policy import Fixed
from edgespec.protocols import More
from edgespec.types import Draft, SamplingParams

WIDTHS = [
    None,
    *map(frozenset, chain.from_iterable(combinations(range(1, 7), n) for n in range(7))),
]


def best(limit: int, widths: frozenset[int] | None) -> int:
    """The largest draft length up to `limit` whose pass has an allowed width; 0 always is."""
    allowed = [k for k in range(1, limit + 1) if widths is None or k + 1 in widths]
    return max(allowed, default=0)


class Fickle:
    """Proposes as much as it likes, up to the limit."""

    name = "model"
    copies = False

    def __init__(self, likes: int) -> None:
        self._likes = likes
        self.limits: dict[int, int] = {}

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None: ...

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        self.limits = dict(limits)
        lengths = {slot: min(self._likes, limit) for slot, limit in limits.items()}
        return {slot: draft_of(length) for slot, length in lengths.items() if length}

    def observe(self, sequence: int, emitted: Sequence[int]) -> None: ...

    def unread(self, sequence: int) -> int:
        return 0

    def knows_all(self, sequence: int) -> bool:
        return True

    def end(self, sequence: int) -> None: ...

    def forget(self) -> None: ...


def draft_of(length: int) -> Draft:
    return Draft(tuple(range(length)), "model", tuple(0.1 * i for i in range(length)), 9, 2)


def test_every_k_room_and_set_of_widths() -> None:
    """Catches a pass wider than allowed (the output would not be bit-identical), one narrower
    than it could be, and a draft longer than the room or of negative length."""
    for widths in WIDTHS:
        for k in range(8):
            drafter = Fickle(99)
            room = {slot: slot - 2 for slot in range(12)}
            plans = Fixed(k, "model", widths).plan(room, {"model": drafter}, 0)
            assert plans.keys() == room.keys()
            for slot, most in room.items():
                wanted = best(min(k, most), widths)
                assert drafter.limits.get(slot, 0) == wanted, (widths, k, most)
                assert plans[slot].draft.tokens == tuple(range(wanted))
                assert plans[slot].k == wanted


def test_a_short_draft_is_trimmed_to_an_allowed_width() -> None:
    """Catches a drafter that stops early and so leads to a width that is not identical."""
    for widths in WIDTHS:
        for length in range(1, 7):
            whole = draft_of(length)
            plan = Fixed(6, "model", widths).plan({0: 99}, {"model": Fickle(length)}, 0)[0]
            kept = best(min(length, best(6, widths)), widths)
            assert plan.draft.tokens == whole.tokens[:kept]
            assert plan.draft.confidence == whole.confidence[:kept]
            if kept:
                assert plan.draft.source == "model"
                assert (plan.draft.match_length, plan.draft.candidates) == (9, 2)


@pytest.mark.parametrize(
    ("k", "widths", "room", "wanted", "reason"),
    [
        (0, None, 9, 0, "plain"),
        (4, None, 9, 4, "fixed k=4"),
        (4, None, 4, 4, "fixed k=4"),
        (4, None, 3, 3, "fixed k=4, room for 3"),
        (4, None, -1, 0, "fixed k=4, room for 0"),
        (
            4,
            frozenset({1, 2, 3}),
            9,
            2,
            "fixed k=4, cut to 2: wider passes are not bit-identical here",
        ),
    ],
)
def test_the_reason_says_what_was_asked_and_why_it_is_less(
    k: int, widths: frozenset[int] | None, room: int, wanted: int, reason: str
) -> None:
    """Catches an unexplained k: the user sees this text."""
    plan = Fixed(k, "model", widths).plan({5: room}, {"model": Fickle(99)}, 0)[5]
    assert (plan.k, plan.reason) == (wanted, reason)


def test_nobody_running_is_no_plan() -> None:
    """Catches a drafter that is asked for nothing, and one that plain decoding needs."""
    assert Fixed(3, "model").plan({}, {"model": Fickle(9)}, 0) == {}
    assert Fixed(0, "").plan({0: 9}, {}, 0)[0].k == 0
