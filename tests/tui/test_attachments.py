"""Which words of a prompt are files, and how the model gets them."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.tui.attachments import MAX_BYTES, Attachment, as_prompt, complete, find

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="no such files on Windows")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a few files."""
    root = tmp_path / "here"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print()\n", encoding="utf-8")
    (root / "src" / "deep" / "x.txt").write_text("deep", encoding="utf-8")
    (root / "notes.txt").write_text("take note", encoding="utf-8")
    (root / "Makefile").write_text("all:\n", encoding="utf-8")
    (root / "two words.txt").write_text("spaced", encoding="utf-8")
    (root / "odd, name.").write_text("odd", encoding="utf-8")
    (root / "grüße").write_text("hallo", encoding="utf-8")
    (root / ".hidden").write_text("hidden", encoding="utf-8")
    return root


def names(text: str, directory: Path) -> list[str]:
    found = find(text, directory)
    assert found.complaints == ()
    return [one.name for one in found.attachments]


def complaint(text: str, directory: Path) -> str:
    """The only one there is."""
    found = find(text, directory)
    assert found.attachments == ()
    (line,) = found.complaints
    assert "\n" not in line
    assert line.endswith(".")
    return line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("nothing here", []),
        ("@notes.txt", ["notes.txt"]),
        ("look at @notes.txt", ["notes.txt"]),
        ("look\tat\n@notes.txt\nnow", ["notes.txt"]),
        ("\u3000@notes.txt", ["notes.txt"]),
        ("@src/main.py and @notes.txt", ["src/main.py", "notes.txt"]),
        ("@./src/../notes.txt", ["./src/../notes.txt"]),
        ("@Makefile", ["Makefile"]),
        ("@grüße", ["grüße"]),
        ("@.hidden", [".hidden"]),
        ('@"two words.txt"', ["two words.txt"]),
        ('see @"two words.txt", please', ["two words.txt"]),
        ('@"odd, name."', ["odd, name."]),
        ("is it @notes.txt?", ["notes.txt"]),
        ("read @notes.txt, then @src/main.py.", ["notes.txt", "src/main.py"]),
        ("(really) @notes.txt).", ["notes.txt"]),
        ("twice @notes.txt and @notes.txt", ["notes.txt"]),
        ("twice @notes.txt and @./notes.txt", ["notes.txt"]),
        ("@notes.txt\n@src/main.py", ["notes.txt", "src/main.py"]),
        ("@notes.txt\nclass schedule", ["notes.txt"]),
        ("` @notes.txt", ["notes.txt"]),
        ("``` @notes.txt `` `", ["notes.txt"]),
        ("`a` @notes.txt `b`", ["notes.txt"]),
    ],
)
def test_a_mention_of_a_file_attaches_it(here: Path, text: str, found: list[str]) -> None:
    assert names(text, here) == found


@pytest.mark.parametrize(
    "text",
    [
        "write to me@example.com or a@notes.txt",
        "(@notes.txt)",
        "`@notes.txt`",
        "call `cat @notes.txt` and ``x ` @nothing.txt``",
        "`a` @someone `b @notes.txt`",
        "` and ``@x.y `` @x.y`",
        "```\n@notes.txt\n```",
        "~~~py\n@nothing/at/all.py\n```\n@notes.txt",
        "@someone said",
        "@ notes.txt",
        "@",
        "@@notes",
        "@... @.. @.",
        '@"" and @"unclosed',
        '@"no such thing"',
        "version @2.0 or @1",
        "@app.get('/items/{id}')",
        "@pytest.fixture\ndef one(): ...",
        "@pytest.fixture\n@pytest.mark.slow(1)\n  async def one(): ...",
        "@dataclasses.dataclass\nclass A: ...",
    ],
)
def test_other_words_are_left_as_text(here: Path, text: str) -> None:
    assert find(text, here) == ((), ())


def test_the_text_of_a_file_comes_along(here: Path) -> None:
    (attachment,) = find("@src/main.py", here).attachments
    assert attachment == Attachment("src/main.py", "print()\n")
    assert attachment.size == 8


def test_code_that_was_closed_hides_nothing_after_it(here: Path) -> None:
    assert names("```\n@nothing.txt\n```\n@notes.txt `@x.y` @Makefile", here) == [
        "notes.txt",
        "Makefile",
    ]


def test_absolute_paths_and_those_of_the_home_are_found(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.txt").write_text("mine", encoding="utf-8")
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    (attachment,) = find("@~/mine.txt", here).attachments
    assert attachment == Attachment("~/mine.txt", "mine")
    absolute = home / "mine.txt"
    assert names(f'@"{absolute}"', here) == [str(absolute)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@nothing.txt", "nothing.txt"),
        ("@src/nothing", "src/nothing"),
        ("@src/nothing.py, please", "src/nothing.py"),
        ("what is in @nothing.md?", "nothing.md"),
        ('@"not here.txt"', "not here.txt"),
        ("@notes.txt/inside", "notes.txt/inside"),
        ("@/no/such/file", "/no/such/file"),
        ("@~nobody-of-that-name/x", "~nobody-of-that-name/x"),
        (f"@{'long' * 100}.txt", f"{'long' * 100}.txt"),
        ("@with\0nul/x.txt", "with\0nul/x.txt"),
        ("@half\ud83d/x.txt", "half\ud83d/x.txt"),
    ],
)
def test_a_path_to_nothing_is_complained_about(here: Path, text: str, name: str) -> None:
    line = complaint(text, here)
    assert f"no file {name} in {here}" in line
    assert f"`@{name}`" in line


def test_what_a_complaint_advises_helps(here: Path) -> None:
    assert find("`@nothing.txt`", here) == ((), ())


def test_each_complaint_comes_once_and_hides_no_file(here: Path) -> None:
    found = find("@a.txt @notes.txt @b.txt @a.txt", here)
    assert [one.name for one in found.attachments] == ["notes.txt"]
    assert [line.split(" in ")[0] for line in found.complaints] == [
        "There is no file a.txt",
        "There is no file b.txt",
    ]


@pytest.mark.parametrize("text", ["@src", "@src/", "@./", "@src/deep, please"])
def test_a_directory_is_complained_about(here: Path, text: str) -> None:
    assert "is a directory" in complaint(text, here)


@pytest.mark.parametrize(
    "content",
    [
        b"a\0b",
        b"\x7fELF\x02\x01\x01\0\0",
        b"\xff\xd8\xff\xe0JFIF",
        "Grüße".encode("latin-1"),
        b"\xff\xfea",
        "text".encode("utf-32"),
        b"\xed\xa0\x80",
    ],
)
def test_what_is_not_text_is_complained_about(here: Path, content: bytes) -> None:
    (here / "data").write_bytes(content)
    assert "data is not text" in complaint("@data", here)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        ("Grüße 語 👩".encode(), "Grüße 語 👩"),
        ("Grüße".encode("utf-8-sig"), "Grüße"),
        ("Grüße 👩".encode("utf-16"), "Grüße 👩"),
        (b"\xff\xfe" + "Grüße".encode("utf-16-le"), "Grüße"),
        (b"\xfe\xff" + "Grüße".encode("utf-16-be"), "Grüße"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[31m", "\x1b[31m"),
    ],
)
def test_text_of_several_encodings_is_read(here: Path, content: bytes, text: str) -> None:
    (here / "data").write_bytes(content)
    (attachment,) = find("@data", here).attachments
    assert attachment.text == text
    assert attachment.size == len(text.encode())


def test_a_file_may_have_a_megabyte_and_no_more(here: Path) -> None:
    (here / "large").write_bytes(b"x" * MAX_BYTES)
    assert names("@large", here) == ["large"]
    (here / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    assert "larger than 1 MB" in complaint("@large", here)


@needs_posix
def test_pipes_sockets_and_devices_are_not_opened(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(here / "pipe")
    assert "no ordinary file" in complaint("@pipe", here)
    assert "no ordinary file" in complaint("@/dev/zero", here)
    monkeypatch.chdir(here)  # names of sockets must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert "no ordinary file" in complaint("@socket", here)


@needs_posix
def test_a_file_that_cannot_be_read_is_complained_about(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As root reads everything, the refusal is made up.
    def refuse(self: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "notes.txt cannot be read: Permission denied" in complaint("@notes.txt", here)
    monkeypatch.setattr(Path, "stat", refuse)
    assert "notes.txt cannot be read: Permission denied" in complaint("@notes.txt", here)
    assert find("@someone", here) == ((), ())


@needs_posix
def test_links_are_followed_and_circles_end(here: Path) -> None:
    (here / "link").symlink_to(here / "notes.txt")
    (here / "circle.txt").symlink_to(here / "circle.txt")
    (here / "nowhere.txt").symlink_to(here / "nothing")
    assert names("@link @notes.txt", here) == ["link"]
    assert "no file circle.txt" in complaint("@circle.txt", here)
    assert "no file nowhere.txt" in complaint("@nowhere.txt", here)


@given(st.text(alphabet=st.sampled_from('@"`~/.\\ \n(ab\0\ud800é'), max_size=40))
def test_any_prompt_is_read_without_an_error(text: str) -> None:
    found = find(text, Path("no-such-directory"))
    assert all(one.count("\n") == 0 for one in found.complaints)


def test_a_prompt_full_of_marks_takes_no_time_worth_mentioning(here: Path) -> None:
    # Two thousand runs of different lengths, none of which ends another: 2 MB.
    text = " ".join("`" * number + "x" for number in range(2000, 0, -1))
    assert names(f"a {text} @notes.txt", here) == ["notes.txt"]


# What the model gets


def test_files_come_in_fences_before_what_was_written() -> None:
    prompt = as_prompt("Compare @a.txt", [Attachment("a.txt", "one\n"), Attachment("b", "two")])
    assert prompt == ("File a.txt:\n```\none\n```\n\nFile b:\n```\ntwo\n```\n\nCompare @a.txt")


def test_without_files_the_text_is_unchanged() -> None:
    assert as_prompt(" as it is\n", []) == " as it is\n"


@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("", "```"),
        ("`a` ``b``", "```"),
        ("```\ncode\n```", "````"),
        ("in ````` a line", "``````"),
    ],
)
def test_the_fence_is_longer_than_any_in_the_file(text: str, fence: str) -> None:
    lines = as_prompt("q", [Attachment("n", text)]).split("\n")
    assert lines[1] == fence
    assert lines.count(fence) == 2


@given(st.text(alphabet="`~\n a", max_size=60))
def test_a_file_can_be_told_from_the_prompt_again(text: str) -> None:
    prompt = as_prompt("question", [Attachment("name", text)])
    head, fence, rest = prompt.split("\n", 2)
    inside, end, question = rest.partition(f"{fence}\n\nquestion")
    assert head == "File name:"
    assert (end, question) == (f"{fence}\n\nquestion", "")
    assert inside.removesuffix("\n") == text.removesuffix("\n")


def test_a_name_stays_on_its_line() -> None:
    assert as_prompt("q", [Attachment("a\nb", "t")]).startswith("File a b:\n```\n")


# Completion


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("", ["grüße", "Makefile", "notes.txt", "odd, name.", "src/", "two words.txt"]),
        ("n", ["notes.txt"]),
        ("NOT", ["notes.txt"]),
        ("make", ["Makefile"]),
        ("two w", ["two words.txt"]),
        ("src", ["src/"]),
        ("src/", ["src/deep/", "src/main.py"]),
        ("src/m", ["src/main.py"]),
        ("./src/d", ["./src/deep/"]),
        ("src/deep/../", ["src/deep/../deep/", "src/deep/../main.py"]),
        (".", [".hidden"]),
        (".h", [".hidden"]),
        ("x", []),
        ("nothing/", []),
        ("notes.txt/", []),
        ("\0/", []),
        ("~", ["~/"]),
        ("\ud800/", []),
        ("/no/such/place/", []),
    ],
)
def test_paths_are_completed(here: Path, prefix: str, found: list[str]) -> None:
    assert complete(prefix, here) == found


def test_completion_knows_the_home(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(here))
    assert complete("~/n", tmp_path) == ["~/notes.txt"]
    assert complete(f"{here.as_posix()}/n", tmp_path) == [f"{here.as_posix()}/notes.txt"]


def test_completion_is_limited_and_in_order(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"f{29 - number:02}").touch()
    assert complete("", tmp_path) == [f"f{number:02}" for number in range(8)]
    assert complete("f", tmp_path, limit=2) == ["f00", "f01"]
    assert complete("f", tmp_path, limit=0) == []


@needs_posix
def test_names_that_cannot_be_shown_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "good").touch()
    (tmp_path / "new\nline").touch()
    (tmp_path / "esc\x1b[31m").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert complete("", tmp_path) == ["circle", "good"]


def test_what_is_completed_is_found(here: Path) -> None:
    for path in complete("src/m", here) + complete("n", here):
        assert names(f"@{path}", here) == [path]
