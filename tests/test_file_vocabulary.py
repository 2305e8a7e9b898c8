"""A tokenizer read from a file says what llama.cpp says once the file is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import pytest

from edgespec.catalog.file_vocabulary import FileVocabulary, read_vocabulary
from edgespec.catalog.gguf_header import read_header
from edgespec.compatibility import mismatch
from edgespec.errors import CatalogError
from edgespec.llama.model import Model
from edgespec.llama.vocabulary import Vocabulary
from tests.tiny_gguf import ARCHITECTURES, FIRST_PAIR, IM_END, write_tiny_gguf


@dataclass(frozen=True)
class Both:
    file: FileVocabulary
    loaded: Vocabulary

    def check(self) -> None:
        for name in ("type", "size", "bos", "eos", "adds_bos", "adds_eos"):
            assert getattr(self.file, name) == getattr(self.loaded, name), name
        assert list(self.file.texts(0, self.file.size)) == self.loaded.texts(0, self.loaded.size)
        for token in (0, FIRST_PAIR, self.file.size - 1):
            assert self.file.name(token) == self.loaded.name(token)


Load = Callable[..., Both]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Reads and loads a tiny model written with these options; closes all at the end."""
    models: list[Model] = []

    def one(**options: object) -> Both:
        path = write_tiny_gguf(tmp_path / f"{len(models)}.gguf", **options)  # type: ignore[arg-type]
        models.append(Model(path))
        return Both(read_vocabulary(path), models[-1].vocabulary)

    yield one
    for model in models:
        model.close()


def leave_out(monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    """Files written from now on lack what these methods of GGUFWriter add."""
    for method in methods:
        monkeypatch.setattr(gguf.GGUFWriter, method, lambda self, value: None)


def replace(monkeypatch: pytest.MonkeyPatch, method: str, value: object) -> None:
    usual = getattr(gguf.GGUFWriter, method)
    monkeypatch.setattr(gguf.GGUFWriter, method, lambda self, _: usual(self, value))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("add_bos", [True, False])
def test_they_agree(arch: str, add_bos: bool, load: Load) -> None:
    load(arch=arch, add_bos=add_bos, n_vocab=600, eos=IM_END).check()


@pytest.mark.parametrize(
    "pre",
    ["qwen2", "default", "llama-bpe", "tekken", "chameleon", "jina-v5-nano", "glm4", "gemma4"],
)
def test_what_the_file_leaves_open(pre: str, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, "add_tokenizer_pre", pre)
    load(add_bos=False).check()
    leave_out(monkeypatch, "add_add_bos_token", "add_add_eos_token")
    load().check()
    leave_out(monkeypatch, "add_bos_token_id", "add_eos_token_id")
    load().check()


@pytest.mark.parametrize("kind", ["gemma4", "whitespace", "llama", "bert", "t5", "rwkv"])
def test_other_kinds_of_tokenizers(kind: str, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, "add_tokenizer_model", kind)
    load().check()
    leave_out(monkeypatch, "add_add_bos_token", "add_add_eos_token")
    leave_out(monkeypatch, "add_bos_token_id", "add_eos_token_id")
    load().check()


def test_special_tokens_that_the_vocabulary_does_not_have(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(monkeypatch, "add_bos_token_id", 400)
    load(eos=10_000).check()


def test_a_token_without_a_text(load: Load) -> None:
    load(token_texts={FIRST_PAIR + 3: ""}).check()


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ({}, {"seed": 1, "arch": "mamba"}),
        ({}, {"token_texts": {FIRST_PAIR + 9: "~~", FIRST_PAIR + 12: "~e"}}),
        ({}, {"token_texts": {0: "<|start|>", 4: "<|padding|>"}}),
        ({}, {"token_texts": {5: "<|five|>"}}),
        ({"n_vocab": 300}, {"n_vocab": 428}),
        ({"n_vocab": 429}, {"n_vocab": 300}),
        ({}, {"add_bos": False}),
        ({}, {"eos": IM_END}),
    ],
)
def test_the_verdict_is_the_same(
    target: dict[str, object], draft: dict[str, object], load: Load
) -> None:
    one, other = load(**target), load(**draft)
    verdict = mismatch(one.loaded, other.loaded)
    assert mismatch(one.file, other.file) == verdict
    assert mismatch(one.file, other.loaded) == verdict


def test_a_file_without_a_tokenizer(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", n_vocab=5000)
    with pytest.raises(CatalogError, match="has no tokenizer"):
        FileVocabulary(read_header(path))  # the tokens were not asked for


def test_a_token_out_of_range_has_a_name(load: Load) -> None:
    file = load().file
    assert file.name(-1) == "token -1"
    assert file.name(file.size) == f"token {file.size}"
