"""The shared noise: a pure function, standard Gumbel, and unrelated between neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from edgespec.decoding import noise
from edgespec.decoding.noise import gumbel

Floats = NDArray[np.float64]

EULER = 0.5772156649015329
LARGEST_SEED = 2**64 - 1


def uniform(values: Floats) -> Floats:
    """The uniform numbers behind Gumbel values; correlations show better in them."""
    return np.exp(-np.exp(-values))


def along_tokens(count: int) -> Floats:
    return gumbel(3, 17, np.arange(count))


def along_positions(count: int) -> Floats:
    token = np.array([5])
    return np.concatenate([gumbel(3, position, token) for position in range(count)])


def along_seeds(count: int) -> Floats:
    token = np.array([5])
    return np.concatenate([gumbel(seed, 17, token) for seed in range(count)])


def test_every_token_has_its_own_value_whoever_else_is_asked_for() -> None:
    """Catches noise drawn in the order of the candidates: the draft model and the target keep
    different candidates, and would no longer share their noise."""
    tokens = np.array([7, 0, 31_999, 12, 7, 151_642])
    before = tokens.copy()
    together = gumbel(42, 9, tokens)
    assert together.shape == (6,)
    assert together.dtype == np.float64
    assert [float(gumbel(42, 9, tokens[i : i + 1])[0]) for i in range(6)] == together.tolist()
    assert gumbel(42, 9, tokens[::-1]).tolist() == together[::-1].tolist()
    assert gumbel(42, 9, tokens).tolist() == together.tolist()
    assert (tokens == before).all()
    assert gumbel(42, 9, tokens[:0]).shape == (0,)


def test_golden_values() -> None:
    """Catches any change of the hash: every user's seeds would give other answers."""
    tokens = np.array([0, 1, 2, 151_642])
    golden = {
        (0, 0): [-0.6807578025137786, 3.5293597414235305, -0.24743454082693486, 0.7103727398474676],
        (7, 1): [0.19104720604608377, -0.6173984679626888, -0.87882003248628, 1.322947816110761],
        (LARGEST_SEED, 4095): [
            -0.3421576214303438,
            -0.6748546420000527,
            -0.2664515909947503,
            0.5717182061009928,
        ],
    }
    for (seed, position), values in golden.items():
        assert gumbel(seed, position, tokens) == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize("along", [along_tokens, along_positions, along_seeds])
def test_it_is_standard_gumbel_along_every_axis(along: Callable[[int], Floats]) -> None:
    """Catches a wrong formula or a hash that is not uniform along tokens, positions or seeds.

    False alarm: 1e-6 for each axis (Kolmogorov-Smirnov), 6e-7 for each moment.
    """
    count = 20_000
    values = along(count)
    steps = np.arange(count + 1) / count
    cdf = np.sort(uniform(values))
    distance = max(float((steps[1:] - cdf).max()), float((cdf - steps[:-1]).max()))
    assert distance * math.sqrt(count) < 2.7
    deviation = math.pi / math.sqrt(6)
    assert abs(values.mean() - EULER) < 5 * deviation / math.sqrt(count)
    # Excess kurtosis 12/5, so the variance of the sample variance is (2 + 2.4) sigma^4 / n.
    assert abs(values.var() / deviation**2 - 1) < 5 * math.sqrt(4.4 / count)


def test_neighbours_are_unrelated() -> None:
    """Catches keys that are added or xored without mixing (seed 2 at position 3 would share its
    noise with seed 3 at position 2), and overlapping token sequences.

    False alarm: 6e-7 for each of the 13 directions.
    """
    tokens = np.arange(100)
    cube = np.array([[uniform(gumbel(s, p, tokens)) for p in range(40)] for s in range(100, 140)])
    cube = (cube - 0.5) * math.sqrt(12)
    directions = [
        (s, p, t) for s in (0, 1) for p in (-1, 0, 1) for t in (-1, 0, 1) if (s, p, t) > (0, 0, 0)
    ]
    assert len(directions) == 13
    for direction in directions:
        first = cube[tuple(slice(max(0, -d), -d if d > 0 else None) for d in direction)]
        second = cube[tuple(slice(max(0, d), d if d < 0 else None) for d in direction)]
        correlation = float((first * second).mean())
        assert abs(correlation) < 5 / math.sqrt(first.size), direction


@pytest.mark.parametrize("argument", ["seed", "position"])
def test_every_bit_of_seed_and_position_counts(argument: str) -> None:
    """Catches a key cut to 32 bits, or a weak mix of high bits. False alarm: 4e-5 in all."""
    tokens = np.arange(2_000)

    def values(number: int) -> Floats:
        return uniform(
            gumbel(number, 3, tokens) if argument == "seed" else gumbel(3, number, tokens)
        )

    base = values(0) - 0.5
    for bit in range(64):
        correlation = 12 * float((base * (values(1 << bit) - 0.5)).mean())
        assert abs(correlation) < 5 / math.sqrt(len(tokens)), bit


def test_seed_and_position_are_not_exchangeable() -> None:
    """Catches a symmetric key."""
    tokens = np.arange(50)
    for seed, position in pairwise(range(20)):
        assert not np.isin(gumbel(seed, position, tokens), gumbel(position, seed, tokens)).any()


@pytest.mark.parametrize("seed", [0, 1, 2**63, LARGEST_SEED])
@pytest.mark.parametrize("position", [0, 1, 2**20, 2**40])
def test_large_arguments_are_finite_and_do_not_warn(seed: int, position: int) -> None:
    """Catches integer overflow that numpy reports (warnings are errors here)."""
    values = gumbel(seed, position, np.array([0, 1, 2**18, 2**31 - 1]))
    assert np.isfinite(values).all()
    assert len(set(values.tolist())) == 4


@pytest.mark.parametrize(("bits", "expected"), [(0, -3.6038), (LARGEST_SEED, 36.7368)])
def test_the_rarest_hashes_are_finite(
    bits: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches log(0): with 64 bits rounded to a double, 2**64 - 1 would become 1.0."""
    monkeypatch.setattr(noise, "_mix_array", lambda value: np.full_like(value, bits))
    assert gumbel(1, 1, np.array([4]))[0] == pytest.approx(expected, abs=1e-3)
