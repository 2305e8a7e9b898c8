"""Reads what a GGUF file says about itself, without loading it and without believing it.

Nothing is allocated for what a header claims: every length is checked against the file first.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from edgespec.errors import CatalogError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4
_MOST_NESTED = 4  # arrays in arrays
# Longer arrays belong to tokenizers; they are skipped unless asked for by name.
_LONGEST_KEPT = 4096
# No more of a file is taken for its header, whatever that claims.
_LARGEST_HEADER = 1 << 28
_USUAL_HEADER = 1 << 25  # has room for the largest vocabularies
_ALIGNMENT = 32

# llama.h: enum llama_ftype, from 0 on; those with a dash are gone.
_FILE_TYPES = (
    *("F32", "F16", "Q4_0", "Q4_1", "-", "-", "-", "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S"),
    *("Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS"),
    *("Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M"),
    *("IQ4_XS", "IQ1_M", "BF16", "-", "-", "-", "TQ1_0", "TQ2_0", "MXFP4_MOE", "NVFP4", "Q1_0"),
    "Q2_0",
)


class DamagedFileError(CatalogError):
    """A file that is no GGUF, or not a whole one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """size: bytes in the file, padding included."""

    name: str
    shape: tuple[int, ...]
    type: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself. tensors: empty when only its description was read;
    tensor_count is known also then."""

    path: Path
    size: int  # bytes of the file
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = ()
    tensor_count: int = 0

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @property
    def quantization(self) -> str:
        """Such as Q4_K_M; "" when the file does not tell."""
        kind = self.metadata.get("general.file_type")
        if not isinstance(kind, int) or not 0 <= kind < len(_FILE_TYPES):
            return ""
        return _FILE_TYPES[kind].strip("-")

    def of_architecture(self, key: str, default: Any = None) -> Any:
        """A value whose key begins with the architecture's name, such as `block_count`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def text(self, key: str) -> str:
        """A text of the metadata; "" when it is absent or no text."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """A whole number that belongs to the architecture; `default` when it is absent, or none."""
        value = self.of_architecture(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


def read_description(path: Path) -> Header:
    """What comes before the tokenizer: name, architecture, sizes. Fast for any file.

    Raises DamagedFileError, or CatalogError when the file cannot be read.
    """
    return _read(path, lambda reader: reader.description())


def find_quantization(path: Path) -> str:
    """The quantization of a file whose description does not tell it; "" if it is not found.

    llama-quantize writes it behind the tokenizer, which takes long to read but not to search.
    Raises as `read_description` does.
    """
    return _read(path, lambda reader: reader.file_type()).quantization


def read_header(path: Path, *arrays: str) -> Header:
    """All metadata, and the tensors. arrays: keys of long arrays to keep, which are left out
    otherwise; their texts are bytes.

    Raises DamagedFileError, also for a file that ends before its last tensor begins, or
    CatalogError when it cannot be read.
    """
    return _read(path, lambda reader: reader.all(frozenset(arrays)))


def _read(path: Path, how: Callable[[_Reader], Header]) -> Header:
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise CatalogError(f"{path} is a pipe or a device: give a .gguf file.")
        with path.open("rb") as file:
            if not file.read(1):
                raise DamagedFileError(f"{path} is empty: download it again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return how(_Reader(path, data))
    except IsADirectoryError:
        raise CatalogError(f"{path} is a directory: give the .gguf file in it.") from None
    except FileNotFoundError:
        raise CatalogError(f"There is no file {path}: check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CatalogError(f"{path} cannot be read: {reason}.") from error


class _Reader:
    """Walks through a header once."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._end = min(self._size, _LARGEST_HEADER)
        if data[:4] != _MAGIC:
            raise DamagedFileError(
                f"{path} is not a GGUF file (it starts with {data[:4]!r}): "
                "edgespec runs models in llama.cpp's GGUF format only."
            )
        self._at = 4
        version = self._scalar("<I")
        if version not in _VERSIONS:
            raise DamagedFileError(
                f"{path} is GGUF of version {version}, which this edgespec does not know "
                "(2 and 3 are usual); it may be damaged or written for another machine."
            )
        self._tensors = self._count(24)
        self._values = self._count(13)

    def description(self) -> Header:
        metadata = self._metadata(frozenset(), with_tokenizer=False)
        return Header(self._path, self._size, metadata, (), self._tensors)

    def file_type(self) -> Header:
        """Only this one value, wherever it stands."""
        key, kind = b"general.file_type", 4
        mark = struct.pack(f"<Q{len(key)}sI", len(key), key, kind)
        at = self._data.find(mark, self._at, min(self._size, _USUAL_HEADER))
        if at < 0:
            return Header(self._path, self._size, {})
        self._at = at + len(mark)
        return Header(self._path, self._size, {key.decode(): self._scalar("<I")})

    def all(self, arrays: frozenset[str]) -> Header:
        metadata = self._metadata(arrays, with_tokenizer=True)
        tensors = self._all_tensors(metadata)
        return Header(self._path, self._size, metadata, tensors, self._tensors)

    def _metadata(self, arrays: frozenset[str], *, with_tokenizer: bool) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(self._values):
            key = self._text()
            if not with_tokenizer and key.startswith("tokenizer."):
                break
            value = self._value(key, arrays)
            if value is not None:
                metadata[key] = value
        return metadata

    def _all_tensors(self, metadata: Mapping[str, Any]) -> tuple[Tensor, ...]:
        found = []
        for _ in range(self._tensors):
            name = self._text()
            dimensions = self._scalar("<I")
            if dimensions > _MOST_DIMENSIONS:
                raise self._damaged(f"tensor {name[:80]!r} has {dimensions} dimensions")
            shape = tuple(self._scalar("<Q") for _ in range(dimensions))
            found.append((name, shape, self._scalar("<I"), self._scalar("<Q")))
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
            raise self._damaged("it has an absurd alignment")
        if not found:
            return ()
        start = -(-self._at // alignment) * alignment
        ends = {}  # of each tensor, in the order in which they lie in the file
        order = sorted({offset for _, _, _, offset in found})
        for offset, end in zip(order, [*order[1:], self._size - start], strict=True):
            if end <= offset and any(prod(s) for _, s, _, o in found if o == offset):
                missing = (start + order[-1] - self._size) / 1e6
                raise self._damaged(f"it ends {max(missing, 0.0):.1f} MB or more too early")
            ends[offset] = end
        return tuple(Tensor(n, s, kind, ends[o] - o) for n, s, kind, o in found)

    def _value(self, key: str, arrays: frozenset[str], depth: int = 0) -> Any:
        """A value; None for an array that is skipped."""
        return self._of_type(self._scalar("<I"), key, arrays, depth)

    def _of_type(self, kind: int, key: str, arrays: frozenset[str], depth: int) -> Any:
        if kind in _SCALARS:
            return self._scalar(f"<{_SCALARS[kind]}")
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY and depth < _MOST_NESTED:
            return self._array(key, arrays, depth)
        raise self._damaged(f"{key[:80]!r} has a value of the unknown type {kind}")

    def _array(self, key: str, arrays: frozenset[str], depth: int) -> list[Any] | None:
        kind = self._scalar("<I")
        width = struct.calcsize(f"<{_SCALARS[kind]}") if kind in _SCALARS else 8
        count = self._count(width)
        wanted = key in arrays or count <= _LONGEST_KEPT
        if kind in _SCALARS:
            at, self._at = self._at, self._at + count * width
            if not wanted:
                return None
            return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self._data, at))
        if kind == _STRING:
            return self._texts(count, key in arrays, wanted)
        made = [self._of_type(kind, key, arrays, depth + 1) for _ in range(count)]
        return made if wanted else None

    def _texts(self, count: int, raw: bool, wanted: bool) -> list[Any] | None:
        # Vocabularies have hundreds of thousands of texts: this is the loop that takes the time.
        data, end, at = self._data, self._end, self._at
        found: list[Any] = []
        for _ in range(count):
            start = at + 8
            at = start + int.from_bytes(data[at:start], "little")
            if at > end:
                raise self._damaged("a text is longer than the header")
            if wanted:
                found.append(data[start:at])
        self._at = at
        if not wanted:
            return None
        return found if raw else [one.decode("utf-8", errors="replace") for one in found]

    def _text(self) -> str:
        length = self._count(1)
        at, self._at = self._at, self._at + length
        return self._data[at : self._at].decode("utf-8", errors="replace")

    def _count(self, width: int) -> int:
        """A number of things of `width` bytes or more that are to follow."""
        count = int(self._scalar("<Q"))
        if count * width > self._end - self._at:
            raise self._damaged(f"it announces {count:,} values, more than it has room for")
        return count

    def _scalar(self, form: str) -> Any:
        at = self._at
        self._at = at + struct.calcsize(form)
        if self._at > self._end:
            raise self._damaged("its header is cut short, or far too long to be one")
        return struct.unpack_from(form, self._data, at)[0]

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self._path} is damaged: {what}. Download it again.")
