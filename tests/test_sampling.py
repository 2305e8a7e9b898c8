"""The sampler chain against slow references that sort everything and add one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from edgespec.decoding.noise import gumbel
from edgespec.decoding.sampling import (
    Candidates,
    LogitRow,
    Sampler,
    min_p,
    top_k,
    top_p,
    typical_p,
)
from edgespec.errors import BackendError, OptionError
from edgespec.types import SamplingParams

Values = dict[int, float]
"""Candidates of the references: token -> logit."""

PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)

# Two ways of adding the same probabilities may differ by this much.
ROUNDING = 1e-9


# --- the references ---------------------------------------------------------------------------


def probabilities(values: Values) -> Values:
    largest = max(values.values())
    weights = {token: math.exp(value - largest) for token, value in values.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def by_logit(values: Values) -> list[int]:
    return sorted(values, key=lambda token: (-values[token], token))


def surprises(values: Values) -> Values:
    """How far each token's surprise is from the entropy."""
    shares = probabilities(values)
    entropy = math.fsum(-share * math.log(share) for share in shares.values() if share > 0)
    return {
        token: abs(-math.log(share) - entropy) if share > 0 else math.inf
        for token, share in shares.items()
    }


def mass_before(order: Sequence[int], shares: Values) -> Values:
    """For each token, the mass of those that come before it."""
    mass, result = 0.0, {}
    for token in order:
        result[token] = mass
        mass += shares[token]
    return result


def slow_top_k(values: Values, k: int) -> set[int]:
    return set(by_logit(values)[: k or None])


def slow_top_p(values: Values, p: float) -> set[int]:
    """The shortest head of the sorted tokens that holds p; one token at least."""
    before = mass_before(by_logit(values), probabilities(values))
    return {token for token, mass in before.items() if mass < p or mass == 0.0}


def slow_typical_p(values: Values, p: float) -> set[int]:
    """As top-p but nearest to the entropy first, and until the mass is *more* than p."""
    distance = surprises(values)
    order = sorted(values, key=lambda token: (distance[token], token))
    before = mass_before(order, probabilities(values))
    return {token for token, mass in before.items() if mass <= p}


def slow_min_p(values: Values, p: float) -> set[int]:
    shares = probabilities(values)
    least = p * max(shares.values())
    return {token for token, share in shares.items() if share >= least}


def slow_adjusted(row: LogitRow, history: Sequence[int], params: SamplingParams) -> Values:
    """Logit bias and penalties, token by token."""
    values = {token: float(value) for token, value in enumerate(row)}
    for token, bias in params.logit_bias.items():
        if token in values:
            values[token] += bias
    last = list(history)[max(0, len(history) - params.penalty_last_n) :]
    for token in set(last):
        value = values[token]
        divides = value > 0
        value = value / params.repeat_penalty if divides else value * params.repeat_penalty
        value -= last.count(token) * params.frequency_penalty + params.presence_penalty
        values[token] = value
    return {token: value for token, value in values.items() if value > -math.inf}


def slow_chain(row: LogitRow, history: Sequence[int], params: SamplingParams) -> Values:
    """What is left after the whole chain in llama.cpp's order; logits before temperature."""
    values = slow_adjusted(row, history, params)
    values = only(values, slow_top_k(values, params.top_k))
    if params.typical_p < 1.0:
        values = only(values, slow_typical_p(values, params.typical_p))
    if params.top_p < 1.0:
        values = only(values, slow_top_p(values, params.top_p))
    return only(values, slow_min_p(values, params.min_p))


def only(values: Values, tokens: set[int]) -> Values:
    return {token: values[token] for token in tokens}


def slow_law(row: LogitRow, history: Sequence[int], params: SamplingParams) -> Values:
    """The exact probabilities of the next token."""
    values = slow_chain(row, history, params)
    return probabilities({token: value / params.temperature for token, value in values.items()})


# --- rows -------------------------------------------------------------------------------------


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32)


def lists(elements: st.SearchStrategy[float], longest: int = 20) -> st.SearchStrategy[list[float]]:
    return st.lists(elements, min_size=1, max_size=longest)


ROWS = st.one_of(
    lists(floats(-30, 30)),
    lists(st.integers(-3, 3).map(float)),  # ties
    lists(st.sampled_from([-math.inf, -math.inf, 0.0, 1.0, 2.5, 20.0])),
    st.integers(1, 40).map(lambda size: [0.5] * size),  # flat
    lists(floats(-(2.0**17), 2.0**17)),
).map(lambda values: np.array(values, np.float32))


def long_row(seed: int) -> LogitRow:
    """More than 1024 tokens, where top-p sorts only a head; flat to sharp, with ties."""
    generator = np.random.default_rng(seed)
    row = generator.normal(0.0, [0.01, 1.0, 4.0][seed % 3], int(generator.integers(1025, 2500)))
    return row.round(2 if seed % 2 else 8).astype(np.float32)


def from_row(row: LogitRow) -> Values:
    return {token: float(value) for token, value in enumerate(row) if value > -math.inf}


def everything(row: LogitRow) -> Candidates:
    tokens = np.flatnonzero(row > -np.inf)
    return Candidates(tokens, row[tokens].astype(np.float64))


def kept(found: Candidates, row: LogitRow) -> set[int]:
    """The tokens, after checking what every sampler must leave intact."""
    tokens = found.tokens.tolist()
    assert tokens, "nothing survived"
    assert tokens == sorted(set(tokens)), "not by ascending id"
    assert found.logits.tolist() == [float(row[token]) for token in tokens]
    return set(tokens)


PROBABILITY = st.one_of(st.floats(0.0, 0.999), st.sampled_from([0.0, 1e-12, 0.25, 0.5, 0.999]))


# --- truncation -------------------------------------------------------------------------------


@given(ROWS, st.integers(0, 45))
@settings(max_examples=200, deadline=None)
@example(np.array([1.0, 1.0, 1.0, 1.0], np.float32), 2)
@example(np.array([-math.inf, 3.0], np.float32), 5)
@example(np.array([5.0, -7.1, -7.0, -60.0, -200.0], np.float32), 4)
def test_top_k_is_the_head_of_the_sorted_row(row: LogitRow, k: int) -> None:
    """Catches a wrong edge with ties, a reach that stops too early, and lost or kept -inf."""
    assume(np.isfinite(row.max()))
    assert kept(top_k(row, k), row) == slow_top_k(from_row(row), k)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 50])
def test_top_k_of_huge_logits_loses_only_tokens_that_cannot_be_drawn(k: int) -> None:
    """Catches overflow. A million below the best is e**-10000 even at temperature 100, which no
    noise makes up for, so such a token may be left out before k is reached."""
    row = np.array([-3e38, 3e38, 2.9e38, -1.0, 3e38, 0.0], np.float32)
    found = kept(top_k(row, k), row)
    assert found <= slow_top_k(from_row(row), k)
    assert found >= slow_top_k({1: 3e38, 4: 3e38}, k)
    assert Sampler(replace(PLAIN, temperature=100.0, top_k=k)).sample(row, [3]) in (1, 4)


@given(ROWS, PROBABILITY)
@settings(max_examples=200, deadline=None)
@example(np.array([0.0, 0.0, 0.0, 0.0], np.float32), 0.5)
@example(np.array([0.0, 1e-45], np.float32), 0.0)  # equally probable, but not equal
def test_top_p_is_the_shortest_head_with_the_mass(row: LogitRow, p: float) -> None:
    """Catches one token too few or too many, and the wrong tokens of a tie."""
    assume(np.isfinite(row.max()))
    check_top_p(row, p)


@pytest.mark.parametrize("seed", range(6))
def test_top_p_of_a_long_row(seed: int) -> None:
    """Catches a head that was sorted too short."""
    for p in (0.0, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, 1 - 2**-53):
        check_top_p(long_row(seed), p)


def check_top_p(row: LogitRow, p: float) -> None:
    found = kept(top_p(everything(row), p), row)
    values = from_row(row)
    assert slow_top_p(values, p - ROUNDING) <= found <= slow_top_p(values, p + ROUNDING)


@given(ROWS, PROBABILITY)
@settings(max_examples=200, deadline=None)
@example(np.array([0.0, -3000.0, -1.0], np.float32), 0.9)
def test_typical_p_takes_the_nearest_to_the_entropy(row: LogitRow, p: float) -> None:
    """Catches a wrong entropy (0 log 0 for impossible tokens), a wrong order or edge."""
    assume(np.isfinite(row.max()))
    values = from_row(row)
    distances = sorted((distance, values[t]) for t, distance in surprises(values).items())
    for (one, first), (two, second) in pairwise(distances):
        # Different logits on either side of the entropy, equally far: rounding decides.
        assume(first == second or two == math.inf or two - one > ROUNDING)
    check_typical_p(row, p)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_typical_p_of_a_long_row(seed: int) -> None:
    """Catches what only shows on many tokens; no two of these are equally typical."""
    for p in (0.0, 0.2, 0.7, 0.99):
        check_typical_p(long_row(seed), p)


def check_typical_p(row: LogitRow, p: float) -> None:
    found = kept(typical_p(everything(row), p), row)
    values = from_row(row)
    assert slow_typical_p(values, max(0.0, p - ROUNDING)) <= found
    assert found <= slow_typical_p(values, p + ROUNDING)


def test_the_edge_itself_differs_between_top_p_and_typical_p() -> None:
    """Catches >= for >: with four equal tokens and p = 1/2, llama.cpp's top-p stops with the
    second token, whose mass reaches p, and typical-p with the third, whose mass exceeds it."""
    found = everything(np.zeros(4, np.float32))
    assert top_p(found, 0.5).tokens.tolist() == [0, 1]
    assert typical_p(found, 0.5).tokens.tolist() == [0, 1, 2]


@given(ROWS, st.one_of(st.floats(1e-6, 1.0), st.just(1.0)))
@settings(max_examples=150, deadline=None)
def test_min_p_is_relative_to_the_best(row: LogitRow, p: float) -> None:
    """Catches a threshold on absolute probability, or on the wrong side of the edge."""
    assume(np.isfinite(row.max()))
    found = kept(min_p(everything(row), p), row)
    values = from_row(row)
    assert slow_min_p(values, p * (1 + ROUNDING)) <= found <= slow_min_p(values, p * (1 - ROUNDING))


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"top_p": 0.0}, [2]),
        ({"typical_p": 0.0}, [2]),
        ({"min_p": 1.0}, [2, 4]),
        ({"top_k": 1}, [2]),
        ({"top_k": 2}, [2, 4]),
        ({"top_k": 99}, [0, 1, 2, 4]),
        ({"min_p": 0.0}, [0, 1, 2, 4]),
        ({"top_p": 1.0, "typical_p": 1.0}, [0, 1, 2, 4]),
    ],
)
def test_the_ends_of_the_ranges(changes: dict[str, Any], left: list[int]) -> None:
    """Catches an empty candidate set at p = 0 (llama.cpp always keeps one token; see
    test_llama_samplers.py), log(0) in min-p, and a sampler that cuts although it is off."""
    row = np.array([0.5, 1.5, 2.0, -np.inf, 2.0], np.float32)
    found = Sampler(replace(PLAIN, **changes)).candidates(row, [0])
    assert found.tokens.tolist() == left


@pytest.mark.parametrize("size", [40, 1500])
def test_the_chain_in_order(size: int) -> None:
    """Catches samplers in another order, or one that sees probabilities of an earlier stage."""
    generator = np.random.default_rng(size)
    strict = 0
    for _ in range(30):
        row = generator.normal(0, generator.choice([1.0, 3.0]), size).astype(np.float32)
        history = generator.integers(0, size, 30).tolist()
        params = random_params(generator, size)
        found = Sampler(params).candidates(row, history)
        values = slow_chain(row, history, params)
        # The reference does not round to float32 on the way.
        assert set(found.tokens.tolist()) == set(values)
        assert found.logits == pytest.approx([values[t] for t in sorted(values)], rel=1e-5)
        strict += len(values) < len(slow_chain(row, history, replace(params, typical_p=1.0)))
    assert strict > 5  # typical-p must matter, or its place in the order is not tested


def random_params(generator: np.random.Generator, size: int) -> SamplingParams:
    """Every sampler at work at once."""
    return SamplingParams(
        temperature=float(generator.uniform(0.2, 2.0)),
        top_k=int(generator.integers(size // 4, size)),
        typical_p=float(generator.uniform(0.3, 0.99)),
        top_p=float(generator.uniform(0.3, 0.99)),
        min_p=float(generator.uniform(0.001, 0.2)),
        repeat_penalty=float(generator.uniform(0.8, 1.6)),
        presence_penalty=float(generator.uniform(-0.5, 0.8)),
        frequency_penalty=float(generator.uniform(-0.3, 0.5)),
        penalty_last_n=int(generator.integers(1, 25)),
        logit_bias={int(token): float(generator.normal()) for token in range(0, size, 7)},
        seed=5,
    )


# --- adjustments ------------------------------------------------------------------------------


@given(
    values=st.lists(st.one_of(floats(-30, 30), st.just(-math.inf)), min_size=4, max_size=12),
    history=st.lists(st.integers(0, 3), max_size=20),
    last=st.integers(0, 25),
    repeat=st.floats(0.5, 2.0),
    presence=st.floats(-2.0, 2.0),
    frequency=st.floats(-2.0, 2.0),
)
@settings(max_examples=150, deadline=None)
def test_penalties_token_by_token(
    values: list[float],
    history: list[int],
    last: int,
    repeat: float,
    presence: float,
    frequency: float,
) -> None:
    """Catches a window off by one (0 means off, not everything), counting a token once too
    often, and multiplying where llama.cpp divides."""
    row = np.array([*values, 0.0], np.float32)
    params = replace(
        PLAIN,
        penalty_last_n=last,
        repeat_penalty=repeat,
        presence_penalty=presence,
        frequency_penalty=frequency,
    )
    found = Sampler(params).candidates(row, history)
    wanted = slow_adjusted(row, history, params)
    assert found.tokens.tolist() == sorted(wanted)
    assert found.logits == pytest.approx([wanted[t] for t in sorted(wanted)], rel=1e-5, abs=1e-4)


def test_bias_moves_forbids_and_ignores_tokens_beyond_the_vocabulary() -> None:
    """Catches an IndexError for a bias on a token of the draft model's larger (or smaller)
    vocabulary, and a bias applied after truncation."""
    row = np.array([1.0, 2.0, 3.0], np.float32)
    bias = {0: 5.0, 2: -math.inf, 3: 9.0, 10**9: 9.0}
    found = Sampler(replace(PLAIN, logit_bias=bias)).candidates(row, [])
    assert found.tokens.tolist() == [0, 1]
    assert found.logits.tolist() == [6.0, 2.0]
    for params in (
        replace(PLAIN, logit_bias=bias, top_k=1),
        replace(PLAIN, logit_bias=bias, temperature=0.0),
    ):
        assert Sampler(params).sample(row, []) == 0


def test_neither_the_models_row_nor_the_history_is_touched() -> None:
    """Catches a penalty written into the model's own memory: the next row would be wrong."""
    row = np.array([1.0, 2.0, 3.0, -np.inf], np.float32)
    before, history = row.copy(), [2, 2, 1]
    params = replace(PLAIN, repeat_penalty=1.5, logit_bias={0: 2.0}, temperature=0.5)
    for one in (params, replace(params, temperature=0.0), replace(PLAIN, temperature=0.3)):
        Sampler(one).sample(row, history)
    assert row.tolist() == before.tolist()
    assert history == [2, 2, 1]


# --- choosing ---------------------------------------------------------------------------------


@given(ROWS, st.integers(0, 2**64 - 1), st.floats(0.05, 5.0))
@settings(max_examples=200, deadline=None)
def test_it_is_gumbel_max_at_the_absolute_position(row: LogitRow, seed: int, heat: float) -> None:
    """Catches noise keyed by anything but seed, length of the history and token id, and noise
    added before the temperature."""
    assume(np.isfinite(row.max()))
    history = [0] * (seed % 50)
    found = everything(row)
    scores = found.logits / heat + gumbel(seed, len(history), found.tokens)
    wanted = int(found.tokens[int(scores.argmax())])
    assert Sampler(replace(PLAIN, seed=seed, temperature=heat)).sample(row, history) == wanted


@given(ROWS, st.lists(st.integers(0, 0), max_size=3))
@settings(max_examples=100, deadline=None)
def test_greedy_takes_the_best_and_of_equals_the_lowest_id(
    row: LogitRow, history: list[int]
) -> None:
    """Catches ties broken by accident: plain and speculative passes could differ."""
    assume(np.isfinite(row.max()))
    wanted = by_logit(from_row(row))[0]
    greedy = SamplingParams(temperature=0.0, top_k=3, top_p=0.0)
    assert Sampler(greedy).sample(row, history) == wanted
    assert Sampler(replace(PLAIN, top_k=1)).sample(row, history) == wanted


def test_greedy_heeds_bias_and_penalties() -> None:
    """Catches a greedy path that skips the adjustments."""
    row = np.array([1.0, 3.0, 2.9], np.float32)
    greedy = SamplingParams(temperature=0.0)
    assert Sampler(greedy).sample(row, [1]) == 1
    assert Sampler(replace(greedy, repeat_penalty=1.1)).sample(row, [1]) == 2
    assert Sampler(replace(greedy, logit_bias={0: 2.5})).sample(row, [1]) == 0


@pytest.mark.parametrize("damage", [math.nan, math.inf, "all"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("k", [0, 2])
def test_a_damaged_row_is_an_error(damage: float | str, temperature: float, k: int) -> None:
    """Catches garbage text from a broken file or backend: a NaN must never be sampled."""
    for at in (0, 2, 3):
        row = np.array([1.0, 2.0, 3.0, -1.0], np.float32)
        if damage == "all":
            row[:] = -np.inf
        else:
            row[at] = damage
        params = replace(PLAIN, temperature=temperature, top_k=k)
        with pytest.raises(BackendError, match="best logit is"):
            Sampler(params).sample(row, [0])


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    """Catches inf - inf at 1e-6, the smallest temperature anyone asks for."""
    generator = np.random.default_rng(0)
    for scale in (1.0, 1e4, 1e30):
        for length in range(50):
            row = (generator.permutation(20) * scale).astype(np.float32)
            cold = replace(PLAIN, temperature=1e-6)
            assert Sampler(cold).sample(row, [0] * length) == int(row.argmax())


@pytest.mark.parametrize("temperature", [0.3, 1.0, 100.0])
def test_draws_follow_the_law(temperature: float) -> None:
    """Catches a temperature applied twice, or to the noise. False alarm: 1e-7 for each."""
    row = np.array([0.0, 0.3, 1.0, 0.9, -0.5, 0.2, 0.1, 0.6], np.float32)
    sampler = Sampler(replace(PLAIN, temperature=temperature))
    counts = np.bincount([sampler.sample(row, range(n)) for n in range(5_000)], minlength=8)
    law = slow_law(row, [], sampler.params)
    expected = 5_000 * np.array([law[token] for token in range(8)])
    assert float(((counts - expected) ** 2 / expected).sum()) < 45.0  # 7 degrees of freedom


# --- parameters -------------------------------------------------------------------------------

RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "penalty_last_n": (0, math.inf),
    "seed": (0, 2**64 - 1),
}


@pytest.mark.parametrize("name", RANGES)
def test_every_field_has_a_range(name: str) -> None:
    """Catches a field without a check (a NaN passes a naive one), and bounds off by one."""
    low, high = RANGES[name]
    step = 1 if name in ("top_k", "penalty_last_n", "seed") else 1e-3
    bad: list[Any] = [low - step, math.nan, -math.inf] + [high + step] * math.isfinite(high)
    for value in bad:
        with pytest.raises(OptionError, match=f"^{name} must be"):
            SamplingParams(**{name: value})
    good: list[Any] = [low, high if math.isfinite(high) else 10**9]
    for value in good:
        assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize("bias", [{-1: 0.5}, {3: math.nan}])
def test_a_useless_bias_is_refused(bias: dict[int, float]) -> None:
    """Catches a negative id, which numpy would take from the end of the row."""
    with pytest.raises(OptionError, match="logit_bias"):
        SamplingParams(logit_bias=bias)


@pytest.mark.parametrize("bias", [float("inf"), 1e39, float("nan")])
def test_a_bias_that_leaves_nothing_to_compare_is_refused(bias: float) -> None:
    with pytest.raises(OptionError, match="logit_bias"):
        SamplingParams(logit_bias={1: bias})


@pytest.mark.parametrize("temperature", [1e-310, 1e-7])
def test_a_temperature_that_would_overflow_is_refused(temperature: float) -> None:
    with pytest.raises(OptionError, match="temperature"):
        SamplingParams(temperature=temperature)
