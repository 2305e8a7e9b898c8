"""The cost curve: what is measured, when, and what is read between the points."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.decoding.calibration import TARGET_WIDTHS, WIDTHS, Measurement, adjust, calibrate
from edgespec.decoding.costs import CostCurve, LiveCosts, monotone
from tests.bench_fakes import VirtualClock
from tests.fakes import FakeModel, hashed_logits

V = 32


class Model(FakeModel):
    """Costs n ** 2 seconds for n rows, and remembers what was asked."""

    def __init__(self, clock: VirtualClock, **options: float) -> None:
        super().__init__(hashed_logits(V), V, **options)  # type: ignore[arg-type]
        self._clock = clock
        self.wanted: list[tuple[int, int, int]] = []  # rows, rows with logits, first position

    def decode(self, rows):  # type: ignore[no-untyped-def]
        self._clock.work(len(rows) ** 2)
        self.wanted.append((len(rows), sum(row.want_logits for row in rows), rows[0].position))
        return super().decode(rows)


def test_every_width_is_measured_at_the_depth() -> None:
    clock = VirtualClock()
    model = Model(clock, n_ctx=200)
    measurement = Measurement(model, [i % V for i in range(200)], depth=40, clock=clock)
    assert list(measurement.rounds(3)) == [1, 2, 3]
    curve = measurement.curve()
    assert curve.depth == 40
    assert curve.seconds == {n: n**2 for n in WIDTHS}
    assert set(curve.spread.values()) == {0.0}
    assert {position for _, _, position in model.wanted} == {0, 40}
    assert model.memory[0] == []


def test_verification_wants_all_logits_and_a_prompt_only_the_last() -> None:
    clock = VirtualClock()
    model = Model(clock)
    measurement = Measurement(model, [1] * 100, depth=0, widths=(1, 33, 34, 100), clock=clock)
    list(measurement.rounds(1))
    assert {(rows, wanted) for rows, wanted, _ in model.wanted} == {
        (1, 1),
        (33, 33),
        (34, 1),
        (100, 1),
    }


def test_stopping_early_leaves_a_curve_and_empty_memory() -> None:
    clock = VirtualClock()
    model = Model(clock)
    measurement = Measurement(model, [1] * 100, depth=10, widths=(1, 2), clock=clock)
    for done in measurement.rounds(100):
        if done == 2:
            break
    assert measurement.curve().seconds == {1: 1.0, 2: 4.0}
    assert model.memory[0] == []


def test_a_wide_spread_is_seen() -> None:
    clock = VirtualClock(noise=0.3)
    measurement = Measurement(Model(clock), [1] * 50, depth=0, widths=(1, 2), clock=clock)
    list(measurement.rounds(30))
    curve = measurement.curve()
    assert 0.2 < curve.spread[1] / curve.seconds[1] < 0.7
    assert curve.seconds[2] == pytest.approx(4.0, rel=0.2)


def test_a_small_context_leaves_out_what_does_not_fit() -> None:
    clock = VirtualClock()
    model = Model(clock, n_ctx=20)
    measurement = Measurement(model, [1] * 20, depth=512, clock=clock)
    list(measurement.rounds(1))
    curve = measurement.curve()
    assert (curve.depth, max(curve.seconds)) == (3, 17)


def test_a_model_that_cannot_rewind_is_measured_from_nothing() -> None:
    clock = VirtualClock()
    model = Model(clock, rewind_depth=math.inf)
    model.rewind_depth = 0

    def rewind(sequence: int, length: int) -> None:
        assert length == 0
        model.memory[sequence] = []

    model.rewind = rewind  # type: ignore[method-assign]
    measurement = Measurement(model, [1] * 50, depth=30, widths=(1, 4), clock=clock)
    list(measurement.rounds(1))
    assert measurement.curve().depth == 0


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ValueError, match="42 tokens are needed, not 41"):
        Measurement(Model(VirtualClock()), [1] * 41, depth=40, widths=(1, 2), clock=VirtualClock())


@pytest.mark.parametrize(
    ("width", "seconds"),
    [(1, 1.0), (2, 1.5), (3, 2.0), (4, 4.0), (8, 8.0), (6, 6.0), (16, 16.0)],
)
def test_between_the_points_and_beyond(width: int, seconds: float) -> None:
    curve = CostCurve(0, {1: 1.0, 3: 2.0, 4: 4.0, 8: 8.0}, {})
    assert curve.at(width) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("depth", "width", "seconds"),
    [(100, 1, 1.0), (110, 1, 2.0), (110, 2, 4.0), (110, 3, 6.0), (0, 1, 0.25)],
)
def test_behind_more_tokens_passes_take_longer(depth: int, width: int, seconds: float) -> None:
    curve = CostCurve(100, {1: 1.0, 3: 3.0}, {}, growth={1: 0.1, 3: 0.3})
    assert curve.behind(depth, width) == pytest.approx(seconds)


def test_where_growth_was_not_measured_depth_makes_no_difference() -> None:
    assert CostCurve(100, {1: 1.0}, {}).behind(5000, 1) == 1.0


# Costs while the model is at work.

TRUE = {1: 1.0, 2: 1.5, 4: 2.0, 8: 4.0, 32: 12.0}


def live(seconds: dict[int, float] | None = None, growth: float = 0.0) -> LiveCosts:
    return LiveCosts(CostCurve(100, seconds or TRUE, {}), growth)


def test_throttling_reaches_all_widths_within_twenty_passes_of_one() -> None:
    costs = live()
    for _ in range(30):
        costs.observe(1, 100, 1.0)
        costs.observe(4, 100, 2.0)
    for _ in range(20):
        costs.observe(1, 100, 2.0)
    assert costs.at(1, 100) == pytest.approx(2.0, rel=0.03)
    assert costs.at(4, 100) == pytest.approx(4.0, rel=0.15)
    assert costs.at(8, 100) == pytest.approx(8.0, rel=0.25)  # never seen


def test_one_pass_that_was_held_up_changes_little() -> None:
    costs = live()
    for _ in range(30):
        costs.observe(1, 100, 1.0)
    costs.observe(1, 100, 50.0)
    assert costs.at(1, 100) < 1.1
    assert costs.at(8, 100) < 4.4


def test_a_width_that_was_mismeasured_is_corrected_alone() -> None:
    """Catches one error that makes all other widths wrong: T(2) is off by a third."""
    costs = live()
    for _ in range(40):
        costs.observe(1, 100, 1.0)
    for _ in range(5):
        costs.observe(2, 100, 2.0)
        costs.observe(1, 100, 1.0)
    assert costs.at(2, 100) == pytest.approx(2.0, rel=0.05)
    assert costs.at(1, 100) == pytest.approx(1.0, rel=0.05)
    assert costs.at(8, 100) == pytest.approx(4.0, rel=0.15)


def test_noise_is_averaged_out() -> None:
    draw = random.Random(1)
    costs = live()
    for _ in range(200):
        for n in (1, 2, 4):
            costs.observe(n, 100, TRUE[n] * math.exp(draw.gauss(0.0, 0.08)))
    for n in (1, 2, 4, 8):
        assert costs.at(n, 100) == pytest.approx(TRUE[n], rel=0.1)


def test_passes_grow_with_the_context_by_rows_and_depth() -> None:
    costs = live(growth=0.001)
    assert costs.at(1, 100) == 1.0
    assert costs.at(1, 1100) == pytest.approx(2.0)
    assert costs.at(4, 1100) == pytest.approx(6.0)
    assert live(growth=1.0).at(1, 0) > 0  # mismeasured, but never free


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_clock_that_stands_still_is_ignored(seconds: float) -> None:
    costs = live()
    costs.observe(1, 100, seconds)
    assert costs.at(1, 100) == 1.0


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12))
def test_a_smoothed_curve_never_falls_and_keeps_its_mean(values: list[float]) -> None:
    smooth = monotone(values)
    assert smooth == sorted(smooth)
    assert sum(smooth) == pytest.approx(sum(values))
    if values == sorted(values):
        assert smooth == pytest.approx(values)


def test_wider_than_listed_is_as_measured() -> None:
    costs = live()
    costs.observe(256, 100, 96.0)
    assert costs.at(256, 100) == pytest.approx(96.0)


# Calibration.


class Grows(Model):
    """A pass over n rows costs n ** 0.5 seconds, and 0.001 for each row and token before it."""

    def decode(self, rows):  # type: ignore[no-untyped-def]
        held = len(self.memory[rows[0].sequence])
        self._clock.work(len(rows) ** 0.5 + 0.001 * len(rows) * held - len(rows) ** 2)
        return super().decode(rows)


def test_calibration_finds_curve_and_growth() -> None:
    clock = VirtualClock()
    model = Grows(clock)
    costs = calibrate(model, [1, 2, 3], TARGET_WIDTHS, clock=clock)
    live = costs.live()
    for n in (1, 2, 5, 16):
        for depth in (50, 300):
            assert live.at(n, depth) == pytest.approx(n**0.5 + 0.001 * n * depth, rel=0.01)
    assert costs.rebuild == 0.0
    assert model.memory[0] == []


class Rebuilds(Model):
    """A pass costs 1 second more after one of another width."""

    before = 0

    def decode(self, rows):  # type: ignore[no-untyped-def]
        self._clock.work(len(rows) != self.before)
        self.before = len(rows)
        return super().decode(rows)


def test_calibration_finds_what_a_changed_width_costs() -> None:
    clock = VirtualClock()
    costs = calibrate(Rebuilds(clock), [1], (1, 2, 4), clock=clock)
    assert costs.rebuild == pytest.approx(1.0)
    assert costs.curve.seconds == {1: 1.0, 2: 4.0, 4: 16.0}


@pytest.mark.parametrize("options", [{"n_ctx": 1}, {"n_ctx": 20}, {"rewind_depth": 0}])
def test_calibration_makes_do_with_little_room(options: dict[str, float]) -> None:
    clock = VirtualClock()
    costs = calibrate(Model(clock, **options), [1], TARGET_WIDTHS, clock=clock)
    assert costs.curve.seconds[1] == 1.0
    assert costs.live().at(4, 10) > 0


def test_models_measured_at_other_moments_are_brought_to_now() -> None:
    """The machine is three times as slow as when the one was measured, and twice as fast as when
    the other was: catches costs that cannot be compared."""
    clock = VirtualClock()
    target, draft = Model(clock), Model(clock)
    slow = LiveCosts(CostCurve(0, {1: 1 / 3, 2: 1.0}, {}))
    fast = LiveCosts(CostCurve(0, {1: 2.0, 2: 3.0}, {}))
    adjust([(target, slow), (draft, fast)], 1, clock)
    assert slow.at(1, 0) == pytest.approx(1.0)
    assert slow.at(2, 0) == pytest.approx(3.0)
    assert fast.at(2, 0) == pytest.approx(1.5)
    assert target.memory[0] == draft.memory[0] == []
