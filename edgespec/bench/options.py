"""What to measure, and how thoroughly."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgespec.bench.judging.comparability import DEFAULT_MAX_TOKENS, DEFAULT_TEMPERATURE
from edgespec.bench.modes import DEFAULT_MODES, parse_modes
from edgespec.errors import OptionError
from edgespec.types import SamplingParams

DEFAULT_REPETITIONS = 3

_ABOVE_0 = ("budget_s", "precision", "watts", "hardware_price", "hardware_years")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Raises OptionError for what makes no sense.

    modes: see `modes.parse_modes`. precision: stop when every interval reaches at most so far
    from its speed-up, as a share (0.02 is 2 %). budget_s: stop after a prompt rather than go
    beyond. cooldown_s: rest before each answer. curve_s: time for a cost curve. watts: what the
    machine draws while it works; prices are in any one currency.
    """

    modes: str = DEFAULT_MODES
    repetitions: int = DEFAULT_REPETITIONS
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = DEFAULT_TEMPERATURE
    seed: int = 0
    cooldown_s: float = 0.0
    budget_s: float | None = None
    precision: float | None = None
    curve_s: float = 60.0
    watts: float | None = None
    price_kwh: float | None = None
    hardware_price: float | None = None
    hardware_years: float | None = None

    def __post_init__(self) -> None:
        native = any(mode.native for mode in parse_modes(self.modes))
        if native and self.temperature > 0:
            raise OptionError(
                "llama.cpp's own loop always takes the best token: leave native out of --modes, "
                "or use --temperature 0."
            )
        for name in ("repetitions", "max_tokens"):
            if getattr(self, name) < 1:
                raise OptionError(f"{_shown(name)} must be at least 1.")
        for name in _ABOVE_0:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise OptionError(f"{_shown(name)} must be above 0, not {value:g}.")
        for name in ("cooldown_s", "price_kwh"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise OptionError(f"{_shown(name)} must be at least 0, not {value:g}.")
        if (self.hardware_price is None) != (self.hardware_years is None):
            raise OptionError("Give both --hardware-price and --hardware-years, or neither.")
        if self.price_kwh is not None and self.watts is None:
            raise OptionError("--price-kwh needs --watts: what the machine draws while it works.")
        self.params()

    def params(self) -> SamplingParams:
        """How tokens are chosen."""
        return SamplingParams(temperature=self.temperature, seed=self.seed)


def _shown(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")
