"""What a stream tells about its tokens: who proposed them, what they say, what was rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgespec.errors import BackendError, EngineClosedError, OptionError
from edgespec.types import TARGET, Chunk
from tests.fake_chat import chatting
from tests.fake_engine import PROMPT, WARM, Loaded

ANSWER = "Grün ist die Farbe der Hoffnung: 🦙."
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Sag was."}], "temperature": 0.0}


@pytest.fixture
def loaded() -> Iterator[Loaded]:
    made = Loaded(chatting(lambda question: ANSWER), k=3)
    yield made
    made.model.release()
    made.engine.close()


def all_of(loaded: Loaded) -> list[Chunk]:
    return list(loaded.engine.stream(**ASK))


def test_pieces_are_the_text_token_by_token(loaded: Loaded) -> None:
    for chunk in all_of(loaded):
        assert "".join(piece.text for piece in chunk.pieces) == chunk.text
        assert all(piece.text for piece in chunk.pieces)
        assert len(chunk.pieces) <= sum(len(step.tokens) for step in chunk.steps)


def test_pieces_carry_the_source_of_their_token(loaded: Loaded) -> None:
    chunks = all_of(loaded)
    sources = [piece.source for chunk in chunks for piece in chunk.pieces]
    assert {TARGET, "half"} == set(sources)
    # One token is one byte, and no character here has several but ü and the llama.
    steps = [step for chunk in chunks for step in chunk.steps]
    by_token = [source for step in steps for source in step.sources]
    letters = ANSWER.encode().index("ü".encode())
    assert sources[:letters] == by_token[:letters]


def test_a_character_of_several_tokens_belongs_to_the_one_that_completes_it(
    loaded: Loaded,
) -> None:
    chunks = all_of(loaded)
    steps = [step for chunk in chunks for step in chunk.steps]
    by_token = [source for step in steps for source in step.sources]
    last_byte = ANSWER.encode().index("🦙".encode()) + 3
    (llama,) = [p for chunk in chunks for p in chunk.pieces if p.text == "🦙"]
    assert llama.source == by_token[last_byte]


def test_text_that_was_held_back_is_in_the_pieces(loaded: Loaded) -> None:
    chunks = list(loaded.engine.stream(**ASK, stop=[ANSWER[-5:] + "#"]))
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    assert "".join(piece.text for piece in pieces) == ANSWER


def test_rejected_tokens_are_told(loaded: Loaded) -> None:
    steps = [step for chunk in all_of(loaded) for step in chunk.steps]
    assert any(step.rejected for step in steps)
    for step in steps:
        assert step.drafted == step.accepted + len(step.rejected)
        if step.rejected and len(step.tokens) > step.accepted:  # not where the answer ended
            # What the drafter of the fake gets wrong is wrong by one.
            right = step.tokens[step.accepted]
            assert step.rejected[0] == (right + 1) % 256


def test_the_text_of_tokens(loaded: Loaded) -> None:
    assert loaded.engine.detokenize(list("grün".encode())) == "grün"
    assert loaded.engine.detokenize(list("ü".encode()[:1])) == "�"
    assert loaded.engine.detokenize([]) == ""
    for token in (-1, 10**9):
        with pytest.raises(OptionError, match="token id outside"):
            loaded.engine.detokenize([token])
    loaded.engine.close()
    with pytest.raises(EngineClosedError):
        loaded.engine.detokenize([65])


def test_what_is_ready_is_there_without_waiting(loaded: Loaded) -> None:
    loaded.model.hold()
    generation = loaded.submit(max_tokens=3)
    loaded.model.wait(1)
    assert generation.ready() == []
    loaded.model.release()
    chunks: list[Chunk] = []
    while not chunks or chunks[-1].completion is None:
        chunks += generation.ready()
    assert generation.ready() == []
    assert chunks[-1].completion is not None
    assert chunks[-1].completion.text == "".join(chunk.text for chunk in chunks)


def test_an_error_comes_after_what_was_there_before_it(loaded: Loaded) -> None:
    loaded.model.hold()
    generation = loaded.engine.submit(**ASK)
    loaded.model.let(1)
    loaded.model.wait(2)
    loaded.model.fail_next = BackendError("it broke")
    loaded.model.release()
    chunks: list[Chunk] = []

    def read_all() -> None:
        while True:
            chunks.extend(generation.ready())

    with pytest.raises(BackendError, match="it broke"):
        read_all()
    assert chunks
    assert chunks[-1].completion is None


def test_plain_speed_is_only_known_where_it_was_measured(loaded: Loaded) -> None:
    assert loaded.engine.plain_token_s(100) is None  # k is a number here
    assert loaded.generate(PROMPT, **{**WARM, "max_tokens": 2}).tokens
