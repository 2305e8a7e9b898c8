"""Graphics processors this computer has, told without any driver's library, and how llama.cpp is
built for them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

_NVIDIA_MARKS = ("proc/driver/nvidia/version", "dev/nvidia0", "dev/nvidiactl")
_AMD_MARK = "dev/kfd"
_RENDERERS = "dev/dri"
_PACKAGE = "llama-cpp-python"


@dataclass(frozen=True, slots=True)
class Graphics:
    """vendor: for people. flag: the CMake option that builds llama.cpp for it."""

    vendor: str
    flag: str

    def reinstall(self, version: str, system: str | None = None) -> str:
        """The command that builds this version of the binding for it."""
        install = (
            f"pip install --force-reinstall --no-deps --no-cache-dir --no-binary {_PACKAGE} "
            f"{_PACKAGE}=={version}"
        )
        if (system or platform.system()) == "Windows":
            return f'$env:CMAKE_ARGS="-D{self.flag}=on"; {install}'
        return f'CMAKE_ARGS="-D{self.flag}=on" {install}'


def graphics(root: Path = Path("/")) -> tuple[Graphics, ...]:
    """Those found, the one worth building for first. root: where the system's files are."""
    found = []
    if any((root / mark).exists() for mark in _NVIDIA_MARKS) or _has_nvidia_driver():
        found.append(Graphics("NVIDIA", "GGML_CUDA"))
    if (root / _AMD_MARK).exists():
        found.append(Graphics("AMD", "GGML_HIP"))
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append(Graphics("Apple", "GGML_METAL"))
    if not found and any((root / _RENDERERS).glob("renderD*")):
        found.append(Graphics("integrated or other", "GGML_VULKAN"))
    return tuple(found)


def _has_nvidia_driver() -> bool:
    if sys.platform == "win32":
        library = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "nvcuda.dll"
        return library.exists()
    return shutil.which("nvidia-smi") is not None
