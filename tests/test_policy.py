"""The fixed policy: every k, room and set of widths, against counting."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from edgespec.decoding.policy import Fixed
from edgespec.protocols import Choice
from edgespec.types import Draft

WIDTHS = [
    None,
    *map(frozenset, chain.from_iterable(combinations(range(1, 7), n) for n in range(7))),
]


def best(limit: int, widths: frozenset[int] | None) -> int:
    """The largest draft length up to `limit` whose pass has an allowed width; 0 always is."""
    allowed = [k for k in range(1, limit + 1) if widths is None or k + 1 in widths]
    return max(allowed, default=0)


def draft_of(length: int) -> Draft:
    return Draft(tuple(range(length)), "model", tuple(0.1 * i for i in range(length)), 3, 2)


def test_every_k_room_and_set_of_widths() -> None:
    """Catches a pass wider than allowed (the output would not be bit-identical), one narrower
    than it could be, and a draft longer than the room or of negative length."""
    for widths in WIDTHS:
        for k in range(8):
            policy = Fixed(k, "model", widths)
            room = {slot: slot - 2 for slot in range(12)}
            choices = policy.choose(room)
            assert choices.keys() == room.keys()
            for slot, most in room.items():
                assert choices[slot].drafter == "model"
                assert choices[slot].k == best(min(k, most), widths), (widths, k, most)


def test_a_short_draft_is_trimmed_to_an_allowed_width() -> None:
    """Catches a drafter that stops early and so leads to a width that is not identical."""
    for widths in WIDTHS:
        policy = Fixed(6, "model", widths)
        for length in range(8):
            whole = draft_of(length)
            trimmed = policy.trim(whole)
            kept = best(length, widths)
            assert trimmed.tokens == whole.tokens[:kept]
            assert trimmed.confidence == whole.confidence[:kept]
            assert (trimmed.source, trimmed.match_length, trimmed.candidates) == ("model", 3, 2)


@pytest.mark.parametrize(
    ("k", "widths", "room", "choice"),
    [
        (0, None, 9, Choice("n", 0, "plain")),
        (4, None, 9, Choice("n", 4, "fixed k=4")),
        (4, None, 4, Choice("n", 4, "fixed k=4")),
        (4, None, 3, Choice("n", 3, "fixed k=4, room for 3")),
        (4, None, -1, Choice("n", 0, "fixed k=4, room for 0")),
        (
            4,
            frozenset({1, 2, 3}),
            9,
            Choice("n", 2, "fixed k=4, cut to 2: wider passes are not bit-identical here"),
        ),
    ],
)
def test_the_reason_says_what_was_asked_and_why_it_is_less(
    k: int, widths: frozenset[int] | None, room: int, choice: Choice
) -> None:
    """Catches an unexplained k: the user sees this text."""
    assert Fixed(k, "n", widths).choose({5: room}) == {5: choice}


def test_nobody_running_is_no_choice() -> None:
    assert Fixed(3, "model").choose({}) == {}
