"""Run local language models faster, with the same output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgespec.errors import (
    BackendError,
    BenchError,
    CannotRewindError,
    CatalogError,
    ContextFullError,
    DecodeAbortedError,
    DownloadError,
    EdgespecError,
    EngineClosedError,
    IncompatibleDraftError,
    ModelLoadError,
    NoRoomError,
    OptionError,
    TemplateError,
    UnknownModelError,
)
from edgespec.types import (
    Chunk,
    Completion,
    Draft,
    Piece,
    SamplingParams,
    Stats,
    Step,
    TokenLogprob,
    Usage,
)

if TYPE_CHECKING:
    from edgespec.engine import Engine
    from edgespec.loading import load

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BenchError",
    "CannotRewindError",
    "CatalogError",
    "Chunk",
    "Completion",
    "ContextFullError",
    "DecodeAbortedError",
    "DownloadError",
    "Draft",
    "EdgespecError",
    "Engine",
    "EngineClosedError",
    "IncompatibleDraftError",
    "ModelLoadError",
    "NoRoomError",
    "OptionError",
    "Piece",
    "SamplingParams",
    "Stats",
    "Step",
    "TemplateError",
    "TokenLogprob",
    "UnknownModelError",
    "Usage",
    "load",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # Late, so that `import edgespec` does not load llama.cpp.
    if name == "Engine":
        from edgespec.engine import Engine

        return Engine
    if name == "load":
        from edgespec.loading import load

        return load
    raise AttributeError(f"module 'edgespec' has no attribute {name!r}")
