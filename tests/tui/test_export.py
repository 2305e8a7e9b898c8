"""A chat as Markdown and JSON, and the file it goes into."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgespec.errors import EdgespecError
from edgespec.tui.attachments import Attachment
from edgespec.tui.chats.export import as_json, as_markdown, file_name, write_export
from edgespec.tui.chats.store import Chat, Message

NOW = 1_790_000_000.0
CHAT = Chat(7, "Why is the sky blue?", NOW, NOW + 60, {"temperature": 0.8, "system": ""}, 2)
QUESTION = Message(
    1, 7, None, "user", "Why?", NOW, None, {}, "", (Attachment("a b.txt", "grün"),), (1,)
)
ANSWER = Message(2, 7, 1, "assistant", "Because.", NOW + 1, "stop", {"tokens": 2}, "3t5m", (), (2,))
LOCAL = datetime.fromtimestamp(NOW, UTC).astimezone()


def answered(text: str, finish_reason: str | None = "stop") -> str:
    """The Markdown of a chat with that answer, from the answer on."""
    message = replace(ANSWER, text=text, finish_reason=finish_reason)
    return as_markdown(CHAT, [message]).split("## Assistant\n\n")[1]


def test_markdown_tells_who_said_what() -> None:
    assert as_markdown(CHAT, [QUESTION, ANSWER]) == (
        "# Why is the sky blue?\n\n"
        f"{LOCAL:%Y-%m-%d %H:%M}\n\n"
        "## You\n\n"
        "Attached: a b.txt (5 bytes)\n\n"
        "Why?\n\n"
        "## Assistant\n\n"
        "Because.\n"
    )


def test_markdown_of_an_empty_chat_has_a_title() -> None:
    assert as_markdown(replace(CHAT, title=""), []).startswith("# Untitled chat\n\n")


def test_markdown_tells_the_system_prompt() -> None:
    chat = replace(CHAT, settings={"system": "Be brief."})
    assert "## System prompt\n\nBe brief.\n\n## You\n" in as_markdown(chat, [QUESTION])


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("stop", "Because.\n"),
        ("cancelled", "Because.\n\n*(stopped)*\n"),
        ("length", "Because.\n\n*(cut at max_tokens)*\n"),
        ("context", "Because.\n\n*(cut: the context is full)*\n"),
        (None, "Because.\n\n*(interrupted)*\n"),
        ("failed", "Because.\n\n*(failed)*\n"),
    ],
)
def test_markdown_tells_how_an_answer_ended(reason: str | None, end: str) -> None:
    assert answered("Because.", reason) == end


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("```py\nx = 1", "```py\nx = 1\n```"),
        ("````\n```\n", "````\n```\n\n````"),
        ("~~~\ncode", "~~~\ncode\n~~~"),
        ("```\ncode\n```", "```\ncode\n```"),
        ("```\ncode\n  ````  ", "```\ncode\n  ````"),
        ("``` is `code` ```", "``` is `code` ```"),
        ("    ```\nindented", "    ```\nindented"),
        ("```\na\n```\ntext\n```js\nb", "```\na\n```\ntext\n```js\nb\n```"),
    ],
)
def test_a_code_block_that_was_cut_off_is_closed(text: str, closed: str) -> None:
    assert answered(text).rstrip() == closed


def test_what_a_model_thought_is_quoted() -> None:
    assert answered("<think>Hm.\n\nYes.</think>\n\nBlue.") == "> Hm.\n>\n> Yes.\n\nBlue.\n"
    assert answered("<think>```\ncode", None) == "> ```\n> code\n> ```\n\n*(interrupted)*\n"


def test_json_has_all_there_is() -> None:
    document = json.loads(as_json(CHAT, [QUESTION, ANSWER]))
    assert document == {
        "format": "edgespec-chat-1",
        "title": "Why is the sky blue?",
        "created": "2026-09-21T14:13:20+00:00",
        "updated": "2026-09-21T14:14:20+00:00",
        "settings": {"temperature": 0.8, "system": ""},
        "messages": [
            {
                "role": "user",
                "text": "Why?",
                "created": "2026-09-21T14:13:20+00:00",
                "finish_reason": None,
                "stats": {},
                "provenance": "",
                "attachments": [{"name": "a b.txt", "text": "grün"}],
            },
            {
                "role": "assistant",
                "text": "Because.",
                "created": "2026-09-21T14:13:21+00:00",
                "finish_reason": "stop",
                "stats": {"tokens": 2},
                "provenance": "3t5m",
                "attachments": [],
            },
        ],
    }


def test_json_is_json_whatever_the_numbers_are() -> None:
    answer = replace(
        ANSWER, stats={"a": float("inf"), "b": [float("nan"), 1.5, (2,)], "c": {3: None}}
    )
    text = as_json(replace(CHAT, created=float("nan"), updated=1e30), [answer])

    def refuse(name: str) -> None:
        raise AssertionError(name)

    document = json.loads(text, parse_constant=refuse)
    assert document["messages"][0]["stats"] == {"a": None, "b": [None, 1.5, [2]], "c": {"3": None}}
    assert (document["created"], document["updated"]) == (None, None)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Why is the sky blue?", "Why-is-the-sky-blue"),
        ("", "chat"),
        ("???", "chat"),
        ("../../etc/passwd", "etc-passwd"),
        ("C:\\Windows\\CON", "C-Windows-CON"),
        ('a<b>c:"d|e?f*g', "a-b-c-d-e-f-g"),
        ("  two  spaces. ", "two-spaces"),
        ("Grüße an 世界", "Grüße-an-世界"),
        ("cafe\u0301", "café"),
        ("हिन्दी", "हिन्दी"),
        ("smile \U0001f600\ufe0f now", "smile-now"),
        ("a\0b\x1b[31m", "a-b-31m"),
        ("half \ud83d", "half"),
        ("-rf", "rf"),
    ],
)
def test_a_file_name_is_made_of_words(title: str, words: str) -> None:
    assert file_name(replace(CHAT, title=title), "md") == f"{LOCAL:%Y-%m-%d}-{words}.md"


@pytest.mark.parametrize("letter", ["a", "ü", "世", "\U00020000", "\u0301", "-"])
def test_a_file_name_is_short_enough_for_every_system(letter: str) -> None:
    name = file_name(replace(CHAT, title=letter * 500), ".json")
    assert len(name.encode()) < 140
    assert name.endswith(".json")
    assert ".." not in name


def test_a_file_name_needs_no_sensible_clock() -> None:
    for created in (float("nan"), float("inf"), 1e30, -1e30):
        assert file_name(replace(CHAT, created=created), "md").startswith("edgespec-Why")


def test_an_export_is_written_and_overwrites_nothing(tmp_path: Path) -> None:
    paths = [write_export(tmp_path / "new", CHAT, [QUESTION, ANSWER], "md") for _ in range(3)]
    first = file_name(CHAT, "md").removesuffix(".md")
    assert [path.name for path in paths] == [f"{first}.md", f"{first}-2.md", f"{first}-3.md"]
    for path in paths:
        assert path.read_bytes() == as_markdown(CHAT, [QUESTION, ANSWER]).encode()
    paths[1].write_text("mine", encoding="utf-8")
    assert write_export(tmp_path / "new", CHAT, [], "md").name == f"{first}-4.md"
    assert paths[1].read_text(encoding="utf-8") == "mine"


def test_json_goes_into_a_json_file(tmp_path: Path) -> None:
    path = write_export(tmp_path, CHAT, [QUESTION], "json")
    assert path == tmp_path / file_name(CHAT, "json")
    assert json.loads(path.read_bytes())["messages"][0]["text"] == "Why?"


@pytest.mark.parametrize("form", ["md", "json"])
def test_any_text_can_be_written(tmp_path: Path, form: str) -> None:
    hostile = replace(ANSWER, text="half \ud83d nul \0 \x1b[31m \r\n" + "x" * 1_000_000)
    content = write_export(tmp_path, CHAT, [hostile], form).read_text(encoding="utf-8")
    assert re.search("half . nul", content)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nul\0"):
        with pytest.raises(EdgespecError) as caught:
            write_export(place, CHAT, [QUESTION], "md")
        assert str(place) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_that_could_not_be_finished_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def write(self, content: bytes) -> None:
            raise OSError(28, "No space left on device")

    def create(path: Path, mode: str) -> Full:
        path.touch()
        return Full()

    monkeypatch.setattr(Path, "open", create)
    with pytest.raises(EdgespecError, match="No space left on device"):
        write_export(tmp_path, CHAT, [QUESTION], "md")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgespecError, match="md or json, not as 'pdf'"):
        write_export(tmp_path, CHAT, [QUESTION], "pdf")
    assert list(tmp_path.iterdir()) == []
