"""Makes targets and draft models for experiments out of the default model, without a hub.

    python -m benchmarks.pairs [--dir DIR] [NAME ...]

SmolLM2-135M is requantized by llama.cpp; a lower quantization of a model is a draft model for
it with real text and real acceptance, though of course not a cheaper one.
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import llama_cpp

from edgespec.catalog.download import pull
from edgespec.catalog.paths import cache_dir, models_dir
from edgespec.catalog.registry import load_registry
from edgespec.llama import library

# llama.h: enum llama_ftype
FTYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q2_K": 10, "Q4_K_M": 15}


def default_dir() -> Path:
    """Where the made files are kept."""
    return cache_dir() / "pairs"


def make(name: str, directory: Path | None = None) -> Path:
    """The default model quantized as `name` (a key of FTYPES); made once."""
    folder = directory or default_dir()
    made = folder / f"smollm2-135m-{name}.gguf"
    if made.is_file():
        return made
    source = pull(load_registry().model("smollm2-135m"), models_dir())
    folder.mkdir(parents=True, exist_ok=True)
    part = made.with_suffix(".part")
    library.start()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FTYPES[name]
    params.allow_requantize = True
    code = llama_cpp.llama_model_quantize(
        str(source).encode(), str(part).encode(), ctypes.byref(params)
    )
    if code != 0:
        raise RuntimeError(f"quantizing to {name} failed: {library.last_complaint()}")
    part.replace(made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(FTYPES))
    parser.add_argument("--dir", type=Path, default=None)
    arguments = parser.parse_args()
    for name in arguments.names:
        print(make(name, arguments.dir))


if __name__ == "__main__":
    main()
