"""Vectors of tiny models, against what llama.cpp says of every token alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from numpy.typing import NDArray

from edgespec.errors import BackendError, ContextFullError, ModelLoadError
from edgespec.llama.embedding import Embedder, pooling
from edgespec.llama.model import Model
from tests.tiny_gguf import ARCHITECTURES, CHANNELS, FIRST_BYTE, write_tiny_gguf

MEAN, FIRST, LAST, RANK = 1, 2, 3, 4
# Longer than what is read in one pass.
TOKENS = [FIRST_BYTE + 37 * at % 256 for at in range(300)]
CLOSE = 5e-3  # pieces and whole differ by rounding; a wrong token makes 0.01 to 0.6


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Any]:
    opened: list[Any] = []

    def one(kind: int | None, arch: str = "llama", **options: Any) -> Embedder:
        path = write_tiny_gguf(tmp_path / f"{len(opened)}.gguf", arch=arch, pooling=kind)
        model = Model(path)
        embedder = Embedder(model, **{"n_ctx": 512, "threads": 1, **options})
        opened[:0] = [embedder, model]
        return embedder

    yield one
    for each in opened:
        each.close()


def of_all_tokens(model: Model, tokens: list[int]) -> NDArray[np.float32]:
    """One vector for each token, by one pass over all."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    params.embeddings = True
    params.pooling_type = 0
    context = llama_cpp.llama_init_from_model(model.handle, params)
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))) == 0
    rows = [
        np.array(
            np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_ith(context, at), (CHANNELS,))
        )
        for at in range(len(tokens))
    ]
    llama_cpp.llama_free(context)
    return np.array(rows)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", [MEAN, FIRST, LAST])
def test_the_vector_is_that_of_all_tokens(load: Any, arch: str, kind: int) -> None:
    embedder = load(kind, arch)
    for tokens in (TOKENS, TOKENS[:1], TOKENS[:257], TOKENS[5:90]):
        rows = of_all_tokens(embedder._model, tokens)
        right = {MEAN: rows.mean(axis=0), FIRST: rows[0], LAST: rows[-1]}[kind]
        found = embedder.embed(tokens)
        assert len(found) == embedder.size == CHANNELS
        assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)
        assert np.allclose(found, right / np.linalg.norm(right), atol=CLOSE)


def test_a_text_leaves_nothing_behind(load: Any) -> None:
    embedder = load(LAST)
    alone = embedder.embed(TOKENS[:20])
    embedder.embed(TOKENS[50:200])
    assert embedder.embed(TOKENS[:20]) == alone


@pytest.mark.parametrize("kind", [None, 0, RANK])
def test_other_models_make_none(kind: int | None, tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "model.gguf", pooling=kind))
    assert pooling(model) == 0
    model.close()


def test_what_is_too_long_is_refused_and_what_fits_is_not(load: Any) -> None:
    embedder = load(MEAN, n_ctx=32)
    assert len(embedder.embed(TOKENS[:32])) == CHANNELS
    with pytest.raises(ContextFullError) as caught:
        embedder.embed(TOKENS[:33])
    assert (caught.value.prompt_tokens, caught.value.n_ctx) == (33, 32)


def test_the_context_is_no_longer_than_the_model_was_trained_for(load: Any) -> None:
    with pytest.raises(ContextFullError, match="at most 512"):
        load(MEAN, n_ctx=4096).embed([FIRST_BYTE] * 513)


def test_where_pieces_are_not_exact_only_one_is_read(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where tokens see those after them. Here: whatever is read in pieces comes out wrong."""
    pooled = Embedder._pooled

    def wrong(self: Embedder, tokens: Any, rows: int) -> Any:
        return pooled(self, tokens, rows) * (1.0 if len(tokens) <= rows else -1.0)

    monkeypatch.setattr(Embedder, "_pooled", wrong)
    embedder = load(LAST)
    assert embedder.embed(TOKENS[:256])
    with pytest.raises(ContextFullError, match="at most 256"):
        embedder.embed(TOKENS[:257])


def test_no_memory_for_the_context(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_init_from_model", lambda *_: None)
        embedder = load(MEAN)
        with pytest.raises(ModelLoadError, match="no memory for embeddings"):
            embedder.embed(TOKENS)
    assert embedder.embed(TOKENS)


def test_a_failed_pass_is_told_and_the_next_works(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = load(MEAN)
    for _ in range(2):  # while the context is opened, and later
        with monkeypatch.context() as patch:
            patch.setattr(llama_cpp, "llama_decode", lambda *_: -3)
            with pytest.raises(BackendError, match=r"llama\.cpp failed"):
                embedder.embed(TOKENS)
        assert embedder.embed(TOKENS)


def test_close_may_come_twice_or_before_anything(load: Any) -> None:
    embedder = load(MEAN)
    embedder.close()
    embedder.embed(TOKENS)
    embedder.close()
    embedder.close()
