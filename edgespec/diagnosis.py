"""What `edgespec doctor` finds: versions, build, devices, memory, models, speed."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from edgespec.catalog import paths
from edgespec.catalog.download import installed
from edgespec.catalog.graphics import Graphics, graphics
from edgespec.catalog.hardware import computer, moment
from edgespec.catalog.registry import load_registry, user_file
from edgespec.errors import EdgespecError
from edgespec.llama import library

Level = Literal["ok", "warning", "problem"]

_PACKAGES = ("edgespec", "llama-cpp-python", "numpy")
# What speeds decoding up on a CPU, as llama.cpp names it.
_INSTRUCTIONS = ("AVX512", "AVX2", "AVX", "NEON", "DOTPROD", "MATMUL_INT8", "SVE")
_LITTLE_MEMORY = 2 * 10**9
_SPEED_TOKENS = 64
_PROMPT = "Write a short function that returns the n-th Fibonacci number, and explain it."

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. advice: what to do about it, "" when nothing is wrong."""

    section: str
    name: str
    value: str
    level: Level = "ok"
    advice: str = ""


def diagnose(*, speed: bool, report: Progress) -> Iterator[Finding]:
    """Everything, one after the other; the speed check last, since it takes a while."""
    yield from _versions()
    yield from _machine()
    yield from _build(graphics())
    yield from _files()
    yield from _default_pair()
    if speed:
        yield from _speed(report)


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "Python", platform.python_version())
    for name in _PACKAGES:
        try:
            yield Finding("versions", name, version(name))
        except PackageNotFoundError:
            yield Finding("versions", name, "not installed", "problem", f"pip install {name}")


def _machine() -> Iterator[Finding]:
    machine, now = computer(), moment()
    yield Finding("machine", "system", machine.os + (", in a container" * machine.container))
    yield Finding("machine", "processor", machine.cpu)
    yield Finding(
        "machine",
        "cores",
        f"{machine.physical_cores} physical, {machine.logical_cores} logical: "
        f"{machine.physical_cores} threads are used",
    )
    free, total = now.ram_available_bytes, machine.ram_bytes
    memory = f"{free / 1e9:.1f} GB free of {total / 1e9:.1f} GB"
    if free < _LITTLE_MEMORY:
        advice = "Close other programs: models are read from disk again and again otherwise."
        yield Finding("machine", "memory", memory, "warning", advice)
    else:
        yield Finding("machine", "memory", memory)
    if machine.governor == "powersave":
        advice = "On mains power, the performance governor makes decoding steadier."
        yield Finding("machine", "frequency governor", machine.governor, "warning", advice)
    if now.on_battery:
        advice = "Plug it in: most laptops are slower on battery."
        yield Finding("machine", "power", "battery", "warning", advice)
    if now.load_average is not None and now.load_average > machine.physical_cores / 2:
        load = f"a load of {now.load_average:.1f} on {machine.physical_cores} cores"
        yield Finding("machine", "busy", load, "warning", "Other programs make it slower.")


def _build(present: tuple[Graphics, ...]) -> Iterator[Finding]:
    info = library.system_info()
    flags = [name for name in _INSTRUCTIONS if f"{name} = 1" in info]
    if flags:
        yield Finding("llama.cpp", "instructions", " ".join(flags))
    else:
        advice = "Reinstall llama-cpp-python from source: this build is for any processor."
        yield Finding("llama.cpp", "instructions", "none known", "warning", advice)
    if not library.repacking_is_safe():
        value = "built in, not used: some compilers break them"
        yield Finding("llama.cpp", "AMX kernels", value)
    for device in library.devices():
        memory = f", {device.free / 1e9:.1f} GB free of {device.total / 1e9:.1f} GB"
        value = device.description + (memory if device.total else "")
        yield Finding("llama.cpp", f"device {device.name}", value)
    yield _gpu(present)


def _gpu(present: tuple[Graphics, ...]) -> Finding:
    devices = [device for device in library.devices() if device.kind in ("gpu", "igpu")]
    if devices:
        return Finding("llama.cpp", "GPU", "used: " + ", ".join(d.description for d in devices))
    if not present:
        return Finding("llama.cpp", "GPU", "none found; everything runs on the processor")
    if library.supports_gpu():
        return Finding(
            "llama.cpp",
            "GPU",
            f"{present[0].vendor}, and this build could use one, but llama.cpp sees none",
            "problem",
            "Update its driver; docs/gpu.md lists the usual reasons.",
        )
    return Finding(
        "llama.cpp",
        "GPU",
        f"{present[0].vendor}, but this llama.cpp is built for the processor only",
        "problem",
        f"Reinstall it: {present[0].reinstall(library.version())}",
    )


def _files() -> Iterator[Finding]:
    for name, folder in (
        ("models", paths.models_dir()),
        ("cache", paths.cache_dir()),
        ("log and state", paths.state_dir()),
    ):
        yield Finding("files", name, f"{folder} ({_size_below(folder) / 1e6:.0f} MB)")
    exists = "" if user_file().exists() else " (not there: nothing of your own yet)"
    yield Finding("files", "your models.toml", f"{user_file()}{exists}")


def _default_pair() -> Iterator[Finding]:
    try:
        registry = load_registry()
        pair = registry.pair("default")
        names = [name for name in (pair.target, pair.draft) if name]
        missing = [name for name in names if installed(registry.model(name)) is None]
    except EdgespecError as error:
        yield Finding("default pair", "models.toml", "cannot be used", "problem", str(error))
        return
    value = " with ".join(names)
    if missing:
        value += f" (not on this machine: {', '.join(missing)})"
        yield Finding("default pair", "models", value, "warning", "edgespec models pull default")
    else:
        yield Finding("default pair", "models", value)


def _speed(report: Progress) -> Iterator[Finding]:
    """Plain decoding and the usual drafts, on the default pair if it is here."""
    from edgespec.loading import load

    try:
        with load(report=report) as engine:
            rates = []
            for k in (0, "auto", "auto", 0):  # mirrored, in case the machine gets slower
                done = engine.generate(
                    messages=[{"role": "user", "content": _PROMPT}],
                    max_tokens=_SPEED_TOKENS,
                    num_draft_tokens=k,
                    temperature=0.0,
                )
                rates.append(done.stats.tokens_per_second or 0.0)
    except EdgespecError as error:
        yield Finding("speed", "check", "not possible", "warning", str(error))
        return
    plain, auto = (rates[0] + rates[3]) / 2, (rates[1] + rates[2]) / 2
    value = f"plain {plain:.1f} tokens/s, with drafts {auto:.1f} tokens/s"
    yield Finding("speed", "default pair", value)


def _size_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
