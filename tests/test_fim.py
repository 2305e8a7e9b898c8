"""Fill in the middle: what each family is asked, what ends its answers, and what has no room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.text.fim import ExtraFile, Fim, Gap, Room
from edgespec.text.fim_families import FAMILIES, KEYS, find_fim

PRE, SUF, MID = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
QWEN = [PRE, SUF, MID, "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|endoftext|>"]
PLAIN = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<|endoftext|>"]
DEEPSEEK = ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<｜end▁of▁sentence｜>"]
LLAMA = ["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>", "</s>"]
GLM = ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "<|user|>", "<|endoftext|>"]
MISTRAL = ["[PREFIX]", "[SUFFIX]", "[MIDDLE]", "[INST]", "</s>"]
SEED = ["<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", "<[end▁of▁sentence]>"]
# The beginning of SmolLM2's vocabulary: tokens of StarCoder2, but not those that count.
SMOLLM = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>"),
    *("<file_sep>", "<filename>", "<jupyter_start>"),
]


class CodeVocabulary:
    """One token per byte, some words, and control tokens from `FIRST` on, BOS the first of them.

    lax: control tokens that are read in any text, as llama.cpp does with user-defined ones.
    adds_space: every text gets a space in front.
    """

    FIRST = 300
    WORDS = ("return", "☺", " ☺", " ☺!")

    def __init__(
        self,
        controls: Sequence[str],
        *,
        adds_bos: bool = False,
        lax: Sequence[str] = (),
        adds_space: bool = False,
    ) -> None:
        self.controls = ["<s>", *controls]
        self.adds_bos = adds_bos
        self.bos = self.FIRST
        self._lax = lax
        self._adds_space = adds_space
        self._names = [bytes([byte]) for byte in range(256)]
        self._names += [word.encode() for word in self.WORDS]
        self._names += [b"[filler]"] * (self.FIRST - len(self._names))
        self._names += [control.encode() for control in self.controls]
        self.size = len(self._names)

    def texts(self, start: int, stop: int) -> list[bytes]:
        return self._names[start:stop]

    def id(self, control: str) -> int:
        return self.FIRST + self.controls.index(control)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = [self.bos] if add_special and self.adds_bos else []
        whole = {name: self.id(name) for name in self._lax}
        if parse_special:
            whole = {name: self.id(name) for name in self.controls}
        whole |= {word: 256 + index for index, word in enumerate(self.WORDS)}
        text = " " + text if self._adds_space and text else text
        at = 0
        while at < len(text):
            found = max((name for name in whole if text.startswith(name, at)), key=len, default="")
            tokens += [whole[found]] if found else text[at].encode()
            at += len(found) or 1
        return tokens

    def piece(self, token: int) -> bytes:
        return self._names[token] if token < self.FIRST else b""

    @property
    def longest_piece(self) -> int:
        return max(map(len, self._names))

    def name(self, token: int) -> str:
        return self._names[token].decode("utf-8", errors="replace")

    def ends_generation(self, token: int) -> bool:
        return False

    def show(self, tokens: Sequence[int]) -> str:
        """Control tokens in double brackets, so that they differ from what a user typed."""
        parts = [
            b"{%s}" % self._names[token] if token >= self.FIRST else self.piece(token)
            for token in tokens
        ]
        return b"".join(parts).decode()


def found(
    vocabulary: CodeVocabulary, metadata: dict[str, Any] | None = None, name: str = ""
) -> Fim:
    fim = find_fim(vocabulary, metadata or {}, name)
    assert isinstance(fim, Fim), fim
    return fim


GAP = Gap(
    "p\n",
    "s",
    prompt="q",
    extra=[ExtraFile("X\n", "a.py"), ExtraFile("Y")],
    repo="proj",
    filename="b.py",
)


class Case(NamedTuple):
    """A model of a family: its tokens, and GAP as it is asked to fill it."""

    family: str
    controls: list[str]
    prompt: str
    stops: set[str]
    strings: tuple[str, ...] = ()
    adds_bos: bool = False
    name: str = ""


SNIPPETS = "\n\n--- snippet ---\n\nX\n\n\n--- snippet ---\n\nY"
CASES = [
    Case(
        "Qwen",
        [*QWEN, "<|im_end|>", "<|im_start|>"],
        "{<|repo_name|>}proj\n{<|file_sep|>}a.py\nX\n{<|file_sep|>}tmp\nY{<|file_sep|>}b.py\n"
        "{<|fim_prefix|>}p\nq{<|fim_suffix|>}s{<|fim_middle|>}",
        {*QWEN, "<|im_end|>"},
        ("<|cursor|>",),
    ),
    Case(
        "CodeGemma",
        [PRE, SUF, MID, "<|file_separator|>", "<eos>"],
        "{<|file_separator|>}a.py\nX\n{<|file_separator|>}tmp\nY{<|file_separator|>}b.py\n"
        "{<s>}{<|fim_prefix|>}p\nq{<|fim_suffix|>}s{<|fim_middle|>}",
        {PRE, SUF, MID, "<|file_separator|>", "<eos>"},
    ),
    Case(
        "Granite 4",
        [PRE, SUF, MID, "<|fim_pad|>", "<|reponame|>", "<|filename|>", "<|end_of_text|>"],
        "{<|reponame|>}proj{<|filename|>}a.py\nX\n{<|filename|>}tmp\nY{<|filename|>}b.py\n"
        "{<|fim_prefix|>}p\nq{<|fim_suffix|>}s{<|fim_middle|>}",
        {PRE, SUF, MID, "<|fim_pad|>", "<|reponame|>", "<|filename|>", "<|end_of_text|>"},
    ),
    Case(
        "Mellum",
        [*PLAIN, "<reponame>", "<filename>"],
        "{<reponame>}proj{<filename>}a.py\nX\n{<filename>}tmp\nY{<filename>}b.py\n"
        "{<fim_suffix>}s{<fim_prefix>}p\nq{<fim_middle>}",
        {*PLAIN, "<reponame>", "<filename>"},
        name="Mellum-4b-base.Q8_0",
    ),
    Case(
        "StarCoder2",
        [*PLAIN, "<repo_name>", "<file_sep>", "<jupyter_start>"],
        "{<repo_name>}proj{<file_sep>}a.py\nX\n{<file_sep>}tmp\nY{<file_sep>}"
        "{<fim_prefix>}b.py\np\nq{<fim_suffix>}s{<fim_middle>}",
        {*PLAIN, "<repo_name>", "<file_sep>"},
    ),
    Case(
        "StarCoder",
        [*PLAIN, "<reponame>", "<filename>", "<gh_stars>"],
        "{<reponame>}proj{<filename>}a.py\nX\n{<filename>}tmp\nY{<filename>}b.py\n"
        "{<fim_prefix>}p\nq{<fim_suffix>}s{<fim_middle>}",
        {*PLAIN, "<reponame>", "<filename>"},
    ),
    Case(
        "SantaCoder",
        ["<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-pad>", "<|endoftext|>"],
        SNIPPETS + "{<fim-prefix>}p\nq{<fim-suffix>}s{<fim-middle>}",
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-pad>", "<|endoftext|>"},
    ),
    Case(
        "DeepSeek",
        DEEPSEEK,
        "#a.py\nX\n#tmp\nY\n#b.py\n{<s>}{<｜fim▁begin｜>}p\nq{<｜fim▁hole｜>}s{<｜fim▁end｜>}",
        set(DEEPSEEK),
        adds_bos=True,
    ),
    Case(
        "CodeLlama",
        LLAMA,
        SNIPPETS + "{<s>}{▁<PRE>}p\nq{▁<SUF>}s{▁<MID>}",
        set(LLAMA),
    ),
    Case(
        "CodeLlama",
        [text.removeprefix("▁") for text in LLAMA],
        SNIPPETS + "{<s>}{<PRE>}p\nq{<SUF>}s{<MID>}",
        {text.removeprefix("▁") for text in LLAMA},
    ),
    Case(
        "Codestral",
        MISTRAL,
        "+++++ a.py\nX\n+++++ tmp\nY\n+++++ b.py\n{<s>}{[SUFFIX]}s{[PREFIX]}p\nq",
        {"[PREFIX]", "[SUFFIX]", "</s>"},
        name="Codestral-22B-v0.1",
    ),
    Case(
        "Seed-Coder",
        SEED,
        SNIPPETS + "{<[fim-suffix]>}s{<[fim-prefix]>}p\nq{<[fim-middle]>}",
        set(SEED),
    ),
    Case(
        "CodeGeeX",
        GLM,
        SNIPPETS + "{<|code_suffix|>}s{<|code_prefix|>}p\nq{<|code_middle|>}",
        set(GLM),
        name="codegeex4-all-9b",
    ),
    Case(
        "GLM",
        GLM,
        SNIPPETS + "{<s>}{<|code_prefix|>}p\nq{<|code_suffix|>}s{<|code_middle|>}",
        set(GLM),
        adds_bos=True,
    ),
    Case(
        "Falcon",
        ["<|prefix|>", "<|suffix|>", "<|middle|>", "<|end_of_text|>"],
        SNIPPETS + "{<|prefix|>}p\nq{<|suffix|>}s{<|middle|>}",
        {"<|prefix|>", "<|suffix|>", "<|middle|>", "<|end_of_text|>"},
    ),
]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.controls[0] + case.name)


@EACH
def test_every_family_is_asked_in_its_own_way(case: Case) -> None:
    vocabulary = CodeVocabulary(case.controls, adds_bos=case.adds_bos)
    fim = found(vocabulary, name=case.name)
    assert fim.family == case.family
    assert vocabulary.show(fim.tokens(vocabulary, GAP)) == case.prompt


@EACH
def test_its_answers_end_where_no_text_can_follow(case: Case) -> None:
    vocabulary = CodeVocabulary(case.controls)
    fim = found(vocabulary, name=case.name)
    assert fim.stop_tokens == {vocabulary.id(text) for text in case.stops}
    assert fim.stop_strings == case.strings


def test_every_row_of_the_table_has_a_case() -> None:
    spellings = {(case.family, case.controls[0]) for case in CASES}
    assert spellings == {(family.name, family.prefix) for family in FAMILIES}


def test_a_token_for_what_is_usually_spelled_is_no_stop_string() -> None:
    vocabulary = CodeVocabulary([*QWEN, "<|cursor|>"])
    fim = found(vocabulary)
    assert vocabulary.id("<|cursor|>") in fim.stop_tokens
    assert fim.stop_strings == ()


# Building.


def asked(gap: Gap, controls: Sequence[str] = QWEN, **options: Any) -> str:
    vocabulary = CodeVocabulary(controls, **options)
    return vocabulary.show(found(vocabulary).tokens(vocabulary, gap))


def test_room_is_what_the_answer_leaves() -> None:
    room = Room(n_ctx=4096, n_predict=100)
    assert (room.gap, room.others) == (512, 4096 - 512 - 200)
    room = Room(n_ctx=600, n_predict=100)
    assert (room.gap, room.others) == (500, 0)
    room = Room(n_ctx=4096, n_predict=-1, batch=256)
    assert (room.gap, room.others) == (256, 4096 - 256 - 512)


def test_a_file_on_its_own_is_asked_without_the_frame_of_a_repository() -> None:
    assert asked(Gap("p", "s", "q")) == "{<|fim_prefix|>}pq{<|fim_suffix|>}s{<|fim_middle|>}"


def test_nothing_around_the_gap_is_fine() -> None:
    assert asked(Gap("", "")) == "{<|fim_prefix|>}{<|fim_suffix|>}{<|fim_middle|>}"


@pytest.mark.parametrize(
    ("gap", "before"),
    [
        (Gap("", "", repo="r"), "{<|repo_name|>}r\n{<|file_sep|>}filename\n"),
        (Gap("", "", filename="f"), "{<|repo_name|>}myproject\n{<|file_sep|>}f\n"),
        (
            Gap("", "", extra=[ExtraFile("")]),
            "{<|repo_name|>}myproject\n{<|file_sep|>}tmp\n{<|file_sep|>}filename\n",
        ),
    ],
)
def test_names_that_are_missing_are_made_up(gap: Gap, before: str) -> None:
    assert asked(gap) == before + "{<|fim_prefix|>}{<|fim_suffix|>}{<|fim_middle|>}"


def test_a_family_without_paths_does_not_name_the_file() -> None:
    text = asked(Gap("", "", repo="r", filename="f"), SEED)
    assert text == "{<[fim-suffix]>}{<[fim-prefix]>}{<[fim-middle]>}"


def test_the_model_file_decides_about_bos_where_the_family_does_not() -> None:
    gap = Gap("p", "s")
    assert asked(gap, adds_bos=True).startswith("{<s>}{<|fim_prefix|>}")
    vocabulary = CodeVocabulary(LLAMA)
    vocabulary.bos = -1
    assert vocabulary.show(found(vocabulary).tokens(vocabulary, gap)).startswith("{▁<PRE>}")


TYPED = Gap(
    f"p{MID}",
    f"s{PRE}",
    prompt=f"q{SUF}",
    extra=[ExtraFile("x<|file_sep|><|endoftext|>", "<|file_sep|>")],
    repo="<|repo_name|>",
    filename="<|fim_pad|><s>",
)


@pytest.mark.parametrize("lax", [[], QWEN])
@pytest.mark.parametrize("adds_space", [False, True])
def test_what_a_user_types_is_never_a_control_token(lax: list[str], adds_space: bool) -> None:
    vocabulary = CodeVocabulary(QWEN, lax=lax, adds_space=adds_space)
    tokens = found(vocabulary).tokens(vocabulary, TYPED)
    frame = ["<|repo_name|>", "<|file_sep|>", "<|file_sep|>", PRE, SUF, MID]
    placed = [vocabulary.name(token) for token in tokens if token >= vocabulary.FIRST]
    assert placed == frame
    text = vocabulary.show(tokens)
    assert text == (
        "{<|repo_name|>}<|repo_name|>\n{<|file_sep|>}<|file_sep|>\nx<|file_sep|><|endoftext|>"
        "{<|file_sep|>}<|fim_pad|><s>\n{<|fim_prefix|>}" + " " * adds_space + f"p{MID}q{SUF}"
        f"{{<|fim_suffix|>}}s{PRE}{{<|fim_middle|>}}"
    )


def test_tokens_made_for_a_gap_are_control_tokens_even_if_they_do_not_end_an_answer() -> None:
    vocabulary = CodeVocabulary(QWEN, lax=QWEN)
    fim = replace(found(vocabulary), stop_tokens=frozenset())
    gap = Gap("".join((PRE, SUF, MID, "<|repo_name|>", "<|file_sep|>")), "")
    assert [token for token in fim.tokens(vocabulary, gap) if token >= vocabulary.FIRST] == [
        *(fim.prefix, fim.suffix, fim.middle)
    ]


def test_only_the_prefix_gets_the_space_that_a_tokenizer_puts_in_front() -> None:
    gap = Gap("p", " s", extra=[ExtraFile("return", "a")])
    assert asked(gap, LLAMA, adds_space=True) == (
        "\n\n--- snippet ---\n\nreturn{<s>}{▁<PRE>} p{▁<SUF>} s{▁<MID>}"
    )
    assert asked(Gap("", ""), LLAMA, adds_space=True) == "{<s>}{▁<PRE>}{▁<SUF>}{▁<MID>}"


def test_a_space_that_cannot_be_taken_away_stays() -> None:
    # " ☺!" is one token, so there is no border behind the sign.
    assert asked(Gap("", "!s"), LLAMA, adds_space=True).endswith("{▁<SUF>} !s{▁<MID>}")


def test_text_is_tokenized_as_it_is_where_no_space_is_put_in_front() -> None:
    # "☺." would be a token, and "." alone then another one.
    vocabulary = CodeVocabulary(QWEN)
    seen: list[str] = []
    tokenize = vocabulary.tokenize

    def watched(text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        seen.append(text)
        return tokenize(text, add_special=add_special, parse_special=parse_special)

    vocabulary.tokenize = watched  # type: ignore[method-assign]
    found(vocabulary).tokens(vocabulary, Gap("pre", "suf"))
    assert {"pre", "suf"} <= set(seen)
    assert not any("☺" in text for text in seen)


# Room.


def fitted(prefix: int, suffix: int, room: Room) -> tuple[str, str]:
    """What is left of a prefix and a suffix of so many tokens."""
    vocabulary = CodeVocabulary(QWEN)
    gap = Gap("".join(chr(97 + at % 26) for at in range(prefix)), "s" * suffix)
    text = vocabulary.show(found(vocabulary).tokens(vocabulary, gap, room))
    before, after = text.split("{<|fim_suffix|>}")
    assert gap.prefix.endswith(before.removeprefix("{<|fim_prefix|>}"))
    return before.removeprefix("{<|fim_prefix|>}"), after.removesuffix("{<|fim_middle|>}")


@pytest.mark.parametrize(
    ("prefix", "suffix", "kept"),
    [
        (1000, 1000, (75, 25)),
        (1000, 25, (75, 25)),
        (1000, 10, (90, 10)),  # each gets what the other leaves
        (60, 1000, (60, 40)),
        (0, 1000, (0, 100)),
        (1000, 0, (100, 0)),
        (75, 25, (75, 25)),
        (0, 0, (0, 0)),
    ],
)
def test_prefix_and_suffix_share_a_batch(prefix: int, suffix: int, kept: tuple[int, int]) -> None:
    # 103: the three tokens of the frame are part of the batch.
    before, after = fitted(prefix, suffix, Room(n_ctx=4096, n_predict=64, batch=103))
    assert (len(before), len(after)) == kept


def test_a_small_context_leaves_what_the_answer_does_not_need() -> None:
    before, after = fitted(1000, 1000, Room(n_ctx=200, n_predict=97))
    assert (len(before), len(after)) == (75, 25)


def test_the_prefix_keeps_its_end_and_the_suffix_its_beginning() -> None:
    vocabulary = CodeVocabulary(QWEN)
    tokens = found(vocabulary).tokens(
        vocabulary, Gap("0123456789", "abcdefgh", "XY"), Room(1000, 10, batch=3 + 8)
    )
    assert vocabulary.show(tokens) == "{<|fim_prefix|>}6789XY{<|fim_suffix|>}ab{<|fim_middle|>}"


def test_cuts_are_made_between_tokens() -> None:
    vocabulary = CodeVocabulary(QWEN)
    gap = Gap("return return", "return return")
    tokens = found(vocabulary).tokens(vocabulary, gap, Room(1000, 10, batch=3 + 3))
    assert vocabulary.show(tokens) == (
        "{<|fim_prefix|>}return return{<|fim_suffix|>}{<|fim_middle|>}"
    )
    tokens = found(vocabulary).tokens(vocabulary, gap, Room(1000, 10, batch=3 + 4))
    assert vocabulary.show(tokens) == (
        "{<|fim_prefix|>}return return{<|fim_suffix|>}return{<|fim_middle|>}"
    )


# In the second case the text is cut before it is tokenized as well.
@pytest.mark.parametrize(("typed", "batch"), [(500, 512), (9000, 200)])
def test_a_long_prefix_that_grows_keeps_its_beginning_for_a_while(typed: int, batch: int) -> None:
    most = batch - 3 - (batch - 3) // 4
    room = Room(n_ctx=4096, n_predict=64, batch=batch)
    prefixes = [fitted(typed + more, 1000, room)[0] for more in range(0, 64, 4)]
    assert all(most - 32 < len(prefix) <= most for prefix in prefixes)
    moves = [not later.startswith(now) for now, later in pairwise(prefixes)]
    assert moves.count(True) == 2


FILES = [ExtraFile("111\n", "a"), ExtraFile("222\n", "b"), ExtraFile("333\n", "c")]


def others(left: int, controls: Sequence[str] = QWEN) -> str:
    """What stands before the file with the gap in a room for `left` tokens of it."""
    vocabulary = CodeVocabulary(controls)
    room = Room(n_ctx=left + 2 * 50 + 512, n_predict=50)
    gap = Gap("", "", extra=FILES, repo="r", filename="f")
    tokens = found(vocabulary).tokens(vocabulary, gap, room)
    cut = min(tokens.index(vocabulary.id(control)) for control in controls[:2])
    assert cut <= left
    return vocabulary.show(tokens[:cut])


HEAD, PATH = "{<|repo_name|>}r\n", "{<|file_sep|>}f\n"
FILE_B, FILE_C = "{<|file_sep|>}b\n222\n", "{<|file_sep|>}c\n333\n"


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (27, HEAD + "{<|file_sep|>}a\n111\n" + FILE_B + FILE_C + PATH),
        (26, HEAD + "{<|file_sep|>}a\n11\n" + FILE_B + FILE_C + PATH),
        (24, HEAD + "{<|file_sep|>}a\n\n" + FILE_B + FILE_C + PATH),
        (23, HEAD + FILE_B + FILE_C + PATH),  # a path without text is of no use
        (20, HEAD + FILE_B + FILE_C + PATH),
        (18, HEAD + "{<|file_sep|>}b\n2\n" + FILE_C + PATH),
        (13, HEAD + FILE_C + PATH),
        (6, HEAD + PATH),
        (5, PATH),
        (3, PATH),
        (2, ""),
        (0, ""),
    ],
)
def test_the_first_of_the_other_files_make_room(left: int, text: str) -> None:
    assert others(left) == text


@pytest.mark.parametrize(
    ("controls", "left", "text"),
    [
        (DEEPSEEK, 17, "#b\n222\n#c\n333\n#f\n"),
        (DEEPSEEK, 15, "#b\n2\n#c\n333\n#f\n"),
        (DEEPSEEK, 13, "#c\n333\n#f\n"),
        (SEED, 2 * 19 + 6, "\n\n--- snippet ---\n\n2\n\n\n--- snippet ---\n\n333\n"),
        (SEED, 22, "\n\n--- snippet ---\n\n33\n"),
        (SEED, 19, ""),
    ],
)
def test_files_without_a_token_make_room_too(controls: list[str], left: int, text: str) -> None:
    assert others(left, controls) == text


def test_a_context_without_room_for_other_files_has_none() -> None:
    vocabulary = CodeVocabulary(QWEN)
    gap = Gap("", "", extra=FILES, repo="r", filename="f")
    tokens = found(vocabulary).tokens(vocabulary, gap, Room(n_ctx=400, n_predict=10))
    assert vocabulary.show(tokens) == "{<|fim_prefix|>}{<|fim_suffix|>}{<|fim_middle|>}"


def test_a_file_is_not_kept_when_a_later_one_is_left_out() -> None:
    vocabulary = CodeVocabulary(QWEN)
    gap = Gap("", "", extra=[ExtraFile("1", "a"), ExtraFile("2", "long name"), ExtraFile("3", "c")])
    fim = replace(found(vocabulary), repo=None)
    path = len("@filename\n")
    tokens = fim.tokens(vocabulary, gap, Room(512 + path + len("@c\n3") + len("@a\n1"), 0))
    assert vocabulary.show(tokens).startswith("{<|file_sep|>}c\n3{<|file_sep|>}filename\n{<|fim")


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_too_small_for_anything_leaves_the_frame(batch: int) -> None:
    vocabulary = CodeVocabulary(LLAMA)
    gap = Gap("p" * 100, "s" * 100, extra=[ExtraFile("x" * 100)])
    tokens = found(vocabulary).tokens(vocabulary, gap, Room(n_ctx=30, n_predict=0, batch=batch))
    assert len(tokens) == 30
    assert vocabulary.show(tokens).endswith("x{<s>}{▁<PRE>}{▁<SUF>}{▁<MID>}")


def test_a_large_file_is_not_tokenized_as_a_whole() -> None:
    vocabulary = CodeVocabulary(QWEN)
    longest: list[int] = []
    tokenize = vocabulary.tokenize

    def watched(text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        longest.append(len(text))
        return tokenize(text, add_special=add_special, parse_special=parse_special)

    vocabulary.tokenize = watched  # type: ignore[method-assign]
    numbers = " ".join(map(str, range(5000)))
    gap = Gap(numbers, numbers, "return", [ExtraFile(numbers, "a")], "r", "f")
    room = Room(n_ctx=100, n_predict=20, batch=31)
    tokens = found(vocabulary).tokens(vocabulary, gap, room)
    assert max(longest) <= 2 * 31 * vocabulary.longest_piece
    extra = room.others - len("@r\n@f\n@a\n")
    assert vocabulary.show(tokens) == (
        f"{{<|repo_name|>}}r\n{{<|file_sep|>}}a\n{numbers[-extra:]}{{<|file_sep|>}}f\n"
        f"{{<|fim_prefix|>}}{numbers[-20:]}return{{<|fim_suffix|>}}{numbers[:7]}{{<|fim_middle|>}}"
    )


def test_a_path_inside_the_prefix_needs_room_like_any_other() -> None:
    vocabulary = CodeVocabulary([*PLAIN, "<file_sep>"])
    fim, gap = found(vocabulary), Gap("p", "s", filename="f")
    fits = fim.tokens(vocabulary, gap, Room(512 + 3, 0))
    assert vocabulary.show(fits) == "{<file_sep>}{<fim_prefix>}f\np{<fim_suffix>}s{<fim_middle>}"
    lacks = fim.tokens(vocabulary, gap, Room(512 + 2, 0))
    assert vocabulary.show(lacks) == "{<fim_prefix>}p{<fim_suffix>}s{<fim_middle>}"


@pytest.mark.parametrize(
    ("n_predict", "kept"), [(-1, 100), (0, 100), (299, 98), (301, 97), (1000, 97)]
)
def test_an_answer_without_end_does_not_take_all_the_room(n_predict: int, kept: int) -> None:
    room = Room(n_ctx=400, n_predict=n_predict, batch=103)
    before, after = fitted(1000, 1000, room)
    assert len(before) + len(after) == kept


LONG = st.integers(0, 250)


@given(
    n_ctx=st.integers(16, 1000),
    share=st.floats(0, 0.75),
    batch=st.integers(1, 300),
    sizes=st.tuples(LONG, LONG, LONG, LONG, LONG),
    case=st.sampled_from(CASES),
)
def test_prompt_and_answer_always_fit(
    n_ctx: int, share: float, batch: int, sizes: tuple[int, ...], case: Case
) -> None:
    vocabulary = CodeVocabulary(case.controls, adds_bos=True)
    fim = found(vocabulary, name=case.name)
    prefix, suffix, extra, name, repo = ("x" * size for size in sizes)
    files = [ExtraFile(extra, "a"), ExtraFile(extra[: len(extra) // 2], name)]
    gap = Gap(prefix, suffix, "q", files, repo, name)
    n_predict = int(n_ctx * share)
    tokens = fim.tokens(vocabulary, gap, Room(n_ctx, n_predict, batch))
    assert len(tokens) <= max(n_ctx - n_predict, 4)
    short = fim.tokens(vocabulary, Gap("", ""), Room(n_ctx, n_predict, batch))
    assert [token for token in short if token >= vocabulary.FIRST] == short


# Finding.


def no_fim(controls: Sequence[str], metadata: dict[str, Any] | None = None, name: str = "") -> str:
    reason = find_fim(CodeVocabulary(controls), metadata or {}, name)
    assert isinstance(reason, str), reason
    return reason


def test_a_chat_model_with_tokens_of_a_code_model_has_none_for_a_gap() -> None:
    assert no_fim(SMOLLM, {"general.name": "SmolLM2 135M"}) == (
        "SmolLM2 135M has no fill-in-the-middle tokens; take a code model such as qwen2.5-coder."
    )
    assert no_fim([]).startswith("The model has no fill-in-the-middle tokens;")
    assert no_fim([], {"general.name": "SmolLM2 135M"}, "smol").startswith("smol has no ")


def test_a_chat_model_with_all_tokens_of_codestral_was_not_trained_for_it() -> None:
    assert "no fill-in-the-middle tokens" in no_fim(MISTRAL, name="Mistral-Nemo-Instruct-2407")
    for metadata in ({"general.name": "Codestral 22B"}, {"general.basename": "Codestral"}):
        assert found(CodeVocabulary(MISTRAL), metadata).family == "Codestral"


@pytest.mark.parametrize("missing", [PRE, SUF, MID])
def test_some_of_the_tokens_are_not_enough(missing: str) -> None:
    rest = [text for text in (PRE, SUF, MID) if text != missing]
    reason = no_fim([text for text in QWEN if text != missing], name="half")
    assert reason == (
        f"half has {' and '.join(rest)}, but no {missing}, to fill in the middle; "
        "take a code model such as qwen2.5-coder."
    )


def test_tokens_that_only_look_alike_do_not_count() -> None:
    ascii_bars = ["<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>"]
    assert "no fill-in-the-middle tokens" in no_fim(ascii_bars)
    assert "no fill-in-the-middle tokens" in no_fim([f"x{text}" for text in QWEN])


def test_tokens_that_help_but_need_not_be_there() -> None:
    fim = found(CodeVocabulary(PLAIN))
    assert (fim.family, fim.repo, fim.file) == ("StarCoder", None, None)
    assert asked(GAP, PLAIN).startswith(SNIPPETS + "{<fim_prefix>}")
    assert found(CodeVocabulary([PRE, SUF, MID])).family == "Granite 4"


def test_the_first_of_two_tokens_of_one_text_is_taken() -> None:
    vocabulary = CodeVocabulary([*QWEN, PRE])
    assert found(vocabulary).prefix == vocabulary.id(PRE) < vocabulary.size - 1


NEW = ["<new_prefix>", "<new_suffix>", "<new_middle>", "<new_pad>", "<new_repo>", "<new_file>"]
ROLES = ["fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"]


def keys(vocabulary: CodeVocabulary, roles: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    pairs = zip(roles, names, strict=True)
    return {f"tokenizer.ggml.{role}_token_id": vocabulary.id(name) for role, name in pairs}


def test_ids_in_the_file_win_over_the_table() -> None:
    vocabulary = CodeVocabulary([*QWEN, *NEW])
    fim = found(vocabulary, keys(vocabulary, ROLES, NEW))
    assert (fim.family, fim.order) == ("Qwen", "PSM")
    placed = [vocabulary.id(text) for text in NEW]
    assert [fim.prefix, fim.suffix, fim.middle, fim.repo, fim.file] == [*placed[:3], *placed[4:]]
    assert fim.stop_tokens == {*placed, vocabulary.id("<|endoftext|>")}


def test_one_id_in_the_file_replaces_one_token() -> None:
    vocabulary = CodeVocabulary([*SEED, *NEW])
    fim = found(vocabulary, keys(vocabulary, ["fim_mid"], ["<new_middle>"]))
    assert fim.order == "SPM"
    assert fim.prefix == vocabulary.id("<[fim-prefix]>")
    assert fim.middle == vocabulary.id("<new_middle>")


def test_a_file_of_no_known_family_can_name_its_tokens() -> None:
    vocabulary = CodeVocabulary([*NEW, "<eos>"])
    fim = found(vocabulary, keys(vocabulary, ROLES, NEW))
    assert fim.family == "unknown"
    assert vocabulary.show(fim.tokens(vocabulary, GAP)) == (
        "{<new_repo>}proj\n{<new_file>}a.py\nX\n{<new_file>}tmp\nY{<new_file>}b.py\n"
        "{<new_prefix>}p\nq{<new_suffix>}s{<new_middle>}"
    )
    assert fim.stop_tokens == {vocabulary.id(text) for text in [*NEW, "<eos>"]}


def test_older_names_of_the_keys_and_ids_as_text() -> None:
    vocabulary = CodeVocabulary(NEW)
    older = keys(vocabulary, ["prefix", "suffix", "middle"], NEW[:3])
    fim = found(vocabulary, {key: str(token) for key, token in older.items()})
    assert (fim.prefix, fim.suffix, fim.middle) == tuple(older.values())
    newer = keys(vocabulary, ["fim_pre"], ["<new_pad>"])
    assert found(vocabulary, older | newer).prefix == vocabulary.id("<new_pad>")


@pytest.mark.parametrize("role", ["fim_pre", "fim_suf", "fim_mid"])
@pytest.mark.parametrize("value", [65, 100_000, -1, "-1", "", "9" * 5000, "three", 303.0, None])
def test_an_id_that_cannot_be_it_is_not_believed(role: str, value: object) -> None:
    vocabulary = CodeVocabulary(NEW)
    metadata = keys(vocabulary, ROLES, NEW) | {f"tokenizer.ggml.{role}_token_id": value}
    assert "no fill-in-the-middle tokens" in str(find_fim(vocabulary, metadata))


@pytest.mark.parametrize(
    ("text", "believed"),
    [
        ("<PRE>", True),
        ("▁<PRE>", True),
        ("[PRE]", True),
        ("<unused60>", False),  # whoever converts a Gemma names these
        ("<|reserved_special_token_5|>", False),
        ("<0x0A>", False),
        ("x<PRE>", False),
        ("<PRE>x", False),
        ("▁prefix", False),
    ],
)
def test_only_what_is_written_like_a_control_token_is_believed(text: str, believed: bool) -> None:
    vocabulary = CodeVocabulary([text, *NEW])
    metadata = keys(vocabulary, ["fim_pre", *ROLES[1:]], [text, *NEW[1:]])
    assert isinstance(find_fim(vocabulary, metadata), Fim) is believed


def test_an_id_that_cannot_be_it_leaves_the_table_standing() -> None:
    vocabulary = CodeVocabulary(QWEN)
    fim = found(vocabulary, {"tokenizer.ggml.fim_pre_token_id": 65})
    assert fim.prefix == vocabulary.id(PRE)


def test_codestral_has_no_middle_even_if_its_file_says_so() -> None:
    vocabulary = CodeVocabulary(MISTRAL)
    fim = found(vocabulary, keys(vocabulary, ["middle"], ["[MIDDLE]"]), "codestral")
    assert fim.middle is None
    assert vocabulary.id("[MIDDLE]") not in fim.stop_tokens


def test_all_metadata_that_is_read_is_listed() -> None:
    class Recorder(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            asked_for.add(key)
            return default

    asked_for: set[str] = set()
    find_fim(CodeVocabulary(QWEN), Recorder())
    assert asked_for == set(KEYS)
    assert len(KEYS) == len(asked_for)


def test_a_user_can_change_what_was_found() -> None:
    vocabulary = CodeVocabulary(QWEN)
    fim = replace(found(vocabulary), order="SPM", needs_bos=True)
    assert vocabulary.show(fim.tokens(vocabulary, Gap("p", "s"))) == (
        "{<s>}{<|fim_suffix|>}s{<|fim_prefix|>}p{<|fim_middle|>}"
    )
