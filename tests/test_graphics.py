"""Which graphics processors are found, and how llama.cpp is to be built for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.catalog import graphics as module
from edgespec.catalog.graphics import Graphics, graphics


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_nvidia_driver", lambda: False)
    monkeypatch.setattr("sys.platform", "linux")


def with_files(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert graphics(tmp_path) == ()


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("dev/nvidia0", "GGML_CUDA"),
        ("proc/driver/nvidia/version", "GGML_CUDA"),
        ("dev/kfd", "GGML_HIP"),
        ("dev/dri/renderD128", "GGML_VULKAN"),
    ],
)
def test_each_kind_has_its_own_build(tmp_path: Path, name: str, flag: str) -> None:
    assert [one.flag for one in graphics(with_files(tmp_path, name))] == [flag]


def test_a_display_of_the_same_card_is_not_another_one(tmp_path: Path) -> None:
    found = graphics(with_files(tmp_path, "dev/nvidia0", "dev/dri/renderD128"))
    assert [one.vendor for one in found] == ["NVIDIA"]


def test_apple_silicon_has_metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert [one.flag for one in graphics(tmp_path)] == ["GGML_METAL"]


@pytest.mark.parametrize(
    ("system", "start"),
    [
        ("Linux", 'CMAKE_ARGS="-DGGML_CUDA=on" pip install'),
        ("Windows", '$env:CMAKE_ARGS="-DGGML_CUDA=on"; pip install'),
    ],
)
def test_the_command_is_for_the_shell_of_the_system(system: str, start: str) -> None:
    command = Graphics("NVIDIA", "GGML_CUDA").reinstall("0.3.36", system)
    assert command.startswith(start)
    assert command.endswith("llama-cpp-python==0.3.36")
    assert "--no-cache-dir" in command  # pip would take the wheel it built without the GPU
