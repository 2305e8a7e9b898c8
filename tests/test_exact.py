"""How to load for exactness, with scripted measurements: every branch."""

from __future__ import annotations

import pytest

from edgespec.llama.exact import Exact, Numerics, choose_numerics
from edgespec.llama.widths import WidthProbe


def measured(widest: int, seconds: float = 1.0, extra: tuple[int, ...] = ()) -> WidthProbe:
    """Identical up to `widest` and at `extra`; a pass over one token takes `seconds`."""
    differences = {n: 0.0 if n <= widest or n in extra else 0.5 for n in range(2, 10)}
    return WidthProbe(differences, {1: seconds})


class Probe:
    """Answers from a script and notes what it was asked."""

    def __init__(self, repacked: WidthProbe, original: WidthProbe) -> None:
        self.asked: list[bool] = []
        self._answers = {True: repacked, False: original}

    def __call__(self, repack: bool) -> WidthProbe:
        self.asked.append(repack)
        return self._answers[repack]


def up_to(widest: int, *extra: int) -> frozenset[int]:
    return frozenset({*range(1, widest + 1), *extra})


def test_off_measures_and_promises_nothing() -> None:
    probe = Probe(measured(9), measured(9))
    assert choose_numerics("off", probe) == Numerics(True, None)
    assert probe.asked == []


@pytest.mark.parametrize("exact", ["auto", "on"])
@pytest.mark.parametrize("widest", [4, 7, 9])
def test_repacked_weights_that_are_good_enough_are_taken(exact: Exact, widest: int) -> None:
    probe = Probe(measured(widest), measured(9, seconds=0.1))
    assert choose_numerics(exact, probe) == Numerics(True, up_to(widest))
    assert probe.asked == [True]


def test_identical_widths_behind_a_gap_are_allowed_too() -> None:
    probe = Probe(measured(5, extra=(8,)), measured(1))
    assert choose_numerics("auto", probe).widths == up_to(5, 8)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.03])
def test_auto_takes_the_original_weights_where_they_cost_nothing(seconds: float) -> None:
    probe = Probe(measured(3), measured(7, seconds))
    assert choose_numerics("auto", probe) == Numerics(False, up_to(7))
    assert probe.asked == [True, False]


@pytest.mark.parametrize(("widest", "seconds"), [(7, 1.04), (3, 1.0), (3, 0.5), (1, 9.0)])
def test_auto_promises_nothing_where_it_would_cost(widest: int, seconds: float) -> None:
    probe = Probe(measured(3), measured(widest, seconds))
    assert choose_numerics("auto", probe) == Numerics(True, None)


def test_on_takes_the_original_weights_at_any_price() -> None:
    probe = Probe(measured(3), measured(5, seconds=9.0))
    assert choose_numerics("on", probe) == Numerics(False, up_to(5))


@pytest.mark.parametrize(("repacked", "original"), [(3, 3), (3, 2), (1, 1)])
def test_on_keeps_repacked_weights_unless_the_others_reach_further(
    repacked: int, original: int
) -> None:
    probe = Probe(measured(repacked), measured(original, seconds=0.1))
    assert choose_numerics("on", probe) == Numerics(True, up_to(repacked))
