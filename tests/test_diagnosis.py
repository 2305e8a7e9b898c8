"""`edgespec doctor`: what it sees, what it advises, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec import diagnosis
from edgespec.catalog.graphics import Graphics
from edgespec.catalog.registry import user_file
from edgespec.diagnosis import Finding, diagnose
from edgespec.llama import library
from edgespec.llama.library import Device
from tests.command import run_here
from tests.tiny_gguf import write_tiny_gguf

NVIDIA = Graphics("NVIDIA", "GGML_CUDA")
GPU = Device("CUDA0", "A graphics card", "gpu", 8 * 10**9, 10 * 10**9)


def found(*, speed: bool = False) -> dict[str, Finding]:
    return {one.name: one for one in diagnose(speed=speed, report=lambda what, done: None)}


@pytest.fixture
def graphics(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def have(*present: Graphics, devices: tuple[Device, ...] = (), build: bool = False) -> None:
        monkeypatch.setattr(diagnosis, "graphics", lambda: present)
        monkeypatch.setattr(library, "devices", lambda: devices)
        monkeypatch.setattr(library, "supports_gpu", lambda: build)

    return have


def test_versions_machine_and_files_are_listed() -> None:
    seen = found()
    for name in ("Python", "edgespec", "llama-cpp-python", "processor", "cores", "memory"):
        assert seen[name].value
        assert seen[name].section in ("versions", "machine")
    assert seen["edgespec"].level == "ok"
    assert "MB)" in seen["cache"].value
    assert str(user_file()) in seen["your models.toml"].value


def test_a_gpu_in_use_is_named(graphics: Callable[..., None]) -> None:
    graphics(NVIDIA, devices=(GPU,), build=True)
    seen = found()
    assert seen["GPU"].value == "used: A graphics card"
    assert seen["device CUDA0"].value == "A graphics card, 8.0 GB free of 10.0 GB"


def test_a_build_for_the_processor_on_a_machine_with_a_gpu_is_a_problem(
    graphics: Callable[..., None],
) -> None:
    graphics(NVIDIA)
    gpu = found()["GPU"]
    assert gpu.level == "problem"
    assert "built for the processor only" in gpu.value
    assert "GGML_CUDA=on" in gpu.advice
    assert f"llama-cpp-python=={library.version()}" in gpu.advice


def test_a_build_that_sees_no_gpu_is_a_problem_of_the_driver(graphics: Callable[..., None]) -> None:
    graphics(NVIDIA, build=True)
    gpu = found()["GPU"]
    assert gpu.level == "problem"
    assert "docs/gpu.md" in gpu.advice


def test_without_a_gpu_nothing_is_wrong(graphics: Callable[..., None]) -> None:
    graphics()
    assert found()["GPU"].level == "ok"


def test_a_default_pair_that_is_not_here_is_told_how_to_get() -> None:
    pair = [one for one in _all() if one.section == "default pair"]
    assert pair[0].level == "warning"
    assert pair[0].advice == "edgespec models pull default"


def test_a_damaged_models_toml_is_a_problem_not_a_crash() -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[models", encoding="utf-8")
    pair = [one for one in _all() if one.section == "default pair"]
    assert pair[0].level == "problem"
    assert "not valid TOML" in pair[0].advice


def _all(*, speed: bool = False) -> list[Finding]:
    return list(diagnose(speed=speed, report=lambda what, done: None))


def own_default(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    user_file().parent.mkdir(parents=True)
    user_file().write_text(
        f"[models.tiny]\nsource = 'path:{model}'\n[pairs.default]\ntarget = 'tiny'\n",
        encoding="utf-8",
    )


def test_the_speed_check_times_plain_decoding_and_drafts(tmp_path: Path) -> None:
    own_default(tmp_path)
    speed = _all(speed=True)[-1]
    assert (speed.section, speed.level) == ("speed", "ok")
    assert speed.value.count("tokens/s") == 2


def test_a_speed_check_without_the_model_says_why() -> None:
    speed = _all(speed=True)[-1]
    assert (speed.section, speed.level) == ("speed", "warning")
    assert "models pull" in speed.advice


# The command.


def test_the_command_prints_sections_and_advice(
    capfd: pytest.CaptureFixture[str], graphics: Callable[..., None]
) -> None:
    graphics(NVIDIA)
    shown = run_here(capfd, "doctor", "--no-speed")
    assert shown.code == 1  # something is wrong
    for section in ("versions:", "machine:", "llama.cpp:", "files:", "default pair:"):
        assert section in shown.out.splitlines()
    assert " x GPU: NVIDIA" in shown.out
    assert "   -> Reinstall it: " in shown.out


def test_as_json(capfd: pytest.CaptureFixture[str], graphics: Callable[..., None]) -> None:
    graphics()
    shown = run_here(capfd, "doctor", "--no-speed", "--json")
    assert shown.code == 0
    records = json.loads(shown.out)
    assert {"section", "name", "value", "level", "advice"} == set(records[0])
