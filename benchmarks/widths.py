"""Which pass widths are bit-identical to plain decoding, by repacking and kind of KV cache.

python -m benchmarks.widths [NAME or FILE ...]
"""

from __future__ import annotations

import argparse
from itertools import product

from benchmarks.lossless import file_of
from edgespec.catalog.hardware import physical_cores
from edgespec.llama import library
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.llama.widths import WidthProbe, probe_widths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=["Q4_1", "Q8_0", "F16", "Q4_K_M"])
    print(library.system_info())
    print(
        "| target | repacked | mixed cache | identical widths | largest difference elsewhere "
        "| T(n) in ms |"
    )
    for name in parser.parse_args().targets:
        for repack, mixed in product((True, False), repeat=2):
            model = Model(file_of(name), repack=repack)
            context = Context(model, n_ctx=512, threads=physical_cores(), mixed_cache=mixed)
            probe = probe_widths(context, model.vocabulary)
            context.close()
            model.close()
            _show(name, model.repack, mixed, probe)


def _show(name: str, repack: bool, mixed: bool, probe: WidthProbe) -> None:
    others = {w: round(d, 4) for w, d in probe.differences.items() if d != 0.0}
    seconds = {w: round(s * 1e3, 1) for w, s in probe.seconds.items()}
    print(
        f"| {name} | {repack} | {mixed} | {sorted(probe.identical)} | {others or '-'} | {seconds} |"
    )


if __name__ == "__main__":
    main()
