"""Compares estimates of memory with what a process really takes at its peak.

    python -m benchmarks.memory --models Q4_1 F16 Q4_K_M-x8 gemma.gguf --ctx 2048 8192

Every model is loaded in a process of its own, reads a long prompt and answers. The peak is that
of resident memory, weights mapped from the file included (Linux: VmHWM).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.lossless import file_of
from edgespec.catalog.fitting import Room, Wish, fit
from edgespec.catalog.memory import model_header

_CHILD = """
import sys
import edgespec
target, draft, n_ctx = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
with edgespec.load(target=target, draft=draft, n_ctx=n_ctx, remember=False) as engine:
    text = "The ferry left the harbour at half past six, and nobody on board spoke. " * 100
    engine.generate(text[: n_ctx * 2], max_tokens=24, seed=1)
lines = open("/proc/self/status", encoding="utf-8").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def peak(target: Path, draft: Path | None, n_ctx: int) -> int:
    """Bytes of resident memory at most."""
    command = [sys.executable, "-c", _CHILD, str(target), str(draft or ""), str(n_ctx)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) * 1024


def estimate(target: Path, draft: Path | None, n_ctx: int) -> int:
    """Bytes, by edgespec.catalog.fitting."""
    header = model_header(target)
    beside = model_header(draft) if draft else None
    return fit(header, beside, Room(ram=2**50), Wish(n_ctx=n_ctx, n_ctx_fixed=True)).ram


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", required=True, help="names of a pair, or files")
    parser.add_argument("--draft")
    parser.add_argument("--ctx", nargs="+", type=int, default=[2048, 8192])
    chosen = parser.parse_args()
    draft = file_of(chosen.draft) if chosen.draft else None
    print("| model | context | estimate MB | peak MB | estimate / peak |\n|---|---|---|---|---|")
    for name in chosen.models:
        path = file_of(name)
        for n_ctx in chosen.ctx:
            told, real = estimate(path, draft, n_ctx), peak(path, draft, n_ctx)
            print(
                f"| {path.stem} | {n_ctx} | {told / 1e6:.0f} | {real / 1e6:.0f} "
                f"| {told / real:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
