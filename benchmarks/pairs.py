"""Makes targets and draft models for experiments out of the default model, without a hub.

    python -m benchmarks.pairs [--dir DIR] [NAME ...]

NAME is a quantization such as Q4_0: SmolLM2-135M requantized by llama.cpp. A lower quantization
is a draft model with real text and real acceptance, though hardly a cheaper one. NAME-xR, such
as Q8_0-x16, is a heavier target that computes the same function: the feed-forward layers made R
times as wide (gate and up rows repeated, down columns repeated and divided by R). With R = 16
it costs what a model of 1.3 billion parameters costs.
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

from edgespec.catalog.download import pull
from edgespec.catalog.paths import cache_dir, models_dir
from edgespec.catalog.registry import load_registry
from edgespec.llama import library

# llama.h: enum llama_ftype
FTYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q2_K": 10, "Q4_K_M": 15}


def default_dir() -> Path:
    """Where the made files are kept."""
    return cache_dir() / "pairs"


def is_name(text: str) -> bool:
    """Whether `make` knows it."""
    kind, _, factor = text.partition("-x")
    return kind in FTYPES and (not factor or factor.isdigit())


def make(name: str, directory: Path | None = None) -> Path:
    """The file called `name`; made once."""
    folder = directory or default_dir()
    made = folder / f"smollm2-135m-{name}.gguf"
    if made.is_file():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    part = made.with_suffix(".part")
    kind, _, factor = name.partition("-x")
    if not factor:
        _quantize(pull(load_registry().model("smollm2-135m"), models_dir()), part, kind)
    else:
        wide = made.with_suffix(".wide")
        _widen(make("F16", directory), wide, int(factor))
        _quantize(wide, part, kind)
        wide.unlink()
    part.replace(made)
    return made


def _quantize(source: Path, made: Path, kind: str) -> None:
    library.start()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FTYPES[kind]
    params.allow_requantize = True
    code = llama_cpp.llama_model_quantize(
        str(source).encode(), str(made).encode(), ctypes.byref(params)
    )
    if code != 0:
        raise RuntimeError(f"quantizing to {kind} failed: {library.last_complaint()}")


def _widen(source: Path, made: Path, factor: int) -> None:
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(made, architecture)
    length = gguf.Keys.LLM.FEED_FORWARD_LENGTH.format(arch=architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == gguf.Keys.General.ARCHITECTURE:
            continue
        value = field.contents()
        if field.name == length:
            value *= factor
        kind, *inner = field.types
        writer.add_key_value(field.name, value, kind, inner[-1] if inner else None)
    for tensor in reader.tensors:
        data = np.asarray(tensor.data)
        if ".ffn_gate." in tensor.name or ".ffn_up." in tensor.name:
            data = np.tile(data, (factor, 1))
        elif ".ffn_down." in tensor.name:
            data = np.tile(data / data.dtype.type(factor), (1, factor))
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(FTYPES))
    parser.add_argument("--dir", type=Path, default=None)
    arguments = parser.parse_args()
    for name in arguments.names:
        print(make(name, arguments.dir))


if __name__ == "__main__":
    main()
