"""The tiny models load in llama.cpp, tokenise without loss, and behave like models."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests import tiny_gguf
from tests.tiny_gguf import ARCHITECTURES, write_tiny_gguf

PROMPT = (tiny_gguf.BOS, 50, 60, 70)

# Kept for good: llama.cpp calls it whenever it has something to say.
_silence = llama_cpp.llama_log_callback(lambda level, text, user_data: None)


class Loaded:
    """The few calls of the low-level API these tests need."""

    def __init__(self, path: Path) -> None:
        llama_cpp.llama_log_set(_silence, ctypes.c_void_p(0))
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = False  # repacked weights: another code path per processor
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        self.context = None

    def start(self) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = 128
        params.n_threads = params.n_threads_batch = 1
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        assert self.context

    def close(self) -> None:
        if self.context:
            llama_cpp.llama_free(self.context)
        if self.model:
            llama_cpp.llama_model_free(self.model)

    @property
    def vocab(self) -> object:
        return llama_cpp.llama_model_get_vocab(self.model)

    @property
    def n_vocab(self) -> int:
        return int(llama_cpp.llama_vocab_n_tokens(self.vocab))

    def texts(self) -> list[bytes]:
        return [llama_cpp.llama_vocab_get_text(self.vocab, at) for at in range(self.n_vocab)]

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 2))()
        count = llama_cpp.llama_tokenize(
            self.vocab, data, len(data), room, len(room), special, special
        )
        return list(room[:count])

    def detokenize(self, tokens: Sequence[int]) -> str:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        room = ctypes.create_string_buffer(16 * len(tokens) + 16)
        count = llama_cpp.llama_detokenize(
            self.vocab, ids, len(tokens), room, len(room), False, True
        )
        return room.raw[:count].decode()

    def decode(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens to sequence 0; the logits after the last one."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = llama_cpp.llama_batch_get_one(ids, len(tokens))
        assert llama_cpp.llama_decode(self.context, batch) == 0
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, (self.n_vocab,)).copy()

    def rewind(self, length: int) -> bool:
        memory = llama_cpp.llama_get_memory(self.context)
        return bool(llama_cpp.llama_memory_seq_rm(memory, 0, length, -1))

    def greedy(self, count: int) -> tuple[list[int], list[NDArray[np.float32]]]:
        logits = [self.decode(PROMPT)]
        tokens = [int(logits[-1].argmax())]
        while len(tokens) < count:
            logits.append(self.decode(tokens[-1:]))
            tokens.append(int(logits[-1].argmax()))
        return tokens, logits


@contextmanager
def loaded(path: Path, start: bool = True) -> Iterator[Loaded]:
    model = Loaded(path)
    try:
        assert model.model, f"{path.name} does not load"
        if start:
            model.start()
        yield model
    finally:
        model.close()


def loads(path: Path) -> bool:
    model = Loaded(path)
    model.close()
    return bool(model.model)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_generates_finite_varied_and_decided_logits(arch: str, tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "m.gguf", arch=arch)) as model:
        tokens, logits = model.greedy(50)
    top = np.sort(np.stack(logits))[:, -2:]
    assert np.isfinite(logits).all()
    assert len(set(tokens)) >= 15
    assert np.median(top[:, 1] - top[:, 0]) > 0.2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logits_depend_on_earlier_tokens(arch: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", arch=arch)
    with loaded(path) as model, loaded(path) as other:
        difference = model.decode((50, 60, 70)) - other.decode((51, 60, 70))
    assert np.abs(difference).max() > 0.5


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q4_0"])
def test_other_weight_types_load_and_run(arch: str, quant: str, tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "m.gguf", arch=arch, quant=quant)) as model:
        assert np.isfinite(model.decode(PROMPT)).all()


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world!",
        "spaces before punctuation , and  double  spaces .\n\n\tTabs",
        "the letters and pairs tee tea tot 12345",
        "Grüße, 東京, 🦊",
        "\x00\x07\x7f",
        "",
    ],
)
def test_texts_come_back_unchanged(text: str, tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "m.gguf"), start=False) as model:
        assert model.detokenize(model.tokenize(text)) == text


def test_special_tokens_are_recognised(tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "m.gguf"), start=False) as model:
        tokens = model.tokenize("<|im_start|>a<|im_end|>", special=True)
        letter = tiny_gguf.FIRST_BYTE + ord("a")
        assert tokens == [tiny_gguf.BOS, tiny_gguf.IM_START, letter, tiny_gguf.IM_END]
        assert model.tokenize("tt")[0] > tiny_gguf.FIRST_PAIR
        ends = [t for t in range(300) if llama_cpp.llama_vocab_is_eog(model.vocab, t)]
        assert ends == [tiny_gguf.EOS, tiny_gguf.IM_END]
        assert llama_cpp.llama_vocab_eos(model.vocab) == tiny_gguf.EOS


def test_tokenizer_options_are_written(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", add_bos=False, eos=tiny_gguf.IM_END, n_vocab=1200)
    with loaded(path) as model:
        assert not llama_cpp.llama_vocab_get_add_bos(model.vocab)
        assert llama_cpp.llama_vocab_eos(model.vocab) == tiny_gguf.IM_END
        assert model.n_vocab == 1200
        assert np.isfinite(model.decode(PROMPT)).all()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_same_arguments_same_bytes(arch: str, tmp_path: Path) -> None:
    def write(name: str, seed: int) -> bytes:
        return write_tiny_gguf(tmp_path / name, arch=arch, seed=seed).read_bytes()

    assert write("a", 7) == write("b", 7)
    assert write("a", 7) != write("b", 8)


def test_seeds_give_different_models(tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "a.gguf", seed=1)
    second = write_tiny_gguf(tmp_path / "b.gguf", seed=2)
    with loaded(first) as model, loaded(second) as other:
        assert model.greedy(10)[0] != other.greedy(10)[0]


def test_a_noisy_copy_often_agrees(tmp_path: Path) -> None:
    target = write_tiny_gguf(tmp_path / "a.gguf")
    draft = write_tiny_gguf(tmp_path / "b.gguf", noise=0.05)
    with loaded(target) as model, loaded(draft) as other:
        tokens, _ = model.greedy(50)
        guesses = [other.decode([*PROMPT]), *(other.decode([token]) for token in tokens[:-1])]
    agreed = sum(int(guess.argmax()) == token for guess, token in zip(guesses, tokens, strict=True))
    assert 20 <= agreed < 50


@pytest.mark.parametrize(("arch", "can"), [("llama", True), ("lfm2", False), ("mamba", False)])
def test_who_can_drop_tokens(arch: str, can: bool, tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "m.gguf", arch=arch)) as model:
        model.decode(PROMPT)
        assert model.rewind(2) is can
        assert llama_cpp.llama_model_is_recurrent(model.model) == (arch == "mamba")
        assert llama_cpp.llama_model_is_hybrid(model.model) == (arch == "lfm2")


def test_gemma3_has_a_sliding_window(tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "m.gguf", arch="gemma3"), start=False) as model:
        assert llama_cpp.llama_model_n_swa(model.model) == tiny_gguf.WINDOW


def test_the_chat_template_can_be_left_out(tmp_path: Path) -> None:
    with loaded(write_tiny_gguf(tmp_path / "a.gguf"), start=False) as model:
        template = llama_cpp.llama_model_chat_template(model.model, None)
        assert template.decode() == tiny_gguf.CHATML
    with loaded(write_tiny_gguf(tmp_path / "b.gguf", chat_template=None), start=False) as model:
        assert llama_cpp.llama_model_chat_template(model.model, None) is None


def test_a_changed_vocabulary_differs_at_one_token(tmp_path: Path) -> None:
    usual = write_tiny_gguf(tmp_path / "a.gguf")
    changed = tiny_gguf.write_changed_vocabulary(tmp_path / "b.gguf", token=277)
    with loaded(usual, start=False) as model, loaded(changed, start=False) as other:
        pairs = zip(model.texts(), other.texts(), strict=True)
        assert [at for at, (text, new) in enumerate(pairs) if text != new] == [277]
        assert other.detokenize(other.tokenize("eel ~~ ten")) == "eel ~~ ten"


@pytest.mark.parametrize(
    "write",
    [
        tiny_gguf.write_truncated,
        tiny_gguf.write_wrong_magic,
        tiny_gguf.write_unsupported_architecture,
    ],
)
def test_broken_files_do_not_load(write: object, tmp_path: Path) -> None:
    assert callable(write)
    assert not loads(write(tmp_path / "m.gguf"))


def test_a_vocabulary_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="n_vocab"):
        write_tiny_gguf(tmp_path / "m.gguf", n_vocab=tiny_gguf.FIRST_PAIR)
