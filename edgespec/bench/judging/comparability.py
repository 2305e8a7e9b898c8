"""Whether figures may be put beside those of others: a suite unmodified, run with defaults."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.bench.modes import AUTO
from edgespec.bench.records import BASELINE, Settings, Skipped

DEFAULT_MAX_TOKENS = 128
DEFAULT_TEMPERATURE = 0.0


def comparability(
    settings: Settings, builtin_suite: bool, finished: bool, skipped: Sequence[Skipped] = ()
) -> list[str]:
    """Why the figures cannot be put beside those of other runs; nothing if they can."""
    reasons = {
        f"the suite {settings.suite} is not one of edgespec's own, unmodified": not builtin_suite,
        "the run was stopped early": not finished,
        f"prompts of the suite were left out: {len(skipped)}": bool(skipped),
        f"the temperature is {settings.temperature:g}, not 0": (
            settings.temperature != DEFAULT_TEMPERATURE
        ),
        f"max_tokens is {settings.max_tokens}, not {DEFAULT_MAX_TOKENS}": (
            settings.max_tokens != DEFAULT_MAX_TOKENS
        ),
        "--exact off was chosen": settings.exact == "off",
    }
    reasons |= {
        f"the mode {mode} was not run": mode not in settings.modes for mode in (BASELINE, AUTO)
    }
    return [reason for reason, holds in reasons.items() if holds]
