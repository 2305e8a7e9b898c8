"""The ways of decoding that are compared: llama.cpp's own loop, plain, fixed k, auto."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from edgespec.bench.records import BASELINE
from edgespec.errors import OptionError
from edgespec.types import MAX_DRAFT_TOKENS

NATIVE = "native"
AUTO = "auto"
DEFAULT_MODES = f"{NATIVE},{BASELINE},{AUTO}"
_DRAFTERS = ("model", "n-gram")


@dataclass(frozen=True, slots=True)
class Mode:
    """name: as shown. native: llama.cpp's own loop; else a request with this drafter and k."""

    name: str
    native: bool = False
    drafter: str = "auto"
    k: int | Literal["auto"] = "auto"


def parse_modes(text: str) -> tuple[Mode, ...]:
    """Modes from a list such as "native,off,auto,3,model:2,n-gram:7".

    A bare number is k with the drafter that `auto` uses. The baseline is added in front when it
    is not there: nothing can be said without it. A mode given twice is measured twice, to see
    how far two measurements of the same thing lie apart. Raises OptionError.
    """
    named = [_mode(part.strip()) for part in text.split(",")]
    if not any(mode.name == BASELINE for mode in named):
        named.insert(0, _mode(BASELINE))
    modes = []
    seen: Counter[str] = Counter()
    for mode in named:
        seen[mode.name] += 1
        again = seen[mode.name]
        modes.append(mode if again == 1 else replace(mode, name=f"{mode.name} ({again})"))
    return tuple(modes)


def _mode(name: str) -> Mode:
    if name == NATIVE:
        return Mode(NATIVE, native=True)
    if name == AUTO:
        return Mode(AUTO)
    if name in (BASELINE, "0"):
        return Mode(BASELINE, k=0)
    drafter, _, number = name.rpartition(":")
    if not number.isascii() or not number.isdigit() or (drafter and drafter not in _DRAFTERS):
        raise OptionError(
            f"There is no mode {name!r}: choose native, off, auto, a number for k, "
            "model:N or n-gram:N, separated by commas."
        )
    k = int(number)
    if not 1 <= k <= MAX_DRAFT_TOKENS:
        raise OptionError(f"k of mode {name!r} must be between 1 and {MAX_DRAFT_TOKENS}.")
    return Mode(f"{drafter}:{k}" if drafter else f"k={k}", drafter=drafter or "auto", k=k)
