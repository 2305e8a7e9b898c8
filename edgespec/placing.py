"""What of a pair goes where, on the devices of this machine, before anything is loaded."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from edgespec.catalog.fitting import Fit, Room, Wish, fit
from edgespec.catalog.hardware import ram_available
from edgespec.catalog.memory import model_header
from edgespec.errors import CatalogError, ModelLoadError
from edgespec.llama import library


@dataclass(frozen=True, slots=True)
class Placement:
    """n_ctx, gpu_layers (None: all there are), draft, quantized_cache: how to load. notes: what was
    cut, and why."""

    n_ctx: int
    gpu_layers: int | None
    draft: bool
    quantized_cache: bool = False
    notes: tuple[str, ...] = ()


def room() -> Room:
    """The memory that is free now."""
    gpus = [device for device in library.devices() if device.kind in ("gpu", "igpu")]
    return Room(
        ram=ram_available(),
        gpus=tuple(device.free for device in gpus if device.free),
        shared=_on_apple_silicon() or all(device.kind == "igpu" for device in gpus),
    )


def _on_apple_silicon() -> bool:
    """Where GPU and processor have one memory."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def has_gpu() -> bool:
    """Whether llama.cpp will use one."""
    return library.supports_gpu() and any(device.kind != "cpu" for device in library.devices())


def place(
    target: Path, draft: Path | None, wish: Wish, *, force: bool, free: Room | None = None
) -> Placement:
    """Decide how to load. Raises ModelLoadError when it will not fit, unless `force`d.

    A file that cannot be read is left to llama.cpp to judge.
    """
    free = room() if free is None else free
    try:
        header = model_header(target)
        beside = model_header(draft) if draft is not None else None
    except CatalogError:
        return Placement(wish.n_ctx, wish.gpu_layers, draft is not None, wish.kv_type == "q8_0")
    if not wish.n_ctx_fixed:
        wish = replace(wish, n_ctx=min(wish.n_ctx, header.number("context_length", wish.n_ctx)))
    found = fit(header, beside, free, wish)
    if not found.fits:
        if not force:
            raise ModelLoadError(_does_not_fit(target, found, free, wish))
        return Placement(
            wish.n_ctx,
            wish.gpu_layers,
            draft is not None,
            wish.kv_type == "q8_0",
            (f"Loaded by --force: {_numbers(target, found, free)}.",),
        )
    return Placement(
        found.n_ctx,
        found.gpu_layers,
        found.draft,
        found.quantized_cache,
        tuple(_what_was_cut(target, draft, found, free, wish)),
    )


def _what_was_cut(
    target: Path, draft: Path | None, found: Fit, free: Room, wish: Wish
) -> list[str]:
    notes = []
    if draft is not None and not found.draft:
        notes.append(
            f"The draft model {draft.name} is left out: beside {target.name} there is no memory "
            f"for it ({_free(free)})."
        )
    if found.quantized_cache and wish.kv_type == "auto":
        notes.append(
            f"The KV cache is kept in Q8_0, to fit into memory ({_free(free)}): it rounds a little "
            "more; --kv-type f16 insists."
        )
    if found.n_ctx < wish.n_ctx:
        notes.append(
            f"The context is {found.n_ctx} tokens instead of {wish.n_ctx}, to fit into memory "
            f"({_free(free)}); --ctx asks for more."
        )
    if free.gpus and found.gpu_layers is not None and wish.gpu_layers is None:
        notes.append(
            f"{found.gpu_layers} layers of {target.name} are on the GPU, the others do not fit "
            f"({_free(free)}): the rest runs on the CPU, which is slower."
        )
    return notes


def _does_not_fit(target: Path, found: Fit, free: Room, wish: Wish) -> str:
    ways = ["close other programs", "take a smaller model or quantization"]
    if wish.n_ctx_fixed:
        ways.insert(1, "ask for a shorter --ctx")
    return f"{_numbers(target, found, free)}: {', '.join(ways)}, or load it anyway with --force."


def _numbers(target: Path, found: Fit, free: Room) -> str:
    needed = _gigabytes(found.ram)
    if found.vram:
        needed += f" of memory and {_gigabytes(found.vram)} of GPU memory"
    else:
        needed += " of memory"
    return f"{target.name} needs {needed} with a context of {found.n_ctx} tokens, {_free(free)}"


def _free(free: Room) -> str:
    text = f"{_gigabytes(free.ram)} are free"
    return text + (f", on GPUs {_gigabytes(sum(free.gpus))}" if free.gpus else "")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size < 10e9 else f"{size / 1e9:.1f} GB"
