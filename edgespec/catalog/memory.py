"""How much memory models will take, told from their files, and what fits into what is free.

Checked against llama.cpp's own accounts of its buffers (`benchmarks.memory`): the weights are the
tensors of the file, the KV cache is exact, and the scratch space of a pass is what one layer of
`rows` tokens needs at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgespec.catalog.gguf_header import Header, read_header
from edgespec.errors import CatalogError

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_USUAL_CONTEXT = 4096
_CELLS = 256  # llama.cpp rounds the KV cache up to a multiple of this
_FLOAT, _HALF, _Q8_0 = 4, 2, 34 / 32  # bytes of a value


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes of one model. scratch: what a pass works with."""

    weights: int
    cache: int
    scratch: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.scratch


@dataclass(frozen=True, slots=True)
class Shape:
    """How a context is opened. cells: tokens of all sequences together. rows: tokens of the widest
    pass. outputs: rows that may want logits at once. quantized_cache: Q8_0 instead of 16 bits."""

    cells: int
    rows: int = 512
    outputs: int = 33
    quantized_cache: bool = False


def model_header(path: Path) -> Header:
    """The header of a model with the tensors of all its parts, if it is split.

    Raises DamagedFileError, or CatalogError when a file cannot be read or a part is missing.
    """
    header = read_header(path)
    match = _PART.fullmatch(path.name)
    if match is None:
        return header
    others = [read_header(part) for part in _parts(path, match) if part != path]
    return replace(
        header,
        size=header.size + sum(other.size for other in others),
        tensors=(*header.tensors, *(tensor for other in others for tensor in other.tensors)),
    )


def _parts(path: Path, match: re.Match[str]) -> list[Path]:
    return [
        path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf")
        for number in range(1, int(match[3]) + 1)
    ]


def need(header: Header, shape: Shape) -> Need:
    """What one model takes, wherever it lies. The header must have been read whole."""
    weights = sum(tensor.size for tensor in header.tensors)
    return Need(weights, _cache(header, shape), _scratch(header, shape))


def memory_of(path: Path, cells: int = _USUAL_CONTEXT) -> int | None:
    """Bytes a model takes with a context of the usual length; None where its file cannot tell."""
    try:
        return need(model_header(path), Shape(cells)).total
    except CatalogError:
        return None


def layer_sizes(header: Header, shape: Shape) -> list[int]:
    """Bytes of each layer, its part of the cache included, as they may move to a GPU."""
    layers = max(header.number("block_count"), 1)
    sizes = _cache_by_layer(header, shape, layers)
    for tensor in header.tensors:
        part = tensor.name.split(".")
        if part[0] == "blk" and len(part) > 1 and part[1].isdigit() and int(part[1]) < layers:
            sizes[int(part[1])] += tensor.size
    return sizes


def _cache(header: Header, shape: Shape) -> int:
    return sum(_cache_by_layer(header, shape, max(header.number("block_count"), 1)))


def _cache_by_layer(header: Header, shape: Shape, layers: int) -> list[int]:
    cells = -(-shape.cells // _CELLS) * _CELLS
    heads = _per_layer(header, "attention.head_count", layers)
    kv_heads = _per_layer(header, "attention.head_count_kv", layers, heads)
    width = header.number("embedding_length")
    usual = width // heads[0] if heads[0] else 0
    value = _Q8_0 if shape.quantized_cache else _HALF
    latent = header.number("attention.kv_lora_rank")
    if latent:  # DeepSeek's attention keeps one compressed row for all heads
        row = latent + header.number("rope.dimension_count")
        return [int(cells * row * value)] * layers
    both = header.number("attention.key_length", usual)
    both += header.number("attention.value_length", usual)
    every = header.number("full_attention_interval", 1)
    return [
        int(cells * kv_heads[i] * both * value) if (i + 1) % max(every, 1) == 0 else _state(header)
        for i in range(layers)
    ]


def _state(header: Header) -> int:
    """The recurrent state of a layer of a hybrid model, which has the same size at any length."""
    inner = header.number("ssm.inner_size")
    return inner * (header.number("ssm.state_size") + header.number("ssm.conv_kernel")) * _FLOAT


def _scratch(header: Header, shape: Shape) -> int:
    width = header.number("embedding_length")
    layers = max(header.number("block_count"), 1)
    heads = max(_per_layer(header, "attention.head_count", layers))
    queries = heads * header.number("attention.key_length", width // heads if heads else 0)
    hidden = max(_per_layer(header, "feed_forward_length", layers))
    experts = header.number("expert_used_count")
    if experts:
        hidden = experts * header.number("expert_feed_forward_length", hidden)
    layer = shape.rows * _FLOAT * max(4 * width + 3 * hidden, 2 * width + 4 * queries)
    logits = shape.outputs * _vocabulary(header) * _FLOAT
    masks = 2 if header.number("attention.sliding_window") else 1
    mask = masks * shape.cells * shape.rows * _HALF
    # The logits are copied out of the pass.
    return mask + max(layer, logits + 2 * width * shape.rows * _FLOAT) + logits


def _vocabulary(header: Header) -> int:
    shapes = [tensor.shape for tensor in header.tensors if tensor.name == "token_embd.weight"]
    return shapes[0][-1] if shapes and shapes[0] else header.number("vocab_size")


def _per_layer(
    header: Header, key: str, layers: int, usual: Sequence[int] | None = None
) -> list[int]:
    """A number that may differ from layer to layer."""
    value = header.of_architecture(key)
    if isinstance(value, list) and len(value) >= layers:
        return [one if isinstance(one, int) else 0 for one in value[:layers]]
    if isinstance(value, int):
        return [value] * layers
    return list(usual) if usual else [0] * layers
