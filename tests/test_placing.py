"""Decisions before loading, and what the user is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.catalog.fitting import PROCESS, Room, Wish
from edgespec.catalog.memory import Shape, model_header, need
from edgespec.errors import ModelLoadError
from edgespec.llama import library
from edgespec.llama.library import Device
from edgespec.placing import place, room
from tests.tiny_gguf import write_tiny_gguf


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "big.gguf", n_ctx_train=8192)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "small.gguf", n_ctx_train=8192)


WISH = Wish(n_ctx=4096)


def ram_for(*paths: Path, n_ctx: int) -> Room:
    total = sum(need(model_header(path), Shape(n_ctx)).total for path in paths)
    return Room(ram=int((PROCESS + total) / 0.97) + 10_000)


def test_with_room_for_all_there_is_nothing_to_say(target: Path, draft: Path) -> None:
    found = place(target, draft, WISH, force=False, free=Room(ram=2**40))
    assert (found.n_ctx, found.gpu_layers, found.draft, found.notes) == (4096, None, True, ())


def test_the_trained_context_is_not_exceeded_without_being_asked(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "short.gguf", n_ctx_train=512)
    assert place(path, None, WISH, force=False, free=Room(ram=2**40)).n_ctx == 512
    wish = Wish(n_ctx=4096, n_ctx_fixed=True)
    assert place(path, None, wish, force=False, free=Room(ram=2**40)).n_ctx == 4096


def test_a_draft_model_without_room_is_left_out_and_named(target: Path, draft: Path) -> None:
    found = place(target, draft, WISH, force=False, free=ram_for(target, n_ctx=4096))
    assert not found.draft
    assert "small.gguf is left out" in found.notes[0]
    assert "0.08 GB are free" in found.notes[0]


def test_a_shorter_context_is_told(target: Path) -> None:
    wish = Wish(n_ctx=4096, kv_type="f16")
    found = place(target, None, wish, force=False, free=ram_for(target, n_ctx=2048))
    assert found.n_ctx == 2048
    assert "2048 tokens instead of 4096" in found.notes[0]


def test_a_quantized_cache_is_told(target: Path) -> None:
    least = need(model_header(target), Shape(4096, quantized_cache=True)).total
    free = Room(ram=int((PROCESS + least) / 0.97) + 1000)
    found = place(target, None, WISH, force=False, free=free)
    assert (found.n_ctx, found.quantized_cache) == (4096, True)
    assert "--kv-type f16 insists" in found.notes[0]


@pytest.mark.parametrize("n_ctx_fixed", [True, False])
def test_what_does_not_fit_is_refused_with_numbers_and_ways_out(
    target: Path, draft: Path, n_ctx_fixed: bool
) -> None:
    wish = Wish(n_ctx=4096, n_ctx_fixed=n_ctx_fixed)
    with pytest.raises(ModelLoadError, match=r"big\.gguf needs 0\.\d+ GB .*0\.01 GB are free"):
        place(target, draft, wish, force=False, free=Room(ram=10_000_000))
    forced = place(target, draft, wish, force=True, free=Room(ram=10_000_000))
    assert (forced.n_ctx, forced.draft) == (4096, True)
    assert "--force" in forced.notes[0]


def test_a_shorter_context_is_advised_only_where_one_was_asked_for(target: Path) -> None:
    for fixed, advised in ((True, True), (False, False)):
        wish = Wish(n_ctx=4096, n_ctx_fixed=fixed)
        with pytest.raises(ModelLoadError) as failed:
            place(target, None, wish, force=False, free=Room(ram=10_000_000))
        assert ("--ctx" in str(failed.value)) == advised
        assert "--force" in str(failed.value)


def test_layers_left_on_the_processor_are_told(target: Path) -> None:
    free = Room(ram=2**40, gpus=(400 * 2**20,))
    wish = Wish(n_ctx=2**20, n_ctx_fixed=True)
    found = place(target, None, wish, force=False, free=free)
    assert found.gpu_layers is not None
    assert "on the GPU, the others do not fit" in found.notes[0]


def test_a_file_that_cannot_be_read_is_left_to_llama_cpp(tmp_path: Path) -> None:
    found = place(tmp_path / "none.gguf", None, WISH, force=False, free=Room(ram=0))
    assert (found.n_ctx, found.notes) == (4096, ())


def test_the_room_of_this_machine_is_known() -> None:
    assert room().ram > 0


@pytest.mark.parametrize(
    ("system", "kinds", "shared"),
    [
        ("linux", ["cpu", "gpu"], False),
        ("linux", ["cpu", "igpu"], True),
        ("darwin", ["cpu", "gpu"], True),
    ],
)
def test_a_gpu_may_share_the_memory(
    system: str, kinds: list[str], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [Device(kind, kind, kind, 10**9, 2 * 10**9) for kind in kinds]  # type: ignore[arg-type]
    monkeypatch.setattr(library, "devices", lambda: tuple(devices))
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert room().gpus == (10**9,)
    assert room().shared is shared
