"""What models there are and which draft models go with them: the catalog, as it is shown."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgespec.catalog import pairing
from edgespec.catalog.discovery import LocalModel, discover
from edgespec.catalog.download import installed
from edgespec.catalog.memory import memory_of
from edgespec.catalog.pairing import Candidate, Suggestion
from edgespec.catalog.places import identity
from edgespec.catalog.registry import Model, Pair, Registry, load_registry, model_folders
from edgespec.errors import CatalogError

AUTO, NONE = "auto", "none"
"""Not names of draft models, but which of them to take."""

_TO_BE_PULLED = "to be pulled"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that can be loaded. name: of a pair or model, or the path of a file. detail: what
    is known of it, in one line. target: its file, None if that is not on this machine. draft: the
    name of a pair's draft model, None if it has none."""

    name: str
    title: str
    detail: str
    target: Path | None
    pair: bool = False
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """entries: what can be loaded at once comes before what has to be pulled. complaint: why some
    may be missing, in one line; "" if none are."""

    entries: tuple[Entry, ...]
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """A choice of draft model. name: "auto", "none", the path of a file, or the name of a model
    that has to be pulled. detail: what would come of it, in one line. fits: can be chosen."""

    name: str
    title: str
    detail: str
    fits: bool = True


@dataclass(frozen=True, slots=True)
class _Known:
    """A model of models.toml. path: its file, None if that is not here; local: as discovered."""

    model: Model
    path: Path | None
    local: LocalModel | None

    @property
    def size(self) -> int | None:
        return self.local.size if self.local else self.model.size

    @property
    def shown_size(self) -> str:
        return shown_size(self.size) if self.size else self.model.approx_size

    @property
    def place(self) -> str:
        if self.local:
            return _place(self.local)
        if self.path:
            return "here"
        if self.model.kind == "path":
            return f"there is no file {self.model.location}"
        return _TO_BE_PULLED


def entries() -> Shelf:
    """Pairs and models of models.toml, and the files that are on this machine anyway.

    A damaged models.toml hides only what it names, and is complained of.
    """
    folders, complaint = _own_folders()
    found = [one for one in discover(folders) if one.kind == "model" and not one.broken]
    try:
        registry = load_registry()
    except CatalogError as error:
        registry, complaint = Registry({}, {}), str(error)
    known = _known(registry, found)
    named = [_pair_entry(pair, known) for pair in registry.pairs.values()]
    named += [_model_entry(one) for one in known.values()]
    here = [entry for entry in named if _is_here(entry, known)]
    not_here = [entry for entry in named if not _is_here(entry, known)]
    return Shelf((*here, *_unnamed(found, known), *not_here), complaint)


def drafts(target: Path, gpu: bool) -> list[DraftEntry]:
    """What could draft for a file: "auto" and "none", then what fits, the best first, what could
    be pulled, and what does not fit.

    Raises CatalogError when the target cannot be read.
    """
    folders, _ = _own_folders()
    try:
        candidates = pairing.rank(target, discover(folders), gpu=gpu)
        suggested = _suggested(target, gpu)
    except OSError as error:
        what = f"{error.filename or target}: {error.strerror or error}"
        raise CatalogError(
            f"Draft models for {target.name} cannot be compared, {what}. Check that file."
        ) from error
    return [
        DraftEntry(AUTO, AUTO, _what_auto_takes(target, candidates)),
        DraftEntry(NONE, NONE, "no draft model; n-gram drafts cost nothing"),
        *(_fitting(one) for one in candidates if not one.mismatch),
        *map(_suggestion, suggested),
        *(
            DraftEntry(str(one.model.path), one.model.name, one.verdict, fits=False)
            for one in candidates
            if one.mismatch
        ),
    ]


def shown_size(size: int) -> str:
    """Such as "4.7 GB"."""
    amount = size / 1000
    for unit in ("kB", "MB", "GB"):
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _own_folders() -> tuple[Sequence[Path], str]:
    """Those that the user's models.toml names, and what is wrong with it."""
    try:
        return model_folders(), ""
    except CatalogError as error:
        return (), str(error)


def _known(registry: Registry, found: Sequence[LocalModel]) -> dict[str, _Known]:
    by_file: dict[Hashable, LocalModel] = {identity(one.path): one for one in found}
    known = {}
    for name, model in registry.models.items():
        path = _file(model)
        local = by_file.get(identity(path)) if path else None
        known[name] = _Known(model, path, local)
    return known


def _file(model: Model) -> Path | None:
    try:
        return installed(model)
    except (CatalogError, OSError):
        return None  # not to be loaded, whatever it is


def _is_here(entry: Entry, known: Mapping[str, _Known]) -> bool:
    return entry.target is not None and (entry.draft is None or known[entry.draft].path is not None)


def _pair_entry(pair: Pair, known: Mapping[str, _Known]) -> Entry:
    target = known[pair.target]
    draft = known[pair.draft] if pair.draft else None
    both = [target, draft] if draft else [target]
    sizes = [one.size for one in both if one.size]
    size = shown_size(sum(sizes)) if len(sizes) == len(both) else ""
    models = f"{pair.target} + {pair.draft}" if pair.draft else f"{pair.target}, no draft model"
    licenses = " + ".join(dict.fromkeys(one.model.license for one in both if one.model.license))
    return Entry(
        name=pair.name,
        title=pair.name,
        detail=_line(size, _pair_place(target, draft), models, licenses, pair.note),
        target=target.path,
        pair=True,
        draft=pair.draft,
    )


def _pair_place(target: _Known, draft: _Known | None) -> str:
    if draft is None or (target.path is None and draft.path is None):
        return target.place if target.path is None else "here"
    if target.path is None:
        return f"target: {target.place}"
    return "here" if draft.path else f"draft: {draft.place}"


def _model_entry(known: _Known) -> Entry:
    model = known.model
    kind = known.local.quantization if known.local else ""
    return Entry(
        name=model.name,
        title=model.name,
        detail=_line(kind, known.shown_size, known.place, model.license, model.note),
        target=known.path,
    )


def _unnamed(found: Sequence[LocalModel], known: Mapping[str, _Known]) -> Iterator[Entry]:
    """Files that are none of models.toml's."""
    named = {identity(one.path) for one in known.values() if one.path}
    for local in found:
        if identity(local.path) not in named:
            kind, count, size = local.quantization, local.parameters or "", shown_size(local.size)
            detail = _line(kind, count, size, _place(local))
            yield Entry(str(local.path), local.name, detail, local.path)


def _place(local: LocalModel) -> str:
    return str(local.path.parent) if local.place == "folder" else local.place


def _what_auto_takes(target: Path, candidates: Sequence[Candidate]) -> str:
    if pairing.wants_no_draft(target):
        return "none: chosen so with edgespec models pair --use none"
    best = pairing.best_draft(candidates)
    if best is not None:
        return f"{best.model.name}, {'your choice, ' if best.chosen else ''}{best.verdict}"
    if any(not one.mismatch for one in candidates):
        return "none: those that fit do not promise to be faster"
    return "none: no model on this machine fits"


def _fitting(candidate: Candidate) -> DraftEntry:
    model = candidate.model
    needed = memory_of(model.path)
    detail = _line(
        f"{candidate.verdict}{', your choice' if candidate.chosen else ''}",
        f"{shown_size(needed)} of memory" if needed else shown_size(model.size),
        _place(model),
    )
    return DraftEntry(str(model.path), model.name, detail)


def _suggested(target: Path, gpu: bool) -> Sequence[Suggestion]:
    try:
        return pairing.suggestions(target, gpu=gpu)
    except CatalogError:
        return ()  # `entries` complains of models.toml


def _suggestion(one: Suggestion) -> DraftEntry:
    guess = f"{one.speedup:.2f}x guessed" if one.speedup else ""
    size = shown_size(one.size) if one.size else ""
    return DraftEntry(one.name, one.name, _line(guess, size, _TO_BE_PULLED))


def _line(*facts: str) -> str:
    return " · ".join(filter(None, facts))
