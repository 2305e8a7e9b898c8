"""Policies on recorded traces: the machine that only counts must count right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.replay import Machine, compare, hindsight, replay, speedups
from benchmarks.traces import Proposal, Trace, load_traces
from edgespec.decoding.costs import CostCurve
from edgespec.decoding.policy import Fixed

TARGET = CostCurve(0, {1: 1.0, 2: 1.5, 3: 2.0, 4: 2.5, 8: 4.5}, {})
DRAFT = CostCurve(0, {1: 0.1, 64: 1.0}, {})


def trace(right: float, length: int = 60, seed: int = 0) -> Trace:
    """Tokens without repetition; the draft model is right that often."""
    draw = random.Random(seed)
    prompt = tuple(range(1000, 1020))
    answer = tuple(range(2000, 2000 + length))
    proposals = []
    for at in range(length - 1):
        tokens = tuple(
            answer[i] if i < length and draw.random() < right else 1 for i in range(at + 1, at + 6)
        )
        proposals.append(Proposal(tokens, (0.9,) * 5))
    return Trace(f"t{seed}", "chat", 0.0, prompt, answer, tuple(proposals))


def machine() -> Machine:
    return Machine(TARGET, DRAFT)


def test_plain_decoding_takes_one_pass_for_every_token() -> None:
    (outcome,) = replay([trace(0.5)], machine(), Fixed(0, ""), ())
    assert outcome.seconds == pytest.approx(59.0)


def test_a_model_that_is_always_right_takes_what_its_passes_cost() -> None:
    (outcome,) = replay([trace(1.0, length=61)], machine(), Fixed(3, "model"), ("model",))
    # 60 tokens in 15 steps of four; the draft model reads the prompt in its first pass, then
    # two tokens after every draft that stood whole, and passes twice more.
    reading = DRAFT.at(21) + 14 * DRAFT.at(2) + 15 * 2 * DRAFT.at(1)
    assert outcome.seconds == pytest.approx(15 * 2.5 + reading)


def test_a_model_that_is_never_right_costs_its_passes_and_rows() -> None:
    (outcome,) = replay([trace(0.0)], machine(), Fixed(1, "model"), ("model",))
    assert outcome.seconds == pytest.approx(58 * (1.5 + 0.1) + 1.0 + DRAFT.at(21) - 0.1)


def test_no_policy_beats_hindsight() -> None:
    traces = [trace(0.7, seed=seed) for seed in range(4)]
    plain = replay(traces, machine(), Fixed(0, ""), ())
    bound = {one.name: hindsight(one, machine(), ("model",)) for one in traces}
    for k in (1, 2, 3, 5):
        for outcome in replay(traces, machine(), Fixed(k, "model"), ("model",)):
            assert outcome.seconds >= bound[outcome.trace.name]
    assert all(bound[outcome.trace.name] < outcome.seconds for outcome in plain)
    assert speedups(plain, plain) == {"all": 1.0, "chat": 1.0}


def test_the_comparison_names_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    compare([trace(0.95, 200, seed) for seed in range(3)], machine, window=0)
    out = capsys.readouterr().out
    for name in ("n-gram 1", "model 7", "adaptive model", "hindsight n-gram+m"):
        assert name in out
    rows = {line[:18].strip(): float(line.split()[-1]) for line in out.splitlines()[1:]}
    assert rows["hindsight model"] > rows["adaptive model"] > 1.0
    assert rows["n-gram 3"] == 1.0


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(
        '{"name": "a", "category": "chat", "temperature": 0.8, "prompt": [1, 2], '
        '"answer": [3, 4], "proposals": [[[4, 5], [0.5, 0.25]]]}\n',
        encoding="utf-8",
    )
    (found,) = load_traces(file)
    assert found == Trace("a", "chat", 0.8, (1, 2), (3, 4), (Proposal((4, 5), (0.5, 0.25)),))
