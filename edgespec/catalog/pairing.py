"""Which draft model goes with a target: what fits, what would pay, what was chosen before."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgespec.catalog import measurements
from edgespec.catalog.discovery import LocalModel, discover
from edgespec.catalog.download import installed
from edgespec.catalog.file_vocabulary import read_vocabulary
from edgespec.catalog.gguf_header import read_description
from edgespec.catalog.paths import config_dir
from edgespec.catalog.registry import Model, load_registry, model_folders
from edgespec.compatibility import mismatch
from edgespec.errors import CatalogError

log = logging.getLogger(__name__)

WORTH_IT = 1.05
"""A draft model that promises less is not chosen without being asked for."""

_LARGEST_SHARE = 0.6  # of the target's size: a larger draft model is hardly cheaper
_AUTO, _NO_DRAFT = "auto", "none"

# A guess before anything is measured. Decoding reads all weights once a pass, so a draft token
# costs about what the sizes say, and some time that no size changes. What a pass over more tokens
# costs, as a share for every token, is little on a GPU; on a CPU it is what was measured on two
# cores with targets of 0.7 and 2.6 billion parameters, as was the chance of a token to stand.
_OVERHEAD = 50 * 10**6  # bytes that could be read meanwhile
_ON_CPU, _ON_GPU = 0.17, 0.03
_CHANCE = 0.65
_MOST_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model for one target. mismatch: why it cannot be one, "" if it can. speedup: over
    plain decoding, None where there is nothing to say; measured: from earlier runs, not guessed."""

    model: LocalModel
    mismatch: str
    speedup: float | None
    measured: bool = False
    chosen: bool = False

    @property
    def verdict(self) -> str:
        """In words."""
        if self.mismatch:
            return f"does not fit: {self.mismatch}"
        if self.speedup is None:
            return "fits"
        how = "measured" if self.measured else "guessed"
        return f"fits, {self.speedup:.2f}x {how}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A draft model that models.toml names for a target and that is not on this machine. size:
    bytes, None if unknown."""

    name: str
    size: int | None
    speedup: float | None


def suggestions(target: Path, *, gpu: bool) -> list[Suggestion]:
    """What could be pulled for `target`. Raises CatalogError for a damaged models.toml."""
    registry = load_registry()
    names = {
        pair.draft
        for pair in registry.pairs.values()
        if pair.draft and _is(registry.model(pair.target), target)
    }
    found = []
    for model in map(registry.model, sorted(names)):
        if installed(model) is None:
            size, whole = model.size, target.stat().st_size
            guess = predicted_speedup(whole, size, gpu=gpu) if size and whole else None
            found.append(Suggestion(model.name, size, guess))
    return found


def _is(model: Model, path: Path) -> bool:
    """Whether a file is this model: its own, or a copy that kept the name."""
    own = installed(model)
    if own is not None and _same(own, path):
        return True
    return bool(model.files) and Path(model.files[0]).name == path.name


def rank(target: Path, models: Iterable[LocalModel], *, gpu: bool) -> list[Candidate]:
    """All models that might draft for `target`, the best first, those that do not fit last.

    Raises CatalogError when the target cannot be read.
    """
    models = list(models)
    alone = read_description(target).size
    size = next((model.size for model in models if _same(model.path, target)), alone)
    chosen = chosen_draft(target)
    found = []
    for model in models:
        if model.broken or model.kind != "model" or _same(model.path, target):
            continue
        reason = _mismatch(target, model.path)
        if not reason and model.size > size * _LARGEST_SHARE:
            reason = f"it is {model.size / size:.0%} of the target's size, too dear for a draft"
        measured = measured_speedup(target, model.path)
        speedup = measured if measured is not None else predicted_speedup(size, model.size, gpu=gpu)
        found.append(
            Candidate(
                model,
                reason,
                None if reason else speedup,
                measured=measured is not None and not reason,
                chosen=chosen is not None and _same(model.path, chosen),
            )
        )
    return sorted(found, key=lambda c: (bool(c.mismatch), -(c.speedup or 0.0), c.model.name))


def best_draft(candidates: Sequence[Candidate]) -> Candidate | None:
    """The one that was chosen before, or else the best of those that promise to pay."""
    for candidate in candidates:
        if candidate.chosen and not candidate.mismatch:
            return candidate
    best = candidates[0] if candidates else None
    if best is None or best.mismatch or (best.speedup or 0.0) < WORTH_IT:
        return None
    return best


def find_draft(target: Path, *, gpu: bool) -> tuple[Path | None, str]:
    """The best draft model for `target` on this machine, and in a sentence why; (None, "") if
    there is none that promises to pay, or none is wanted."""
    try:
        if wants_no_draft(target):
            return None, ""
        best = best_draft(rank(target, discover(model_folders()), gpu=gpu))
    except (CatalogError, OSError) as error:
        log.info("no draft model looked for: %s", error)
        return None, ""
    if best is None:
        return None, ""
    why = "your choice" if best.chosen else f"the best on this machine; it {best.verdict}"
    return best.model.path, (
        f"{best.model.path.name} drafts for {target.name}: {why}. --draft none leaves it out."
    )


def predicted_speedup(target_bytes: int, draft_bytes: int, *, gpu: bool) -> float:
    """Over plain decoding, before anything was measured: a guess from the two sizes."""
    ratio = (draft_bytes + _OVERHEAD) / (target_bytes + _OVERHEAD)
    row = _ON_GPU if gpu else _ON_CPU
    best, tokens, survival = 1.0, 1.0, 1.0
    for k in range(1, _MOST_TOKENS + 1):
        survival *= _CHANCE
        tokens += survival
        best = max(best, tokens / (1.0 + row * k + ratio * k))
    return best


# What earlier runs have shown.


def measured_speedup(target: Path, draft: Path) -> float | None:
    """Over plain decoding, on this machine; None when this pair was not run long enough."""
    kept = measurements.recall(_speedup_key(target, draft))
    value = (kept or {}).get("speedup")
    return value if isinstance(value, float) and 0.0 < value < 1000.0 else None


def keep_speedup(target: Path, draft: Path, speedup: float) -> None:
    """Remember what a pair has shown."""
    measurements.keep(_speedup_key(target, draft), {"speedup": speedup})


def _speedup_key(target: Path, draft: Path) -> dict[str, str]:
    return {
        "measured": "speed-up of a pair",
        "target": measurements.fingerprint(target),
        "draft": measurements.fingerprint(draft),
    }


def _mismatch(target: Path, draft: Path) -> str:
    """Comparing vocabularies takes a moment for each, so the verdict is kept."""
    key = {
        "measured": "why the vocabularies differ",
        "target": measurements.fingerprint(target),
        "draft": measurements.fingerprint(draft),
    }
    kept = measurements.recall(key)
    if kept is not None and isinstance(kept.get("mismatch"), str):
        return str(kept["mismatch"])
    wanted = read_vocabulary(target)
    try:
        reason = mismatch(wanted, read_vocabulary(draft))
    except CatalogError as error:
        reason = str(error)
    measurements.keep(key, {"mismatch": reason})
    return reason


# What the user has chosen.


def choices_file() -> Path:
    """Target file -> draft file, as chosen by `edgespec models pair --use`."""
    return config_dir() / "drafts.json"


def chosen_draft(target: Path) -> Path | None:
    """The draft chosen for this file; None when none was, or it is gone, or none is wanted."""
    choice = _choices().get(str(target.absolute()))
    if choice in (None, _NO_DRAFT):
        return None
    path = Path(str(choice))
    return path if path.is_file() else None


def wants_no_draft(target: Path) -> bool:
    """Whether the user chose to have no draft model for this file."""
    return _choices().get(str(target.absolute())) == _NO_DRAFT


def choose_draft(target: Path, choice: Path | Literal["auto", "none"]) -> None:
    """Remember the draft model for this file, or that there should be none, or forget.

    Raises CatalogError when that cannot be kept.
    """
    choices = _choices()
    choices.pop(str(target.absolute()), None)
    if choice != _AUTO:
        kept = str(choice.absolute()) if isinstance(choice, Path) else choice
        choices[str(target.absolute())] = kept
    file = choices_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(choices, indent=1) + "\n", encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise CatalogError(
            f"The choice cannot be kept in {file}: {error.strerror or error}. Check that directory."
        ) from error


def _choices() -> dict[str, str]:
    try:
        found = json.loads(choices_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", choices_file(), error)
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, str)}


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
