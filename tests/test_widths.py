"""The width probe measures what it says, and leaves nothing behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.llama.widths import (
    DEPTH,
    PROBE_TOKENS,
    PROMPT_PIECE,
    WIDTHS,
    WidthProbe,
    probe_widths,
)
from edgespec.protocols import Logits, Row
from tests.tiny_gguf import ARCHITECTURES, write_tiny_gguf


class Twisted(Context):
    """Gives other logits at one width, as some kernels do."""

    width, change = 0, 0.0

    def decode(self, rows: Sequence[Row]) -> Logits:
        logits = super().decode(rows)
        if len(rows) == self.width:
            logits = logits.copy()
            logits[-1, 3] += self.change
        return logits


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("quant", ["F32", "Q8_0"])
def test_every_width_is_measured_and_the_sequence_left_empty(
    arch: str, quant: str, tmp_path: Path
) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", arch=arch, quant=quant))
    context = Context(model, n_ctx=512, threads=1)
    context.decode([Row(0, i, 9, False) for i in range(5)])
    probe = probe_widths(context, model.vocabulary)
    assert context.length(0) == 0
    assert set(probe.differences) == set(WIDTHS)
    assert set(probe.seconds) == {1, PROMPT_PIECE, *WIDTHS}
    assert probe.price == probe.seconds[PROMPT_PIECE] + 128 * probe.seconds[1]
    assert all(seconds > 0 for seconds in probe.seconds.values())
    # However other kernels sum up, a difference beyond this would be an error in positions.
    assert all(0.0 <= difference < 0.2 for difference in probe.differences.values())
    assert 1 in probe.identical
    assert probe.identical <= {1, *WIDTHS}
    context.close()
    model.close()


@pytest.mark.parametrize("width", [2, 5, 16])
@pytest.mark.parametrize(("change", "seen"), [(0.25, 0.25), (math.nan, math.inf)])
def test_a_single_other_logit_is_noticed(
    width: int, change: float, seen: float, tmp_path: Path
) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", quant="Q8_0"))
    context = Twisted(model, n_ctx=512, threads=1)
    honest = probe_widths(context, model.vocabulary)
    context.width, context.change = width, change
    probe = probe_widths(context, model.vocabulary)
    if width in honest.identical:
        assert probe.differences[width] == pytest.approx(seen, rel=0.01)
    assert width not in probe.identical
    context.close()
    model.close()


def test_all_widths_see_the_same_tokens(tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf"))
    seen: dict[tuple[int, int], list[tuple[int, int]]] = {}

    class Watched(Context):
        def decode(self, rows: Sequence[Row]) -> Logits:
            if rows[0].position in (0, DEPTH):
                self.run = seen.setdefault((len(rows), rows[0].position), [])
                self.run.clear()
            self.run += [(row.position, row.token) for row in rows]
            return super().decode(rows)

    context = Watched(model, n_ctx=512, threads=1)
    probe_widths(context, model.vocabulary, widths=(2, 3, 9))
    at_the_start = {width: run for (width, depth), run in seen.items() if depth == 0}
    behind = {width: run for (width, depth), run in seen.items() if depth == DEPTH}
    assert set(behind) == {1, 2, 3, 9}
    assert all(run == behind[1] for run in behind.values())
    assert [position for position, _ in behind[1]] == list(range(DEPTH, DEPTH + PROBE_TOKENS))
    # The prompt has its piece of 256 tokens; a few widths show the start.
    assert set(at_the_start) == {1, 2, 8, PROMPT_PIECE}
    assert [position for position, _ in at_the_start[1]] == list(range(PROBE_TOKENS))
    assert [position for position, _ in at_the_start[PROMPT_PIECE]] == list(range(DEPTH))
    context.close()
    model.close()


@pytest.mark.parametrize(
    ("differences", "identical", "widest"),
    [
        ({}, {1}, 1),
        ({2: 0.0, 3: 0.0, 4: 0.5, 5: 0.0}, {1, 2, 3, 5}, 3),
        ({2: 0.1, 3: 0.0}, {1, 3}, 1),
        ({2: math.inf}, {1}, 1),
        ({2: 0.0, 3: 0.0, 4: 0.0}, {1, 2, 3, 4}, 4),
    ],
)
def test_what_is_read_off_the_differences(
    differences: dict[int, float], identical: set[int], widest: int
) -> None:
    probe = WidthProbe(differences, {1: 1.0})
    assert probe.identical == identical
    assert probe.widest_run == widest


def test_not_a_number_at_every_width_is_not_identical() -> None:
    """A damaged model: nan is not equal to itself, so nothing is promised."""
    assert np.isnan(np.abs(np.array([np.nan]) - np.array([np.nan])).max())
    assert WidthProbe({2: math.nan}, {1: 1.0}).identical == {1}


def test_a_small_context_is_probed_at_its_start_only(tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf"))
    context = Context(model, n_ctx=64, threads=1)
    probe = probe_widths(context, model.vocabulary)
    assert set(probe.differences) == set(WIDTHS)
    assert probe.seconds[PROMPT_PIECE] > 0
    assert context.length(0) == 0
    context.close()
    model.close()


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_from_512_cells_on_only_a_mixed_cache_is_identical_on_the_cpu(
    arch: str, tmp_path: Path
) -> None:
    """llama.cpp splits the attention of one token among threads there; found by the benchmark."""
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", arch=arch, quant="Q8_0"))
    found = {}
    for mixed in (False, True):
        context = Context(model, n_ctx=512, threads=2, mixed_cache=mixed)
        found[mixed] = probe_widths(context, model.vocabulary, widths=(2, 3, 4))
        context.close()
    model.close()
    assert found[True].identical == {1, 2, 3, 4}
    assert found[False].identical == {1}, "llama.cpp has changed: mixed caches may be needless"


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "tiny.gguf"))
    context = Context(model, n_ctx=512, threads=1)
    told: list[float] = []
    probe_widths(context, model.vocabulary, progress=told.append)
    context.close()
    model.close()
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) > 5
