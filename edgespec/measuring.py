"""What has to be measured of a model on this machine, or was measured before and is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgespec.catalog import measurements
from edgespec.catalog.pairing import keep_speedup
from edgespec.decoding.calibration import Costs, calibrate
from edgespec.decoding.costs import CostCurve
from edgespec.decoding.knowledge import Knowledge
from edgespec.llama import library
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.llama.widths import PROMPT_PIECE, WidthProbe, probe_widths

Report = Callable[[str, float], None]
"""Called with what is being done and how much of it is (0..1)."""

_TELLING = 200  # tokens, from which on a speed-up says something

# Prose, code and data: what passes cost does not depend on it, but for models with experts.
_TEXT = (
    "The two brothers ran the mill together for forty years. In the first winter the river froze, "
    "and nobody in the valley had flour until March; after that they kept a second store.\n"
    "def area(width: float, height: float) -> float:\n    return width * height\n"
    '{"name": "mill", "floors": 3, "stones": [{"kind": "French", "diameter_cm": 120}]}\n'
)


class Measuring:
    """Measures once for every model, way of loading and machine; afterwards it recalls.

    report: told of what takes time.
    """

    def __init__(
        self,
        *,
        threads: int,
        gpu_layers: int | None,
        quantized_cache: bool = False,
        report: Report,
    ) -> None:
        self._threads = threads
        self._quantized_cache = quantized_cache
        self._gpu_layers = gpu_layers
        self._report = report

    def widths(self, path: Path, repack: bool, mixed_cache: bool) -> WidthProbe:
        """Which pass widths are bit-identical to plain decoding, if loaded in this way."""
        repack = repack and library.repacking_is_safe()
        key = self._key("pass widths at two depths", path, repack, mixed_cache)
        kept = _probe_from(measurements.recall(key))
        if kept is not None:
            return kept
        what = f"measuring {path.name}, once for this machine"
        self._report(what, 0.0)
        model = Model(path, gpu_layers=self._gpu_layers, repack=repack)
        try:
            context = Context(
                model,
                n_ctx=512,
                threads=self._threads,
                mixed_cache=mixed_cache,
                quantized_cache=self._quantized_cache,
            )
            try:
                probe = probe_widths(
                    context, model.vocabulary, progress=lambda done: self._report(what, done)
                )
            finally:
                context.close()
        finally:
            model.close()
        self._report(what, 1.0)
        measurements.keep(key, asdict(probe))
        return probe

    def costs(self, model: Model, context: Context, widths: Sequence[int]) -> Costs:
        """What passes of these widths take. The context must be empty."""
        what = "costs of passes, at two depths"
        key = self._key(what, model.path, model.repack, context.mixed_cache)
        key |= {"widths": list(widths), "n_ctx": min(context.n_ctx, 512)}
        kept = _costs_from(measurements.recall(key))
        if kept is not None:
            return kept
        told = f"timing {model.path.name}, once for this machine"
        self._report(told, 0.0)
        tokens = model.vocabulary.tokenize(_TEXT, add_special=True, parse_special=False)
        costs = calibrate(
            context,
            tokens,
            widths,
            clock=time.perf_counter,
            progress=lambda done: self._report(told, done),
        )
        self._report(told, 1.0)
        measurements.keep(key, _as_kept(costs))
        return costs

    def recall(self, knowledge: Knowledge, target: Model, draft: Model | None) -> None:
        """Put into `knowledge` what was learned of the pair before, if anything was."""
        kept = measurements.recall(self._pair_key(target, draft))
        if kept is not None:
            knowledge.restore(kept)

    def keep(self, knowledge: Knowledge, target: Model, draft: Model | None) -> None:
        """Remember what was learned of the pair, and its speed for whoever chooses drafts."""
        measurements.keep(self._pair_key(target, draft), knowledge.state())
        if draft is not None and knowledge.decoded >= _TELLING:
            keep_speedup(target.path, draft.path, knowledge.speedup)

    def _pair_key(self, target: Model, draft: Model | None) -> dict[str, Any]:
        key = self._key("what drafts are worth", target.path, target.repack, False)
        return key | {"draft": measurements.fingerprint(draft.path) if draft else ""}

    def _key(self, what: str, path: Path, repack: bool, mixed_cache: bool) -> dict[str, Any]:
        key: dict[str, Any] = {"quantized cache": True} if self._quantized_cache else {}
        return key | {
            "measured": what,
            "file": measurements.fingerprint(path) if path.is_file() else str(path),
            "repack": repack,
            "mixed cache": mixed_cache,
            "threads": self._threads,
            "gpu_layers": self._gpu_layers,
            "llama.cpp": library.version(),
            "machine": library.system_info(),
            "devices": [device.description for device in library.devices()],
        }


def _probe_from(kept: Any) -> WidthProbe | None:
    """None when nothing was kept, or nothing usable."""
    try:
        differences, seconds = (_by_width(kept, name) for name in ("differences", "seconds"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return WidthProbe(differences, seconds) if {1, PROMPT_PIECE} <= seconds.keys() else None


def _costs_from(kept: Any) -> Costs | None:
    try:
        curve = CostCurve(int(kept["depth"]), _by_width(kept, "seconds"), {})
        growth, rebuild = float(kept["growth"]), float(kept["rebuild"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    usable = 1 in curve.seconds and all(0 < value < 1e6 for value in curve.seconds.values())
    return Costs(curve, growth, rebuild) if usable and growth >= 0 and rebuild >= 0 else None


def _as_kept(costs: Costs) -> dict[str, Any]:
    return {
        "depth": costs.curve.depth,
        "seconds": dict(costs.curve.seconds),
        "growth": costs.growth,
        "rebuild": costs.rebuild,
    }


def _by_width(kept: Any, name: str) -> dict[int, float]:
    return {int(width): float(value) for width, value in kept[name].items()}
