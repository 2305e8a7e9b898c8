"""Estimates of memory, against llama.cpp's own accounts and against files made up for it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from edgespec.catalog.gguf_header import DamagedFileError, Header, Tensor
from edgespec.catalog.memory import Shape, layer_sizes, model_header, need
from edgespec.errors import CatalogError
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from tests.tiny_gguf import write_tiny_gguf

MIB = 2**20


def told(log: pytest.LogCaptureFixture, what: str) -> float:
    """Bytes that llama.cpp says it took."""
    sizes = re.findall(rf"{what} buffer size =\s+([\d.]+) MiB", log.text)
    assert sizes, f"llama.cpp said nothing of {what}"
    return sum(map(float, sizes)) * MIB


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("n_ctx", [256, 1000, 4096])
def test_the_cache_is_what_llama_cpp_says(
    arch: str, n_ctx: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", arch=arch)
    caplog.set_level(logging.INFO, logger="edgespec.llama")
    model = Model(path)
    context = Context(model, n_ctx=n_ctx, threads=1)
    context.close()
    model.close()
    found = need(model_header(path), Shape(n_ctx, rows=min(512, n_ctx)))
    assert found.cache == pytest.approx(told(caplog, "KV"), abs=0.02 * MIB)
    assert found.weights == pytest.approx(path.stat().st_size, rel=0.1)
    assert found.total == found.weights + found.cache + found.scratch


def header(*tensors: Tensor, **numbers: Any) -> Header:
    metadata: dict[str, Any] = {"general.architecture": "x"}
    metadata |= {f"x.{name.replace('__', '.')}": value for name, value in numbers.items()}
    return Header(Path("x.gguf"), 0, metadata, tensors)


SMALL: dict[str, Any] = {"block_count": 2, "embedding_length": 64, "attention__head_count": 4}


@pytest.mark.parametrize(
    ("numbers", "per_cell"),
    [
        ({}, 2 * 4 * 32 * 2),  # as many KV heads as heads, of 64 / 4 channels, K and V
        ({"attention__head_count_kv": 2}, 2 * 2 * 32 * 2),
        ({"attention__head_count_kv": [2, 0]}, 2 * 32 * 2),  # a hybrid model
        ({"attention__key_length": 8, "attention__value_length": 24}, 2 * 4 * 32 * 2),
        ({"attention__kv_lora_rank": 50, "rope__dimension_count": 14}, 2 * 64 * 2),
        ({"full_attention_interval": 2}, 4 * 32 * 2),
    ],
)
def test_the_cache_follows_the_kind_of_attention(numbers: dict[str, Any], per_cell: int) -> None:
    found = need(header(**{**SMALL, **numbers}), Shape(512))
    assert found.cache == 512 * per_cell


def test_cells_come_in_pieces_of_256() -> None:
    one, more = (need(header(**SMALL), Shape(cells)).cache for cells in (256, 257))
    assert more == 2 * one


def test_of_experts_only_those_in_use_take_scratch_space() -> None:
    numbers = {**SMALL, "feed_forward_length": 4096}
    dense = need(header(**numbers), Shape(256)).scratch
    experts = header(**numbers, expert_used_count=2, expert_feed_forward_length=128)
    assert need(experts, Shape(256)).scratch < dense


def test_a_large_vocabulary_counts_twice() -> None:
    """The logits are made in the pass and copied out of it."""
    found = need(
        header(Tensor("token_embd.weight", (64, 250_000), 0, 1), **SMALL), Shape(256, outputs=33)
    )
    assert found.scratch > 2 * 33 * 250_000 * 4


def test_layers_have_their_own_tensors_and_cache() -> None:
    tensors = (
        Tensor("blk.0.ffn_up.weight", (1,), 0, 1000),
        Tensor("blk.1.ffn_up.weight", (1,), 0, 2000),
        Tensor("blk.7.not_there.weight", (1,), 0, 4000),
        Tensor("blk.odd", (1,), 0, 8000),
        Tensor("output.weight", (1,), 0, 16000),
    )
    made = header(*tensors, **SMALL)
    cache = need(made, Shape(256)).cache // 2
    assert layer_sizes(made, Shape(256)) == [1000 + cache, 2000 + cache]


@pytest.mark.parametrize("numbers", [{}, {"block_count": "many"}, {"attention__head_count": []}])
def test_a_file_that_says_nothing_takes_its_weights(numbers: dict[str, Any]) -> None:
    found = need(header(Tensor("a", (1,), 0, 1000), **numbers), Shape(256))
    assert found.weights == 1000
    assert found.cache == 0


def test_a_split_model_counts_all_its_parts(tmp_path: Path) -> None:
    parts = [tmp_path / f"big-0000{i}-of-00002.gguf" for i in (1, 2)]
    for part in parts:
        write_tiny_gguf(part)
    both = need(model_header(parts[0]), Shape(256)).weights
    assert (
        both == 2 * need(model_header(write_tiny_gguf(tmp_path / "one.gguf")), Shape(256)).weights
    )
    parts[1].unlink()
    with pytest.raises(CatalogError, match="big-00002-of-00002"):
        model_header(parts[0])
    parts[1].write_bytes(b"")
    with pytest.raises(DamagedFileError):
        model_header(parts[0])
