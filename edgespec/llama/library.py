"""llama.cpp as a process-wide library: start it, catch what it prints, ask for devices."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

# Before libgomp is loaded: by default its threads spin for milliseconds at every barrier, and two
# processes on the same cores then stall each other (measured on 2 cores: 0.3 tokens/s each,
# 25 with this, and no difference for one process alone).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import llama_cpp

from edgespec.errors import BackendError

log = logging.getLogger("edgespec.llama")
# Whoever uses edgespec as a library decides what is shown. Without any handler, Python itself
# would print the warnings on stderr.
logging.getLogger("edgespec").addHandler(logging.NullHandler())

TESTED_BINDINGS = ("0.3.36",)

# ggml.h: enum ggml_log_level
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUED = 5

# The outermost messages only repeat that something failed; the reason came before them.
_REPEATED = re.compile(
    r"failed to load model( from .*)?$|failed to read (header|key-value pairs)$"
    r"|failed to decode, ret = -?\d+$"
)

# ggml-backend.h: enum ggml_backend_dev_type
_KINDS: dict[int, Literal["cpu", "gpu", "igpu", "accelerator"]] = {
    0: "cpu",
    1: "gpu",
    2: "igpu",
    3: "accelerator",
}


class _LogCatcher:
    """Puts llama.cpp's messages into Python's log and remembers the last complaints."""

    def __init__(self) -> None:
        self._line = ""
        self._level = logging.INFO
        self.complaints: deque[str] = deque(maxlen=20)

    def __call__(self, level: int, text: bytes, _data: Any) -> None:
        if level != _CONTINUED:
            self._level = _LEVELS.get(level, logging.INFO)
        self._line += text.decode("utf-8", errors="replace")
        while "\n" in self._line:
            line, self._line = self._line.split("\n", 1)
            self._take(line)

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        log.log(self._level, "%s", line)
        if self._level >= logging.WARNING:
            self.complaints.append(line.strip())


_catcher = _LogCatcher()
# llama.cpp keeps the pointer: the callback must live as long as the process.
_log_callback = llama_cpp.llama_log_callback(_catcher)


@functools.cache
def start() -> None:
    """Start llama.cpp once per process; nothing of it reaches the terminal from then on.

    Raises BackendError when the installed binding is not one edgespec was tested with.
    """
    llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))
    if llama_cpp.__version__ not in TESTED_BINDINGS:
        raise BackendError(
            f"llama-cpp-python {llama_cpp.__version__} is installed, but its low-level interface "
            f"was tested only for {', '.join(TESTED_BINDINGS)}: "
            f"pip install llama-cpp-python=={TESTED_BINDINGS[-1]}"
        )
    llama_cpp.llama_backend_init()


def forget_complaints() -> None:
    """Call before an operation whose failure `last_complaint` shall explain."""
    _catcher.complaints.clear()


def last_complaint() -> str:
    """The reason llama.cpp last gave, without its function's name; "" if it gave none."""
    complaints = [line.split(": ", 1)[-1] for line in reversed(_catcher.complaints)]
    telling = [line for line in complaints if not _REPEATED.search(line)]
    # Of those that repeat, the first came from closest to the fault.
    reason = telling[0] if telling else complaints[-1] if complaints else ""
    return reason.removeprefix("error loading model: ")


@dataclass(frozen=True, slots=True)
class Device:
    """A compute device as llama.cpp sees it; memory in bytes, 0 when unknown."""

    name: str
    description: str
    kind: Literal["cpu", "gpu", "igpu", "accelerator"]
    free: int
    total: int


def devices() -> tuple[Device, ...]:
    """Every device of this build. A build without GPU support lists the CPU only."""
    start()
    ggml = _ggml()
    return tuple(_device(ggml, index) for index in range(ggml.ggml_backend_dev_count()))


def supports_gpu() -> bool:
    """Whether this build of llama.cpp can use any GPU."""
    start()
    return bool(llama_cpp.llama_supports_gpu_offload())


def version() -> str:
    """The version of the binding, which pins that of llama.cpp."""
    return str(llama_cpp.__version__)


def system_info() -> str:
    """The instruction sets and options this build uses."""
    start()
    return str(llama_cpp.llama_print_system_info().decode("utf-8", errors="replace")).strip()


def repacking_is_safe() -> bool:
    """False for builds with Intel AMX kernels, which rearranged weights would use.

    GCC before 13 drops most of the stores to the tile configuration (its `_tile_loadconfig`
    declares only the first 8 bytes as read), so those kernels die of an illegal instruction.
    The compiler cannot be asked afterwards, and a crash cannot be caught.
    """
    return "AMX_INT8 = 1" not in system_info()


@functools.cache
def _ggml() -> ctypes.CDLL:
    # The ggml_backend_* functions are not in the binding.
    from llama_cpp import _ggml as binding

    library: ctypes.CDLL = binding.libggml
    pointer = ctypes.c_void_p
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    library.ggml_backend_dev_get.restype = pointer
    for name in ("name", "description"):
        function = getattr(library, f"ggml_backend_dev_{name}")
        function.argtypes, function.restype = [pointer], ctypes.c_char_p
    library.ggml_backend_dev_type.argtypes = [pointer]
    library.ggml_backend_dev_type.restype = ctypes.c_int
    library.ggml_backend_dev_memory.argtypes = [pointer] + [ctypes.POINTER(ctypes.c_size_t)] * 2
    library.ggml_backend_dev_memory.restype = None
    return library


def _device(ggml: ctypes.CDLL, index: int) -> Device:
    handle = ggml.ggml_backend_dev_get(index)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        name=ggml.ggml_backend_dev_name(handle).decode(errors="replace"),
        description=ggml.ggml_backend_dev_description(handle).decode(errors="replace"),
        kind=_KINDS.get(ggml.ggml_backend_dev_type(handle), "accelerator"),
        free=free.value,
        total=total.value,
    )
