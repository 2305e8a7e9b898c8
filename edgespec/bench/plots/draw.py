"""The plots of a report: a file name and an SVG for each of them that has something to show."""

from __future__ import annotations

from collections.abc import Callable

from edgespec.bench.plots.acceptance import draw as draw_acceptance
from edgespec.bench.plots.costs import draw as draw_costs
from edgespec.bench.plots.speedup import draw as draw_speedup
from edgespec.bench.plots.steps import draw as draw_steps
from edgespec.bench.records import Result

PLOTS: dict[str, Callable[[Result], str | None]] = {
    "speedup.svg": draw_speedup,
    "cost_curve.svg": draw_costs,
    "acceptance.svg": draw_acceptance,
    "k_over_time.svg": draw_steps,
}


def plots(result: Result) -> dict[str, str]:
    """File name to SVG; plots with nothing to show are left out."""
    drawn = {name: draw(result) for name, draw in PLOTS.items()}
    return {name: svg for name, svg in drawn.items() if svg is not None}
