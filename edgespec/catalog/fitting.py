"""Decides what of a pair goes where, so that it fits into the memory that is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from edgespec.catalog.gguf_header import Header
from edgespec.catalog.memory import Shape, layer_sizes, need

KvType = Literal["auto", "f16", "q8_0"]
KV_TYPES: tuple[KvType, ...] = ("auto", "f16", "q8_0")

PROCESS = 70 * 2**20
"""Bytes that Python, numpy and llama.cpp take themselves, as measured on Linux."""

SMALLEST_CONTEXT = 1024
# Other programs go on asking for memory, and drivers keep some of a GPU's for themselves.
_RAM_USABLE, _GPU_USABLE = 0.97, 0.92
_GPU_KEPT = 300 * 2**20


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are free. shared: the GPU has no memory of its own."""

    ram: int
    gpus: tuple[int, ...] = ()
    shared: bool = False

    @property
    def vram(self) -> int:
        """Of all GPUs, as far as it can be used."""
        return sum(max(0, int(free * _GPU_USABLE) - _GPU_KEPT) for free in self.gpus)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; None and "auto" leave it to the memory."""

    n_ctx: int
    n_ctx_fixed: bool = False
    rows: int = 512
    gpu_layers: int | None = None
    kv_type: KvType = "auto"


@dataclass(frozen=True, slots=True)
class Fit:
    """n_ctx, gpu_layers (None: all), draft, quantized_cache: how to load. ram, vram: bytes that
    takes."""

    n_ctx: int
    gpu_layers: int | None
    draft: bool
    quantized_cache: bool
    ram: int
    vram: int
    fits: bool


def fit(target: Header, draft: Header | None, room: Room, wish: Wish) -> Fit:
    """The first way of loading that fits, dearest first; if none does, the last one tried.

    The draft model goes before the cache is quantized, and that before the context gets shorter,
    which it only does where its length was not asked for.
    """
    tried = None
    for tried in _ways(target, draft, room, wish):
        if tried.fits:
            return tried
    assert tried is not None, "there is always a first way"
    return tried


def _ways(target: Header, draft: Header | None, room: Room, wish: Wish) -> Iterator[Fit]:
    if draft is not None:
        yield _placed(target, draft, room, wish)
    yield _placed(target, None, room, wish)
    if wish.kv_type == "auto":
        wish = replace(wish, kv_type="q8_0")
        yield _placed(target, None, room, wish)
    while not wish.n_ctx_fixed and wish.n_ctx > SMALLEST_CONTEXT:
        wish = replace(wish, n_ctx=max(SMALLEST_CONTEXT, wish.n_ctx // 2))
        yield _placed(target, None, room, wish)


def _placed(target: Header, draft: Header | None, room: Room, wish: Wish) -> Fit:
    small = wish.kv_type == "q8_0"
    shape = Shape(wish.n_ctx, rows=wish.rows, quantized_cache=small)
    beside = need(draft, shape).total if draft is not None else 0
    whole = need(target, shape)
    usable = int(room.ram * _RAM_USABLE)
    if not room.gpus or wish.gpu_layers == 0:
        ram = PROCESS + whole.total + beside
        fits = ram <= usable
        return Fit(wish.n_ctx, wish.gpu_layers, draft is not None, small, ram, 0, fits)
    layers = layer_sizes(target, shape)
    rest = whole.total - sum(layers) - whole.scratch  # embeddings, and the output's weights
    # The draft model lies on the GPU as a whole; the target's last layers come first.
    left = room.vram - beside - whole.scratch
    sizes = [0, *accumulate([*layers[::-1], rest])]
    most = max(i for i, size in enumerate(sizes) if size <= max(left, 0))
    count = most if wish.gpu_layers is None else min(wish.gpu_layers, len(sizes) - 1)
    vram = sizes[count] + beside + whole.scratch * (count > 0)
    ram = PROCESS + whole.total - sizes[count]
    fits = vram <= room.vram and (ram + vram * room.shared) <= usable
    everything = count == len(sizes) - 1 and wish.gpu_layers is None
    kept = None if everything else count
    return Fit(wish.n_ctx, kept, draft is not None, small, ram, vram, fits)
