"""What a run was made with, as lines of Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from edgespec.bench.records import Conditions, Machine, ModelFile, Result, Settings
from edgespec.bench.report.markup import size, text


def setup(result: Result) -> list[str]:
    """Command, machine, models and settings."""
    finished = "finished" if result.finished else f"stopped early by {result.stopped_by}"
    return [
        f"run: {text(shlex.join(result.command))}, {text(result.created)}, {finished}",
        f"machine: {_machine(result.machine)}",
        f"versions: {_versions(result.machine)}",
        f"llama.cpp: {text(result.machine.llama_cpp_system_info)}",
        f"conditions: {_conditions(result.conditions_start)} at the start; "
        f"{_conditions(result.conditions_end)} at the end",
        f"target: {_model(result.target)}",
        f"draft model: {_model(result.draft) if result.draft else 'none'}",
        f"settings: {', '.join(_settings(result.settings))}",
    ]


def _machine(machine: Machine) -> str:
    parts = [
        text(machine.cpu),
        f"{machine.physical_cores} cores ({machine.logical_cores} logical)",
        f"{size(machine.ram_bytes)} RAM",
        f"devices {', '.join(map(text, machine.devices)) or 'none'}",
        text(machine.os),
    ]
    if machine.governor:
        parts.append(f"governor {text(machine.governor)}")
    if machine.container:
        parts.append("in a container")
    return ", ".join(parts)


def _versions(machine: Machine) -> str:
    return ", ".join(
        f"{what} {text(version)}"
        for what, version in (
            ("edgespec", machine.edgespec),
            ("llama-cpp-python", machine.llama_cpp_python),
            ("Python", machine.python),
            ("numpy", machine.numpy),
        )
    )


def _conditions(found: Conditions) -> str:
    parts = []
    if found.temperature_c is not None:
        parts.append(f"{found.temperature_c:.0f} C")
    if found.frequency_mhz is not None:
        parts.append(f"{found.frequency_mhz:.0f} MHz")
    if found.load_average is not None:
        parts.append(f"load {found.load_average:.1f}")
    if found.on_battery is not None:
        parts.append("on battery" if found.on_battery else "on mains")
    parts.append(f"{size(found.ram_available_bytes)} RAM available")
    if found.swap_used_bytes:
        parts.append(f"{size(found.swap_used_bytes)} swapped")
    return ", ".join(parts)


def _model(file: ModelFile) -> str:
    return (
        f"{text(file.name)}, {text(file.description)}, {size(file.size_bytes)}, "
        f"{file.parameters / 1e6:.0f} M parameters, trained on {file.n_ctx_train} tokens, "
        f"vocabulary {file.vocabulary}, sha256 {text(file.sha256[:12])}"
    )


def _settings(settings: Settings) -> Iterator[str]:
    yield f"suite {text(settings.suite)} of {settings.prompts} prompts"
    yield f"sha256 {text(settings.suite_sha256[:12])}"
    yield f"modes {' '.join(map(text, settings.modes))}"
    yield f"repetitions {settings.repetitions}"
    yield f"max_tokens {settings.max_tokens}"
    yield f"temperature {settings.temperature:g}"
    yield f"seed {settings.seed}"
    yield f"n_ctx {settings.n_ctx}"
    yield f"threads {settings.threads}"
    yield f"gpu_layers {'default' if settings.gpu_layers is None else settings.gpu_layers}"
    yield f"exact {text(settings.exact)}"
    if settings.exact_widths is not None:
        yield f"exact widths {' '.join(map(str, settings.exact_widths)) or 'none'}"
    yield f"repacked {'yes' if settings.repacked else 'no'}"
    yield f"KV cache {text(settings.kv_cache)}"
    yield f"cooldown {settings.cooldown_s:g} s"
    for what, chosen, unit in (
        ("budget", settings.budget_s, " s"),
        ("precision", settings.precision, ""),
        ("power", settings.watts, " W"),
        ("price per kWh", settings.price_kwh, ""),
        ("hardware price", settings.hardware_price, ""),
        ("hardware years", settings.hardware_years, ""),
    ):
        if chosen is not None:
            yield f"{what} {chosen:g}{unit}"
