"""The whole benchmark on a machine of known speed: does it find what is true?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from edgespec.bench.benchmark import run_benchmark
from edgespec.bench.options import BenchOptions
from edgespec.bench.records import ALL, Result, Summary, Verdict
from edgespec.bench.subject import Subject
from tests.bench_fakes import Cost, VirtualClock, fake_subject, letters, made_suite, right

TOKENS = 100
K = 3


class Truth:
    """What k = 3 with `TimedDrafter` takes, by counting: passes, rows, drafted tokens."""

    def __init__(self, prompt_tokens: int) -> None:
        self.steps = self.extra_rows = 0
        length, end = prompt_tokens + 1, prompt_tokens + TOKENS
        while length < end:
            k = min(K, end - length - 1)
            accepted = 0
            while accepted < k and right(length + accepted):
                accepted += 1
            self.steps += 1
            self.extra_rows += k
            length += accepted + 1

    def slope(self, speedup: float) -> float:
        """What every further row of a pass must cost, in passes of one row, for that speed-up."""
        plain = TOKENS - 1
        return (plain / speedup - self.steps) / self.extra_rows


def straight(unit: float, slope: float) -> Cost:
    return lambda n: unit * (1 + slope * (n - 1))


@contextmanager
def closed(subject: Subject) -> Iterator[Subject]:
    with closing(subject.engine):
        yield subject


def measure(subject: Subject, clock: VirtualClock, modes: str, repetitions: int = 2) -> Result:
    options = BenchOptions(modes=modes, repetitions=repetitions, max_tokens=TOKENS)
    with closed(subject):
        return run_benchmark(subject, made_suite(15), options, clock=clock)


def of(result: Result, mode: str) -> Summary:
    return next(s for s in result.summaries if (s.mode, s.category) == (mode, ALL))


def prompt_tokens(subject: Subject) -> int:
    """All made prompts have the same length."""
    text = made_suite(1).prompts[0].turns[0]
    return len(subject.engine.tokenize(None, [{"role": "user", "content": text}]))


def truth() -> Truth:
    clock = VirtualClock()
    with closed(fake_subject(clock, lambda n: 1.0)) as subject:
        return Truth(prompt_tokens(subject))


@pytest.mark.parametrize(
    ("speedup", "verdict"), [(0.9, "slower"), (1.0, "same"), (1.2, "faster"), (2.0, "faster")]
)
def test_a_known_speedup_is_found_within_3_percent(speedup: float, verdict: Verdict) -> None:
    clock = VirtualClock(noise=0.03, drift=0.2, horizon=15 * 2 * 3 * TOKENS * 0.02)
    cost = straight(0.02, truth().slope(speedup))
    result = measure(fake_subject(clock, cost, auto_k=K), clock, "off,auto,3")
    for mode in ("auto", "k=3"):
        summary = of(result, mode)
        assert summary.speedup is not None
        assert summary.speedup.value == pytest.approx(speedup, rel=0.03)
        assert summary.speedup.low <= speedup * 1.01
        assert summary.speedup.high >= speedup * 0.99
        assert summary.trace_speedup == pytest.approx(speedup, rel=0.03)
        assert summary.verdict == verdict
    word = {"slower": "does not pay", "same": "the same", "faster": "pays for"}[verdict]
    assert word in result.verdict


def test_a_known_speed_is_found_within_3_percent() -> None:
    clock = VirtualClock(noise=0.05)
    result = measure(fake_subject(clock, straight(0.02, 0.5)), clock, "native,off")
    for mode in ("native", "off"):
        assert of(result, mode).decode_tps == pytest.approx(50.0, rel=0.03)
    curve = dict(zip(result.target_curve.widths, result.target_curve.seconds, strict=True))
    assert curve[1] == pytest.approx(0.02, rel=0.05)
    assert curve[8] == pytest.approx(0.02 * 4.5, rel=0.05)


def test_known_acceptance_is_found_exactly() -> None:
    clock = VirtualClock()
    known = truth()
    result = measure(fake_subject(clock, straight(0.02, 0.1), auto_k=K), clock, "off,auto", 1)
    for cell in result.cells:
        if cell.mode == "auto":
            assert cell.steps == known.steps
            assert cell.drafted == known.extra_rows
            assert cell.accepted == TOKENS - 1 - known.steps
            assert sum(cell.per_step_drafted) == cell.drafted
            assert sum(cell.per_step_accepted) == cell.accepted
    assert of(result, "auto").acceptance_rate == pytest.approx(
        (TOKENS - 1 - known.steps) / known.extra_rows
    )


def test_the_same_mode_against_itself_is_the_same() -> None:
    clock = VirtualClock(noise=0.05, drift=0.3, horizon=15 * 2 * 3 * TOKENS * 0.02)
    result = measure(fake_subject(clock, straight(0.02, 0.5)), clock, "off,off,native")
    assert of(result, "off (2)").verdict == "same"
    assert of(result, "native").verdict == "same"


def test_overhead_against_the_own_loop_of_llama_cpp_is_seen() -> None:
    clock = VirtualClock()
    result = measure(
        fake_subject(clock, straight(0.02, 0.5), slower_native=0.8), clock, "native,off"
    )
    summary = of(result, "native")
    assert summary.speedup is not None
    assert summary.speedup.value == pytest.approx(1 / 0.8)
    assert any("native" in note for note in result.notes)


@pytest.mark.parametrize("growth", [0.0, 0.002])
def test_trace_time_is_wall_time_where_nothing_else_costs(growth: float) -> None:
    clock = VirtualClock()
    table = letters()
    small = letters(seed=1)

    def similar(tokens: list[int]) -> object:
        return table(tokens) if len(tokens) % 4 else small(tokens)

    subject = fake_subject(
        clock,
        straight(0.02, 0.25),
        table=table,
        draft=(similar, straight(0.004, 0.01)),  # type: ignore[arg-type]
        growth=growth,
    )
    result = measure(subject, clock, "native,off,model:1,model:3,model:7,n-gram:2", 1)
    assert result.draft_curve is not None
    for cell in result.cells:
        # A draft is taken to be made at one depth, though its tokens come one after another.
        assert cell.trace_s == pytest.approx(cell.decode_s, rel=2 * growth + 1e-6), cell.mode
    assert (of(result, "model:3").acceptance_rate or 0) > 0.3
