"""The tokenizer in a model: texts come back, control tokens stay control tokens, pairs that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.errors import IncompatibleDraftError
from edgespec.llama.model import Model
from edgespec.llama.vocabulary import Vocabulary, check_compatible
from tests import tiny_gguf
from tests.tiny_gguf import BOS, EOS, FIRST_BYTE, FIRST_PAIR, IM_END, IM_START, write_tiny_gguf

Load = Callable[..., Vocabulary]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    model = Model(write_tiny_gguf(tmp_path_factory.mktemp("vocabulary") / "m.gguf"))
    yield model.vocabulary
    model.close()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads a tiny model written with these options; closes all at the end."""
    models: list[Model] = []

    def one(**options: object) -> Vocabulary:
        path = tmp_path / f"{len(models)}.gguf"
        models.append(Model(write_tiny_gguf(path, **options)))  # type: ignore[arg-type]
        return models[-1].vocabulary

    yield one
    for model in models:
        model.close()


def untokenize(vocabulary: Vocabulary, tokens: list[int]) -> str:
    return b"".join(map(vocabulary.piece, tokens)).decode("utf-8")


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_texts_come_back(vocabulary: Vocabulary, text: str) -> None:
    # The small tokenizer writes what Unicode calls unassigned or private like any other byte.
    tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
    assert all(0 <= token < vocabulary.size for token in tokens)
    assert untokenize(vocabulary, tokens) == text


@given(st.lists(st.sampled_from([*tiny_gguf.SPECIAL, "a", "ee ", "<|", "|>", "im_end"])))
@settings(max_examples=100, deadline=None)
def test_a_user_cannot_write_control_tokens(vocabulary: Vocabulary, parts: list[str]) -> None:
    text = "".join(parts)
    tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
    assert all(token >= FIRST_BYTE for token in tokens)
    assert untokenize(vocabulary, tokens) == text


def test_a_template_can(vocabulary: Vocabulary) -> None:
    text = "<|im_start|>a<|im_end|>"
    tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
    assert tokens == [IM_START, FIRST_BYTE + ord("a"), IM_END]


def test_lone_surrogates_do_not_crash(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokenize("a\ud800b", add_special=False, parse_special=False)
    assert untokenize(vocabulary, tokens) == "a?b"


def test_nothing_is_no_tokens(vocabulary: Vocabulary) -> None:
    assert vocabulary.tokenize("", add_special=False, parse_special=False) == []
    assert vocabulary.tokenize("", add_special=True, parse_special=False) == [BOS]


def test_long_texts(vocabulary: Vocabulary) -> None:
    text = "teen tee " * 20_000
    assert untokenize(vocabulary, vocabulary.tokenize(text, add_special=False, parse_special=True))


def test_names_pieces_and_ends(vocabulary: Vocabulary) -> None:
    assert vocabulary.name(IM_END) == "<|im_end|>"
    assert vocabulary.name(FIRST_PAIR) == "ee"
    assert vocabulary.name(-1) == "<-1>"
    assert vocabulary.name(vocabulary.size) == f"<{vocabulary.size}>"
    assert vocabulary.piece(IM_END) == b""
    assert vocabulary.piece(FIRST_PAIR) == b"ee"
    assert vocabulary.piece(FIRST_BYTE + 0xFF) == b"\xff"
    ends = {token for token in range(vocabulary.size) if vocabulary.ends_generation(token)}
    assert ends == {EOS, IM_END}


def test_a_token_of_many_bytes(load: Load) -> None:
    vocabulary = load(token_texts={FIRST_PAIR + 3: "long" * 40})
    assert vocabulary.piece(FIRST_PAIR + 3) == b"long" * 40


def test_the_same_vocabulary_fits(load: Load) -> None:
    check_compatible(load(), load(seed=1, arch="mamba"))


def test_the_first_difference_is_named(load: Load) -> None:
    at, later = FIRST_PAIR + 9, FIRST_PAIR + 12
    usual, changed = load(), load(token_texts={at: "~~", later: "~e"})
    with pytest.raises(IncompatibleDraftError) as caught:
        check_compatible(usual, changed)
    assert f"token {at} is {usual.name(at)!r} in one and '~~' in the other" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_special_tokens_may_be_written_differently(load: Load) -> None:
    check_compatible(load(), load(token_texts={0: "<|start|>", 4: "<|padding|>"}))
    with pytest.raises(IncompatibleDraftError, match="token 5 is"):
        check_compatible(load(), load(token_texts={5: "<|five|>"}))


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(("size", "fits"), [(428, True), (429, False)])
def test_sizes_may_differ_a_little(size: int, fits: bool, swap: bool, load: Load) -> None:
    pair = [load(n_vocab=300), load(n_vocab=size)]
    if swap:
        pair.reverse()
    if fits:
        check_compatible(*pair)
        return
    numbers = f"{pair[0].size} and {pair[1].size} tokens"
    with pytest.raises(IncompatibleDraftError, match=numbers):
        check_compatible(*pair)


def test_texts_must_begin_alike(load: Load) -> None:
    with pytest.raises(IncompatibleDraftError, match=r"begin texts.*with '<\|bos\|>', without"):
        check_compatible(load(), load(add_bos=False))


def test_another_end_matters_only_where_it_is_added(load: Load) -> None:
    """llama.cpp's rule: the target decides when to end, and no EOS is put into prompts here."""
    check_compatible(load(), load(eos=IM_END))


def test_tokenizers_of_other_types_do_not_fit(load: Load) -> None:
    one, other = load(), load()
    other.type = "SPM"
    with pytest.raises(IncompatibleDraftError, match="of different types"):
        check_compatible(one, other)
