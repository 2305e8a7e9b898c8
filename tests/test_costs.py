"""The cost curve: what is measured, when, and what is read between the points."""

from __future__ import annotations

import math

import pytest

from edgespec.decoding.costs import WIDTHS, CostCurve, Measurement
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
