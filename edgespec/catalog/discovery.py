"""The GGUF files that are on this machine already, whoever brought them here.

Nothing is changed, and of a file only its description is read. What cannot be read is no error: a
file is listed as broken, a directory passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgespec.catalog.gguf_header import Header, find_quantization, read_description
from edgespec.catalog.places import PLACES, Found, identity, search
from edgespec.errors import CatalogError

# llama.cpp: llama_split_path
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})")
# Looked for in the name before it is searched in the file: most files name it, and a description
# often lacks it.
_QUANTIZATION = re.compile(
    r"(?:^|[-._:/ ])((?:I?Q[1-8]|TQ[12])(?:_\w+)?|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4)(?=$|[-. ])",
    re.IGNORECASE,
)
_LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A GGUF file, or a model split into several.

    name: the file's, without its ending, or Ollama's. path: the first file. size: bytes of all.
    place: one of `places.PLACES`. quantization, parameters: such as Q4_K_M and 7B, if known.
    broken: why it cannot be used, in one line; "" if nothing speaks against it.
    kind: model, projector (of images or sounds), adapter (LoRA), embedding, vocabulary only, or
    other. Only a model can be chatted with.
    """

    name: str
    path: Path
    size: int
    place: str
    architecture: str = ""
    quantization: str = ""
    parameters: str | None = None
    context_length: int = 0
    broken: str = ""
    kind: str = "model"


def discover(folders: Sequence[Path] = ()) -> list[LocalModel]:
    """All models in the places that programs use, and below `folders`: by place, then by name.

    A file that can be found in several ways is listed once, for the first place.
    """
    models: list[LocalModel] = []
    known: dict[Hashable, int] = {}
    for parts in _together(search(folders)):
        model = _describe(parts)
        same: list[Hashable] = [identity(model.path)]
        if parts.first.sha256:
            same.append(parts.first.sha256)
        at = next((known[one] for one in same if one in known), len(models))
        if at == len(models):
            models.append(model)
        elif models[at].broken and not model.broken:
            # Two downloads that share their first part, say, and only the second has all of them.
            models[at] = model
        known.update(dict.fromkeys(same, at))
    return sorted(models, key=lambda m: (PLACES.index(m.place), m.name.lower(), str(m.path)))


@dataclass(frozen=True, slots=True)
class _Parts:
    """The files of one model by number, from 1; a model that is not split has one."""

    name: str
    count: int
    files: dict[int, Found] = field(default_factory=dict)

    @property
    def first(self) -> Found:
        return self.files[min(self.files)]


def _together(found: Iterable[Found]) -> Iterable[_Parts]:
    models: dict[Hashable, _Parts] = {}
    for file in found:
        name, number, count = _numbered(file)
        key: Hashable = file.path
        if count > 1:
            key = file.path.parent, name, count
        models.setdefault((file.place, key), _Parts(name, count)).files.setdefault(number, file)
    return models.values()


def _numbered(file: Found) -> tuple[str, int, int]:
    """Name, number of the part, count of parts."""
    if file.name:
        return file.name, 1, 1
    match = _SPLIT.fullmatch(file.path.stem)
    if match and 1 <= int(match[2]) <= int(match[3]):
        return match[1], int(match[2]), int(match[3])
    return file.path.stem, 1, 1


def _describe(parts: _Parts) -> LocalModel:
    headers: dict[int, Header] = {}
    reasons = [_missing(parts)]
    for number, file in sorted(parts.files.items()):
        try:
            headers[number] = read_description(file.path)
        except CatalogError as error:
            reasons.append(str(error).replace(str(file.path), "it", 1))
    header = headers.get(1, Header(parts.first.path, 0, {}))
    return LocalModel(
        name=_plain(parts.name),
        path=parts.first.path,
        size=sum(_size(file.path) for file in parts.files.values()),
        place=parts.first.place,
        architecture=_plain(header.architecture),
        quantization=header.quantization or _quantization(parts),
        parameters=_plain(header.text("general.size_label")) or None,
        context_length=max(0, header.number("context_length")),
        broken=_plain(next(filter(None, reasons), "")),
        kind=_kind(header, parts.count) if 1 in headers else "model",
    )


def _missing(parts: _Parts) -> str:
    # A link that leads nowhere is no file, either.
    there = {number for number, file in parts.files.items() if os.path.exists(file.path)}
    lacking = next((one for one in range(1, parts.count + 1) if one not in there), 0)
    if not lacking:
        return ""
    if parts.count == 1:
        return "its file is gone: download it again, or remove what names it."
    return f"part {lacking} of {parts.count} is missing"


def _kind(header: Header, parts: int) -> str:
    kind = header.text("general.type")
    if header.architecture == "clip" or kind in ("mmproj", "projector"):
        return "projector"
    if kind == "adapter" or "adapter.type" in header.metadata:
        return "adapter"
    # Without layers it is no language model: an importance matrix, or one that makes pictures.
    if not header.number("block_count"):
        return "other"
    if not header.tensor_count and parts == 1:
        return "vocabulary only"
    return "embedding" if header.number("pooling_type") > 0 else "model"


def _quantization(parts: _Parts) -> str:
    if named := _QUANTIZATION.findall(parts.name):
        return str(named[-1]).upper()
    try:
        return find_quantization(parts.first.path)
    except CatalogError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _plain(text: str) -> str:
    """One line that can be shown anywhere: names and headers may hold whatever they like."""
    return "".join(one if one.isprintable() else "?" for one in text[:_LONGEST_TEXT])
