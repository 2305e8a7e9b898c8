"""How to load for exactness, with scripted measurements: every branch."""

from __future__ import annotations

import pytest

from edgespec.llama.exact import Exact, Numerics, choose_numerics
from edgespec.llama.widths import PROMPT_PIECE, WidthProbe


def measured(widest: int, seconds: float = 1.0, extra: tuple[int, ...] = ()) -> WidthProbe:
    """Identical up to `widest` and at `extra`; a pass over one token takes `seconds`."""
    differences = {n: 0.0 if n <= widest or n in extra else 0.5 for n in range(2, 10)}
    return WidthProbe(differences, {1: seconds, PROMPT_PIECE: 128.0})


class Probe:
    """Answers from a script (repack, mixed cache) and notes what it was asked."""

    def __init__(self, answers: dict[tuple[bool, bool], WidthProbe]) -> None:
        self.asked: list[tuple[bool, bool]] = []
        self._answers = answers

    def __call__(self, repack: bool, mixed: bool) -> WidthProbe:
        self.asked.append((repack, mixed))
        return self._answers[repack, mixed]


def weights_only(repacked: WidthProbe, original: WidthProbe) -> Probe:
    """Mixed caches are no better."""
    return Probe(
        {
            (True, False): repacked,
            (True, True): repacked,
            (False, False): original,
            (False, True): original,
        }
    )


def up_to(widest: int, *extra: int) -> frozenset[int]:
    return frozenset({*range(1, widest + 1), *extra})


@pytest.mark.parametrize("seconds", [0.8, 0.95, 1.0, 1.5])
def test_off_promises_nothing_and_takes_the_faster_cache(seconds: float) -> None:
    answers = {(True, False): measured(9), (True, True): measured(9, seconds)}
    found = choose_numerics("off", Probe(answers), may_mix=True)
    assert found == Numerics(True, mixed_cache=seconds < 0.9, widths=None)


def test_off_measures_nothing_that_it_would_not_use() -> None:
    probe = weights_only(measured(9), measured(9))
    choose_numerics("off", probe, may_mix=True)
    assert all(repack for repack, _ in probe.asked)
    probe = weights_only(measured(9), measured(9))
    assert not choose_numerics("off", probe, may_mix=False).mixed_cache
    assert not any(mixed for _, mixed in probe.asked)


def test_auto_takes_the_faster_cache_where_nothing_can_be_promised() -> None:
    probe = Probe(
        {
            (True, False): measured(1),
            (True, True): measured(1, seconds=0.5),
            (False, False): measured(1),
            (False, True): measured(1),
        }
    )
    assert choose_numerics("auto", probe, may_mix=True) == Numerics(True, True, None)


@pytest.mark.parametrize("exact", ["auto", "on"])
@pytest.mark.parametrize("widest", [4, 7, 9])
def test_llama_cpp_s_own_choice_is_taken_where_it_is_good_enough(exact: Exact, widest: int) -> None:
    probe = weights_only(measured(widest), measured(9, seconds=0.1))
    assert choose_numerics(exact, probe, may_mix=True) == Numerics(True, False, up_to(widest))
    assert all(repack for repack, _ in probe.asked)


def test_identical_widths_behind_a_gap_are_allowed_too() -> None:
    probe = weights_only(measured(5, extra=(8,)), measured(1))
    assert choose_numerics("auto", probe, may_mix=True).widths == up_to(5, 8)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.06])
def test_a_mixed_cache_is_taken_where_it_makes_widths_identical(seconds: float) -> None:
    probe = Probe({(True, False): measured(1), (True, True): measured(7, seconds)})
    assert choose_numerics("auto", probe, may_mix=True) == Numerics(True, True, up_to(7))


def test_a_mixed_cache_is_not_even_measured_where_it_may_not_be() -> None:
    probe = Probe({(True, False): measured(1), (False, False): measured(2)})
    assert choose_numerics("auto", probe, may_mix=False) == Numerics(True, False, None)
    assert choose_numerics("on", probe, may_mix=False) == Numerics(False, False, up_to(2))


def test_original_weights_on_a_mixed_cache_come_last() -> None:
    answers = {
        (True, False): measured(1),
        (True, True): measured(3),
        (False, False): measured(1),
        (False, True): measured(7),
    }
    probe = Probe(answers)
    assert choose_numerics("auto", probe, may_mix=True) == Numerics(False, True, up_to(7))
    assert [asked for asked in dict.fromkeys(probe.asked)] == list(answers)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.06])
def test_auto_takes_the_original_weights_where_they_cost_nothing(seconds: float) -> None:
    # A turn is a piece of a prompt and 128 tokens, here of the same price: 6 % of half of it.
    probe = weights_only(measured(3), measured(7, seconds))
    assert choose_numerics("auto", probe, may_mix=True) == Numerics(False, False, up_to(7))


@pytest.mark.parametrize(("widest", "seconds"), [(7, 1.07), (3, 1.0), (3, 0.5), (1, 9.0)])
def test_auto_promises_nothing_where_it_would_cost(widest: int, seconds: float) -> None:
    probe = weights_only(measured(3), measured(widest, seconds))
    assert choose_numerics("auto", probe, may_mix=True) == Numerics(True, False, None)


def test_on_takes_the_original_weights_at_any_price() -> None:
    probe = weights_only(measured(3), measured(5, seconds=9.0))
    assert choose_numerics("on", probe, may_mix=True) == Numerics(False, False, up_to(5))


@pytest.mark.parametrize(("repacked", "original"), [(3, 3), (3, 2), (1, 1)])
def test_on_keeps_llama_cpp_s_own_choice_unless_another_reaches_further(
    repacked: int, original: int
) -> None:
    probe = weights_only(measured(repacked), measured(original, seconds=0.1))
    found = choose_numerics("on", probe, may_mix=True)
    assert found == Numerics(True, False, up_to(repacked))
