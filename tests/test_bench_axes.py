"""Ticks that are few and round, and numbers that can be drawn."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.bench.plots.axes import Scale, nice_ticks, ratio_ticks, whole_ticks
from edgespec.bench.plots.svg import Canvas


def test_numbers_that_cannot_be_drawn_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        Canvas(10, 10, "x").line((0, math.nan), (1, 1), "")


def test_tiny_negative_numbers_have_no_sign() -> None:
    canvas = Canvas(10, 10, "x")
    canvas.line((-0.01, 0.04), (-1.25, 2.0), "")
    assert '<line x1="0" y1="0" x2="-1.2" y2="2"/>' in canvas.svg()


@given(st.floats(1e-9, 1e12))
def test_ticks_start_at_0_cover_the_highest_and_are_few(high: float) -> None:
    ticks = nice_ticks(high)
    assert ticks[0] == 0
    assert ticks[-1] >= high * (1 - 1e-6)
    assert 3 <= len(ticks) <= 12
    assert nice_ticks(0.0) == nice_ticks(-1.0) == [0.0, 1.0]


@given(st.integers(1, 100_000), st.integers(3, 16))
def test_whole_ticks_are_whole_and_few(high: int, count: int) -> None:
    ticks = whole_ticks(high, count)
    assert ticks[0] == 0
    assert ticks[-1] <= high
    assert len(ticks) <= count + 1


@given(st.floats(0.01, 0.99), st.floats(1.01, 90), st.integers(120, 600))
def test_ratio_ticks_have_1_and_room_for_labels(low: float, high: float, width: int) -> None:
    ticks = ratio_ticks(low, high, width)
    scale = Scale(low, high, 0, width, log=True)
    assert 1.0 in ticks
    assert all(low <= tick <= high for tick in ticks)
    gaps = [scale(right) - scale(left) for left, right in pairwise(ticks)]
    assert all(gap >= 34 - 1e-6 for gap in gaps)
