"""Drafts that are cut and joined."""

from __future__ import annotations

import pytest

from edgespec.types import NO_DRAFT, Draft

MODEL = Draft((1, 2), "model", (0.9, 0.8), passes=(3, 1))
COPY = Draft((5, 6, 7), "n-gram", (1.0, 0.5, 0.5), 9, 2)


def test_a_cut_draft_is_its_beginning() -> None:
    cut = COPY.cut(2)
    assert (cut.tokens, cut.confidence) == ((5, 6), (1.0, 0.5))
    assert (cut.source, cut.match_length, cut.candidates) == ("n-gram", 9, 2)
    assert COPY.cut(3) is COPY


@pytest.mark.parametrize(
    ("length", "source", "sources"),
    [
        (5, "model+n-gram", ["model", "model", "n-gram", "n-gram", "n-gram"]),
        (3, "model+n-gram", ["model", "model", "n-gram"]),
        (2, "model", ["model", "model"]),
        (1, "model", ["model"]),
    ],
)
def test_a_joined_draft_knows_who_proposed_what(
    length: int, source: str, sources: list[str]
) -> None:
    joined = MODEL.then(COPY).cut(length)
    assert joined.tokens == (1, 2, 5, 6, 7)[:length]
    assert joined.source == source
    assert [joined.by(i) for i in range(length)] == sources
    assert joined.passes == (3, 1)


def test_no_draft_is_nothing() -> None:
    assert not NO_DRAFT
    assert len(NO_DRAFT.cut(0)) == 0
