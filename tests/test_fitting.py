"""What goes where, on machines with little memory: every cut, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.catalog.fitting import PROCESS, SMALLEST_CONTEXT, Room, Wish, fit
from edgespec.catalog.gguf_header import Header, Tensor
from edgespec.catalog.memory import Shape, layer_sizes, need

MB = 2**20
LAYERS = 10


def model(layer_mb: int, rest_mb: int = 0, heads: int = 8) -> Header:
    """Ten layers of so many MB, and embeddings."""
    tensors = [Tensor(f"blk.{i}.ffn_up.weight", (1, 1), 0, layer_mb * MB) for i in range(LAYERS)]
    tensors.append(Tensor("token_embd.weight", (64, 1000), 0, rest_mb * MB))
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.embedding_length": 64 * heads,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": heads,
        "llama.feed_forward_length": 64,
    }
    return Header(Path("model.gguf"), 0, metadata, tuple(tensors))


TARGET, DRAFT = model(100, 50), model(20, 10)
WISH = Wish(n_ctx=4096)


def needed(header: Header, n_ctx: int) -> int:
    return need(header, Shape(n_ctx)).total


def ram_for(*headers: Header, n_ctx: int = 4096) -> Room:
    """A little more than these take."""
    return Room(ram=int((PROCESS + sum(needed(one, n_ctx) for one in headers)) / 0.97) + MB)


def test_what_has_room_is_left_alone() -> None:
    found = fit(TARGET, DRAFT, ram_for(TARGET, DRAFT), WISH)
    assert (found.n_ctx, found.draft, found.fits, found.gpu_layers) == (4096, True, True, None)
    assert found.ram == PROCESS + needed(TARGET, 4096) + needed(DRAFT, 4096)


def test_the_draft_model_goes_before_the_context_is_cut() -> None:
    found = fit(TARGET, DRAFT, ram_for(TARGET), WISH)
    assert (found.n_ctx, found.draft, found.fits) == (4096, False, True)


def small(n_ctx: int) -> Room:
    """A little more than the target takes with a quantized cache."""
    total = need(TARGET, Shape(n_ctx, quantized_cache=True)).total
    return Room(ram=int((PROCESS + total) / 0.97) + MB)


def test_then_the_cache_is_quantized() -> None:
    found = fit(TARGET, DRAFT, small(4096), WISH)
    assert (found.n_ctx, found.draft, found.quantized_cache, found.fits) == (
        4096,
        False,
        True,
        True,
    )


@pytest.mark.parametrize("n_ctx", [2048, 1024])
def test_then_the_context_is_cut(n_ctx: int) -> None:
    found = fit(TARGET, DRAFT, small(n_ctx), WISH)
    assert (found.n_ctx, found.draft, found.quantized_cache, found.fits) == (
        n_ctx,
        False,
        True,
        True,
    )


def test_a_cache_that_was_asked_for_stays_so() -> None:
    found = fit(TARGET, DRAFT, ram_for(TARGET, n_ctx=2048), Wish(n_ctx=4096, kv_type="f16"))
    assert (found.n_ctx, found.quantized_cache, found.fits) == (2048, False, True)
    found = fit(TARGET, DRAFT, Room(ram=2**50), Wish(n_ctx=4096, kv_type="q8_0"))
    assert (found.quantized_cache, found.draft) == (True, True)


def test_a_context_that_was_asked_for_is_never_cut() -> None:
    wish = Wish(n_ctx=4096, n_ctx_fixed=True)
    found = fit(TARGET, DRAFT, small(2048), wish)
    assert (found.n_ctx, found.fits) == (4096, False)


def test_what_fits_nowhere_says_how_much_the_least_takes() -> None:
    found = fit(TARGET, DRAFT, Room(ram=100 * MB), WISH)
    assert not found.fits
    assert (found.n_ctx, found.draft) == (SMALLEST_CONTEXT, False)
    least = need(TARGET, Shape(SMALLEST_CONTEXT, quantized_cache=True)).total
    assert found.ram == PROCESS + least


# With a GPU.

RAM = 16 * 1024 * MB


def gpu(megabytes: int, count: int = 1) -> Room:
    """So many MB that can be used, on each of `count` GPUs."""
    return Room(ram=RAM, gpus=(int((megabytes + 300) * MB / 0.92) + 2,) * count)


def whole(*headers: Header) -> int:
    return sum(needed(one, 4096) for one in headers) // MB + 1


def test_everything_goes_onto_a_gpu_with_room() -> None:
    found = fit(TARGET, DRAFT, gpu(whole(TARGET, DRAFT)), WISH)
    assert (found.gpu_layers, found.draft, found.fits) == (None, True, True)
    assert found.vram == needed(TARGET, 4096) + needed(DRAFT, 4096)


def test_on_a_small_gpu_lie_as_many_layers_as_fit() -> None:
    one = layer_sizes(TARGET, Shape(4096))[0]
    scratch = need(TARGET, Shape(4096)).scratch
    found = fit(TARGET, None, gpu((3 * one + scratch) // MB + 1), WISH)
    assert (found.gpu_layers, found.fits) == (3, True)
    assert found.vram == 3 * one + scratch
    assert found.ram == PROCESS + needed(TARGET, 4096) - 3 * one


def test_two_gpus_count_together() -> None:
    found = fit(TARGET, None, gpu(whole(TARGET) // 2 + 1, count=2), WISH)
    assert (found.gpu_layers, found.fits) == (None, True)


def test_a_gpu_without_room_for_one_layer_is_not_used() -> None:
    found = fit(TARGET, None, gpu(0), WISH)
    assert (found.gpu_layers, found.vram, found.fits) == (0, 0, True)


def test_layers_that_were_asked_for_must_fit() -> None:
    assert not fit(TARGET, None, gpu(300), Wish(n_ctx=4096, gpu_layers=9)).fits
    assert fit(TARGET, None, gpu(whole(TARGET)), Wish(n_ctx=4096, gpu_layers=9999)).fits
    found = fit(TARGET, None, gpu(300), Wish(n_ctx=4096, gpu_layers=0))
    assert (found.gpu_layers, found.vram, found.fits) == (0, 0, True)


def test_a_gpu_that_shares_the_memory_takes_it_once() -> None:
    room = gpu(whole(TARGET))
    shared = Room(ram=(PROCESS + needed(TARGET, 4096)) // 2, gpus=room.gpus, shared=True)
    assert not fit(TARGET, None, shared, Wish(n_ctx=4096, n_ctx_fixed=True)).fits
