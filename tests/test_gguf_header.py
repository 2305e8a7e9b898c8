"""Headers of GGUF files: what is in them is found, and no claim of theirs is believed."""

from __future__ import annotations

import os
import struct
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.catalog import gguf_header
from edgespec.catalog.gguf_header import (
    DamagedFileError,
    find_quantization,
    read_description,
    read_header,
)
from edgespec.errors import CatalogError, EdgespecError
from edgespec.llama.model import check_header
from tests.tiny_gguf import ARCHITECTURES, write_tiny_gguf

TOKENS = "tokenizer.ggml.tokens"
U8, U32, STRING, ARRAY = 0, 4, 8, 9


def text(value: str, length: int | None = None) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def value(key: str, kind: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + data


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + data


def tensor(name: str, shape: tuple[int, ...], offset: int) -> bytes:
    numbers = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
    return text(name) + numbers


def header(
    *values: bytes, tensors: tuple[bytes, ...] = (), counts: tuple[int, int] | None = None
) -> bytes:
    """A file of version 3. counts: of tensors and values, when they are to be lies."""
    start = struct.pack("<4sIQQ", b"GGUF", 3, *(counts or (len(tensors), len(values))))
    return start + b"".join(values) + b"".join(tensors)


def small(path: Path) -> Path:
    """A sound file of half a kilobyte, with a value of every kind."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(15)
    writer.add_block_count(2)
    writer.add_languages(["en", "de"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ä"])
    writer.add_token_types([1, 1, 3])
    writer.add_add_bos_token(True)
    writer.add_tensor("one", np.ones((4, 2), np.float32))
    writer.add_tensor("two", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


def check_against_gguf(path: Path) -> None:
    """Everything that the gguf package reads is read, and nothing else."""
    found, reader = read_header(path, TOKENS), gguf.GGUFReader(path)
    expected = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    tokens = [one.decode() for one in found.metadata[TOKENS]]
    assert {**found.metadata, TOKENS: tokens} == expected
    assert found.size == path.stat().st_size
    assert found.tensor_count == len(found.tensors) == len(reader.tensors)
    for ours, theirs in zip(found.tensors, reader.tensors, strict=True):
        assert ours.name == theirs.name
        assert list(ours.shape) == theirs.shape.tolist()
        assert ours.type == theirs.tensor_type
        assert theirs.n_bytes <= ours.size < theirs.n_bytes + 32
    described = read_description(path)
    assert described.tensor_count == found.tensor_count
    assert described.tensors == ()
    assert described.metadata == {
        key: value for key, value in found.metadata.items() if not key.startswith("tokenizer.")
    }


@pytest.mark.parametrize("quant", ["F32", "Q8_0"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_is_found(arch: str, quant: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", arch=arch, quant=quant, n_ctx_train=777)
    check_against_gguf(path)
    described = read_description(path)
    assert described.architecture == arch
    assert described.number("context_length") == 777
    assert described.number("no_such_thing", 3) == 3
    assert described.text("general.name") == f"tiny {arch} 0"


def test_values_of_every_kind(tmp_path: Path) -> None:
    path = small(tmp_path / "m.gguf")
    check_against_gguf(path)
    found = read_header(path)
    assert found.quantization == "Q4_K_M"
    assert found.metadata["general.languages"] == ["en", "de"]
    assert found.metadata["tokenizer.ggml.add_bos_token"] is True
    assert found.metadata[TOKENS] == ["a", "b", "ä"]


def test_texts_asked_for_come_as_bytes_and_long_arrays_only_when_asked_for(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", n_vocab=5000)
    assert TOKENS not in read_header(path).metadata
    tokens = read_header(path, TOKENS).metadata[TOKENS]
    assert len(tokens) == 5000
    assert tokens[:2] == [b"<|bos|>", b"<|eos|>"]


def test_a_description_ends_before_the_tokenizer(tmp_path: Path) -> None:
    """Whatever the rest of the file looks like: it was not looked at."""
    path = tmp_path / "m.gguf"
    name = value("general.architecture", STRING, text("llama"))
    path.write_bytes(header(name, value(TOKENS, ARRAY, array(STRING, 2**60)), counts=(2, 6)))
    found = read_description(path)
    assert (found.architecture, found.tensor_count) == ("llama", 2)
    with pytest.raises(DamagedFileError, match="announces"):
        read_header(path)


def test_the_names_of_quantizations_are_llama_cpps() -> None:
    known = {
        number: name.removeprefix("LLAMA_FTYPE_").removeprefix("ALL_").removeprefix("MOSTLY_")
        for name, number in vars(llama_cpp).items()
        if name.startswith("LLAMA_FTYPE_") and name != "LLAMA_FTYPE_GUESSED"
    }
    assert known == {
        number: name for number, name in enumerate(gguf_header._FILE_TYPES) if name != "-"
    }


def test_a_file_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(value("general.architecture", STRING, text("llama"))))
    assert read_header(path).tensors == ()


def test_file_types_that_nobody_knows(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for number, name in ((0, "F32"), (4, ""), (41, "Q2_0"), (42, ""), (2**32 - 1, "")):
        path.write_bytes(header(value("general.file_type", U32, struct.pack("<I", number))))
        assert read_description(path).quantization == name


def test_a_quantization_behind_the_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tokens = value(TOKENS, ARRAY, array(STRING, 3, text("a") + text("general.file_type") * 2))
    file_type = value("general.file_type", U32, struct.pack("<I", 15))
    path.write_bytes(header(tokens, file_type))
    assert read_description(path).quantization == ""
    assert find_quantization(path) == read_header(path).quantization == "Q4_K_M"
    path.write_bytes(header(tokens, file_type[:-1], text("padding")))
    assert find_quantization(path) == ""
    path.write_bytes(header(tokens))
    assert find_quantization(path) == ""
    path.write_bytes(header(tokens, file_type)[:-1])
    with pytest.raises(DamagedFileError, match="cut short"):
        find_quantization(path)


@pytest.mark.parametrize("data", [array(U32, 1, bytes(4)), array(U32, 5000, bytes(20000))])
def test_values_of_a_type_that_nobody_expects(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keys = ("general.file_type", "general.architecture", ".block_count")
    path.write_bytes(header(*(value(key, ARRAY, data) for key in keys)))
    for found in (read_description(path), read_header(path)):
        assert (found.quantization, found.architecture, found.number("block_count")) == ("", "", 0)


ONE_TENSOR = (tensor("t", (4,), 0),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"G", "is not a GGUF file"),
        (b"NOPE" + bytes(100), "is not a GGUF file .it starts with b'NOPE'"),
        (b"GGUF", "cut short"),
        (struct.pack("<4sIII", b"GGUF", 1, 0, 0), "of version 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "written for another machine"),
        (header(counts=(2**32, 0)), "announces 4,294,967,296 values"),
        (header(counts=(0, 2**63)), "announces"),
        (header(counts=(0, 1)) + bytes(2), "announces"),
        (header(text("key", 2**63)), "announces"),
        (header(value("key", STRING, text("value", 2**63))), "announces"),
        (header(value("key", U32, b"")), "cut short"),
        (header(value("key", 99, bytes(8))), "'key' has a value of the unknown type 99"),
        (header(value("key", ARRAY, array(U8, 2**60))), "announces"),
        (header(value("key", ARRAY, array(STRING, 2**60))), "announces"),
        (header(value("key", ARRAY, array(ARRAY, 2**60))), "announces"),
        (header(value("key", ARRAY, array(99, 1, bytes(8)))), "unknown type 99"),
        (header(value("key", ARRAY, array(STRING, 2, text("a") + text("b", 2**62)))), "longer"),
        (header(value("key", ARRAY, array(ARRAY, 1) * 1000)), "unknown type 9"),
        (header(tensors=(tensor("t", (1,) * 9, 0),)), "has 9 dimensions"),
        (header(tensors=(tensor("t", (2**62,), 2**63),)), "too early"),
        (header(tensors=(tensor("t", (2**62,), 0),)), "too early"),
        (header(value("general.alignment", U32, bytes(4)), tensors=ONE_TENSOR), "absurd alignment"),
        (header(value("general.alignment", STRING, text("x")), tensors=ONE_TENSOR), "absurd"),
    ],
)
def test_damaged_and_hostile_files(content: bytes, words: str, folder: Path) -> None:
    path = folder / "m.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFileError, match=words) as caught:
            read_header(path, "key")
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert allocated < 200_000


def readable(path: Path) -> int:
    """In how many of the two ways it can be read. Anything but a CatalogError fails the test."""
    count = 0
    for read in (read_description, lambda path: read_header(path, TOKENS)):
        with suppress(CatalogError):
            found = read(path)
            assert isinstance(found.quantization + found.architecture, str)
            assert isinstance(found.number("block_count"), int)
            count += 1
    return count


def test_cut_off_anywhere(folder: Path) -> None:
    path = small(folder / "whole.gguf")
    whole = path.read_bytes()
    end = len(whole) - read_header(path).tensors[-1].size  # where the last tensor begins
    cut = folder / "cut.gguf"
    for length in range(len(whole) + 1):
        cut.write_bytes(whole[:length])
        assert (readable(cut) == 2) == (length > end)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600), st.binary(min_size=1, max_size=8)), max_size=4))
def test_overwritten_anywhere(folder: Path, changes: list[tuple[int, bytes]]) -> None:
    whole = folder / "sound.gguf"
    if not whole.exists():
        small(whole)
    data = bytearray(whole.read_bytes())
    for at, change in changes:
        data[at : at + len(change)] = change
    path = folder / "changed.gguf"
    path.write_bytes(data)
    readable(path)


@pytest.mark.skipif(sys.platform == "win32", reason="there a file of 8 GB takes 8 GB of the disk")
def test_a_large_file_does_not_make_a_large_header_credible(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(value("key", STRING, text("", 2**32))))
    with path.open("r+b") as file:
        file.truncate(2**33)
    for read in (read_description, read_header):
        with pytest.raises(DamagedFileError, match="announces"):
            read(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="There is no file"):
        read_description(tmp_path / "missing.gguf")
    with pytest.raises(CatalogError, match=r"is a directory|cannot be read"):
        read_description(tmp_path)
    with pytest.raises(CatalogError, match="cannot be read"):
        read_description(Path("nul\0byte.gguf"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    """Opening one would wait for somebody to write into it."""
    os.mkfifo(tmp_path / "pipe.gguf")
    for read in (read_description, read_header, check_header):
        with pytest.raises(EdgespecError, match="is a pipe or a device"):
            read(tmp_path / "pipe.gguf")
