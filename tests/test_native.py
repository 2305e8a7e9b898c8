"""llama.cpp's own loop on a tiny model, against edgespec's plain decoding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from edgespec.llama.native import NativeLoop
from edgespec.loading import LoadedPair, load_pair, native_loop
from tests.tiny_gguf import write_tiny_gguf


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LoadedPair]:
    path = tmp_path / "target.gguf"
    write_tiny_gguf(path, seed=1)
    loaded = load_pair(target=path, n_ctx=512, exact="off")  # on the cache llama.cpp uses
    yield loaded
    loaded.engine.close()


@pytest.fixture
def native(pair: LoadedPair) -> Iterator[NativeLoop]:
    with native_loop(pair) as loop:
        yield loop


def test_it_gives_the_tokens_of_plain_decoding(pair: LoadedPair, native: NativeLoop) -> None:
    for text in ("Once upon a time", "word " * 80):
        prompt = pair.engine.tokenize(text)
        plain = pair.engine.generate(text, max_tokens=30, temperature=0, num_draft_tokens=0)
        native.forget()
        answer = pair.engine.exclusively(partial(native.generate, prompt, 30))
        assert answer.tokens == plain.tokens
        assert answer.cached == 0
        assert 0 < answer.first_s < answer.total_s


def test_a_later_turn_reads_only_what_is_new(pair: LoadedPair, native: NativeLoop) -> None:
    first = pair.engine.tokenize("Once upon a time")

    def both() -> None:
        began = native.generate(first, 8)
        second = [*first, *began.tokens, *pair.engine.tokenize(" and then")]
        again = native.generate(second, 8)
        assert again.cached == len(first) + len(began.tokens) - 1
        native.forget()
        anew = native.generate(second, 8)
        assert anew.cached == 0
        assert anew.tokens == again.tokens

    pair.engine.exclusively(both)


def test_it_stops_at_max_tokens_and_at_the_end(pair: LoadedPair, native: NativeLoop) -> None:
    prompt = pair.engine.tokenize("Hello")
    assert len(pair.engine.exclusively(lambda: native.generate(prompt, 1)).tokens) == 1
    plain = pair.engine.generate("Hello", temperature=0, num_draft_tokens=0)
    native.forget()
    room = pair.engine.info.n_ctx - len(prompt)
    whole = pair.engine.exclusively(lambda: native.generate(prompt, room))
    assert whole.tokens == plain.tokens
