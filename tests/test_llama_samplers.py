"""The chain against llama.cpp's own samplers: same names, same order, same candidates.

llama.cpp computes in float32, edgespec in float64. A token may be kept by only one of them when
it lies within EDGE of a cut, and that is counted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import llama_cpp
import numpy as np
import pytest

from edgespec.decoding.sampling import LogitRow, Sampler
from edgespec.llama import library
from edgespec.types import SamplingParams
from tests.test_sampling import (
    Values,
    by_logit,
    from_row,
    mass_before,
    only,
    probabilities,
    random_params,
    slow_adjusted,
    slow_top_k,
    slow_top_p,
    slow_typical_p,
    surprises,
)

EDGE = 1e-5

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, penalty_last_n=0, seed=1)

CELL = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

Stage = Callable[[SamplingParams, int], Any]


@pytest.fixture(autouse=True, scope="module")
def _started() -> None:
    library.start()


# --- llama.cpp --------------------------------------------------------------------------------


def bias_sampler(params: SamplingParams, size: int) -> Any:
    known = {token: bias for token, bias in params.logit_bias.items() if token < size}
    cells = [llama_cpp.llama_logit_bias(token, bias) for token, bias in known.items()]
    array = (llama_cpp.llama_logit_bias * len(cells))(*cells)
    return llama_cpp.llama_sampler_init_logit_bias(size, len(known), array)


def penalties_sampler(params: SamplingParams, size: int) -> Any:
    return llama_cpp.llama_sampler_init_penalties(
        size,
        params.penalty_last_n,
        params.repeat_penalty,
        params.frequency_penalty,
        params.presence_penalty,
    )


# As in llama.cpp's common/sampling.cpp, default `samplers`.
STAGES: dict[str, Stage] = {
    "bias": bias_sampler,
    "penalties": penalties_sampler,
    "top_k": lambda params, size: llama_cpp.llama_sampler_init_top_k(params.top_k),
    "typical": lambda params, size: llama_cpp.llama_sampler_init_typical(params.typical_p, 0),
    "top_p": lambda params, size: llama_cpp.llama_sampler_init_top_p(params.top_p, 0),
    "min_p": lambda params, size: llama_cpp.llama_sampler_init_min_p(params.min_p, 0),
    "temp": lambda params, size: llama_cpp.llama_sampler_init_temp(params.temperature),
}


@contextmanager
def chain(params: SamplingParams, size: int, order: Sequence[str]) -> Iterator[Any]:
    handle = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    try:
        for name in order:
            llama_cpp.llama_sampler_chain_add(handle, STAGES[name](params, size))
        yield handle
    finally:
        llama_cpp.llama_sampler_free(handle)


def theirs(
    row: LogitRow,
    history: Sequence[int],
    params: SamplingParams,
    order: Sequence[str] = tuple(STAGES),
) -> Values:
    """What llama.cpp keeps: token -> logit after temperature."""
    cells = np.zeros(len(row), CELL)
    cells["id"] = np.arange(len(row))
    cells["logit"] = row
    data = cells.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
    array = llama_cpp.llama_token_data_array(data, len(row), -1, False)
    with chain(params, len(row), order) as handle:
        for token in history:
            llama_cpp.llama_sampler_accept(handle, token)
        llama_cpp.llama_sampler_apply(handle, ctypes.pointer(array))
        left = [array.data[i] for i in range(array.size)]
        return {int(cell.id): float(cell.logit) for cell in left}


# --- comparison -------------------------------------------------------------------------------


def edge_distances(row: LogitRow, history: Sequence[int], params: SamplingParams) -> Values:
    """How near each token comes to a cut, in logits or mass, anywhere in the chain."""
    values = slow_adjusted(row, history, params)
    nearest = dict.fromkeys(values, 1.0)

    def note(distances: Values) -> None:
        for token, distance in distances.items():
            nearest[token] = min(nearest[token], abs(distance))

    if 0 < params.top_k < len(values):
        edge = values[by_logit(values)[params.top_k - 1]]
        note({token: value - edge for token, value in values.items()})
        values = only(values, slow_top_k(values, params.top_k))
    if params.typical_p < 1.0:
        distance, kept = surprises(values), slow_typical_p(values, params.typical_p)
        order = sorted(values, key=lambda token: (distance[token], token))
        before = mass_before(order, probabilities(values))
        note({token: mass - params.typical_p for token, mass in before.items()})
        last = max(distance[token] for token in kept)
        note({token: distance[token] - last for token in values if distance[token] != last})
        values = only(values, kept)
    if params.top_p < 1.0:
        before = mass_before(by_logit(values), probabilities(values))
        note({token: mass - params.top_p for token, mass in before.items()})
        values = only(values, slow_top_p(values, params.top_p))
    if params.min_p > 0.0:
        edge = max(values.values()) + float(np.log(params.min_p))
        note({token: value - edge for token, value in values.items()})
    return nearest


@dataclass
class Tally:
    """What comparing many rows came to."""

    rows: int = 0
    excused: int = 0
    wrong: int = 0
    cut: int = 0  # rows in which something was truncated

    def compare(self, row: LogitRow, history: Sequence[int], params: SamplingParams) -> None:
        found = Sampler(params).candidates(row, history)
        ours = dict(zip(found.tokens.tolist(), (found.logits / params.temperature), strict=True))
        other = theirs(row, history, params)
        self.rows += 1
        self.cut += len(ours) < len(row)
        differ = ours.keys() ^ other.keys()
        if differ:
            nearest = edge_distances(row, history, params)
            excused = all(nearest[token] < EDGE for token in differ)
            self.excused += excused
            self.wrong += not excused
        both = sorted(ours.keys() & other.keys())
        assert [ours[t] for t in both] == pytest.approx(
            [other[t] for t in both], rel=3e-6, abs=1e-5
        )


def random_row(generator: np.random.Generator, size: int) -> LogitRow:
    scale = float(generator.choice([0.3, 1.0, 3.0, 8.0]))
    return generator.normal(0.0, scale, size).astype(np.float32)


ONE_AT_A_TIME: dict[str, list[dict[str, Any]]] = {
    "top_k": [{"top_k": k} for k in (1, 2, 7, 40, 49, 50, 51, 9000)],
    "typical_p": [{"typical_p": p} for p in (0.0, 0.1, 0.5, 0.9, 0.99)],
    "top_p": [{"top_p": p} for p in (0.0, 0.01, 0.3, 0.5, 0.9, 0.99)],
    "min_p": [{"min_p": p} for p in (0.001, 0.05, 0.3, 1.0)],
    "penalties": [
        {"penalty_last_n": 64, "repeat_penalty": 1.3},
        {"penalty_last_n": 3, "repeat_penalty": 0.7},
        {"penalty_last_n": 64, "presence_penalty": 0.6, "frequency_penalty": -0.4},
        {"penalty_last_n": 7, "presence_penalty": -0.2, "frequency_penalty": 0.3, "top_k": 5},
        {"penalty_last_n": 0, "repeat_penalty": 1.3, "top_k": 5},
    ],
    "bias": [{"logit_bias": {0: 4.0, 3: -2.5, 10_000: 9.0}, "min_p": 0.1}],
    "temperature": [{"temperature": heat} for heat in (0.01, 0.7, 50.0)],
}


@pytest.mark.parametrize("name", ONE_AT_A_TIME)
@pytest.mark.parametrize("size", [50, 5000])
def test_each_sampler_alone(name: str, size: int) -> None:
    """Catches an edge on the wrong side, the window or formula of the penalties, and p = 0,
    where llama.cpp keeps one token."""
    generator = np.random.default_rng(size)
    tally = Tally()
    for changes in ONE_AT_A_TIME[name]:
        for _ in range(12 if size == 50 else 3):
            row = random_row(generator, size)
            history = generator.integers(0, min(size, 60) - 10, 40).tolist()
            tally.compare(row, history, replace(OFF, **changes))
    assert tally.wrong == 0
    assert tally.excused <= max(1, 0.02 * tally.rows)
    # penalties, bias and temperature alone cut nothing
    assert name in ("penalties", "bias", "temperature") or tally.cut > tally.rows / 2


@pytest.mark.parametrize(("size", "rows"), [(50, 1000), (5000, 150)])
def test_all_samplers_at_once(size: int, rows: int) -> None:
    """Catches another order of the samplers, and one that sees the wrong stage's logits."""
    generator = np.random.default_rng(1000 + size)
    tally = Tally()
    for _ in range(rows):
        row = random_row(generator, size)
        history = generator.integers(0, size, 40).tolist()
        tally.compare(row, history, random_params(generator, size))
    assert tally.wrong == 0
    assert tally.excused <= 0.02 * rows
    assert tally.cut == rows


def test_some_samplers_at_once() -> None:
    """Catches a sampler that is skipped, or is not, depending on the others."""
    generator = np.random.default_rng(7)
    fields = ("top_k", "typical_p", "top_p", "min_p", "repeat_penalty", "logit_bias")
    tally = Tally()
    for mask in range(2 ** len(fields)):
        every = random_params(generator, 50)
        on = {name: getattr(every, name) for i, name in enumerate(fields) if mask >> i & 1}
        for _ in range(4):
            row = random_row(generator, 50)
            history = generator.integers(0, 50, 40).tolist()
            tally.compare(row, history, replace(OFF, penalty_last_n=20, **on))
    assert tally.wrong == 0
    assert tally.excused <= 0.02 * tally.rows


@pytest.mark.parametrize(
    "swapped", [("top_k", "typical"), ("typical", "top_p"), ("top_p", "min_p")]
)
def test_the_comparison_notices_another_order(swapped: tuple[str, str]) -> None:
    """Guards the guard: with two of llama.cpp's samplers exchanged, the candidates differ."""
    order = list(STAGES)
    first, second = (order.index(name) for name in swapped)
    order[first], order[second] = order[second], order[first]
    generator = np.random.default_rng(3)
    differ = 0
    for _ in range(100):
        row = random_row(generator, 50)
        params = replace(random_params(generator, 50), logit_bias={})
        differ += theirs(row, [], params).keys() != theirs(row, [], params, order).keys()
    assert differ >= 5


def test_equal_logits_at_the_edge_of_top_k_are_kept_in_equal_number() -> None:
    """Which of several equal tokens llama.cpp keeps is up to its sort; how many is not."""
    row = np.array([1.0, 2.0, 2.0, 2.0, 0.5], np.float32)
    for k in range(1, 7):
        params = replace(OFF, top_k=k)
        ours = Sampler(params).candidates(row, [])
        assert sorted(theirs(row, [], params).values()) == sorted(ours.logits.tolist())


def test_a_forbidden_token_is_the_same_as_one_of_no_weight() -> None:
    """llama.cpp keeps tokens of logit -inf in its array; ours are gone. Nobody can draw them."""
    row = np.array([1.0, -np.inf, 2.0, 0.0], np.float32)
    params = replace(OFF, logit_bias={3: -np.inf})
    left = theirs(row, [], params)
    ours = Sampler(params).candidates(row, [])
    assert {token for token, value in left.items() if value > -np.inf} == set(ours.tokens.tolist())
    assert from_row(row).keys() - {3} == set(ours.tokens.tolist())
