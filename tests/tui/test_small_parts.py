"""Thoughts, provenance, settings, harmless text, hints, the heading, preferences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.engine import EngineInfo
from edgespec.errors import OptionError
from edgespec.tui import preferences, thinking
from edgespec.tui.commands import COMMANDS, completions, help_rows, is_slash, nearest, slash
from edgespec.tui.handlers import HANDLERS
from edgespec.tui.header import heading
from edgespec.tui.hints import hints
from edgespec.tui.pace import Pace
from edgespec.tui.plain_text import harmless, one_line
from edgespec.tui.preferences import Preferences
from edgespec.tui.provenance import Provenance
from edgespec.tui.settings import ChatSettings
from edgespec.tui.widgets.message import code_blocks
from edgespec.types import TARGET

# Commands.


def test_every_command_can_be_done_and_nothing_else() -> None:
    assert {command.id for command in COMMANDS} == set(HANDLERS)


def test_no_two_commands_share_a_key_or_a_name() -> None:
    for scope in ("chat", "message"):
        keys = [k for c in COMMANDS if c.scope == scope for k in c.keys.split(",") if k]
        assert len(keys) == len(set(keys))
    names = [command.slash for command in COMMANDS if command.slash]
    assert len(names) == len(set(names))


def test_no_key_is_one_that_terminals_or_the_prompt_need() -> None:
    taken = {f"ctrl+{letter}" for letter in "bszhimaekuwydxvcfl"} | {
        "f6",
        "f7",
        "f10",
        "f11",
        "f12",
    }
    for command in COMMANDS:
        assert not taken & set(command.keys.split(",")), command.id


def test_everything_but_moving_about_can_be_typed_or_is_in_the_palette() -> None:
    for command in COMMANDS:
        assert command.slash or command.scope == "message" or command.id == "view.focus"
    assert len(help_rows()) == len(COMMANDS)


@pytest.mark.parametrize(
    ("line", "id", "argument"),
    [
        ("/export md", "chat.export", "md"),
        ("/system  Be  brief. ", "chat.system", "Be  brief."),
        ("/exit", "app.quit", ""),
        ("/", None, ""),
        ("/exports", None, ""),
    ],
)
def test_slash_lines(line: str, id: str | None, argument: str) -> None:
    command, rest = slash(line)
    assert (command.id if command else None) == id
    assert rest == argument


@pytest.mark.parametrize("text", ["/etc/hosts", "/", "hello /new", "", "   ", "/new\nline", "//x"])
def test_what_is_no_command(text: str) -> None:
    assert not is_slash(text)


def test_the_nearest_command() -> None:
    assert nearest("/nwe") == "There is no command /nwe. Did you mean /new?"
    assert nearest("/xyzzy") == "There is no command /xyzzy."


def test_completions_narrow_down() -> None:
    assert [c.slash for c in completions("/ex")] == ["export"]
    assert len(completions("/")) > 10
    assert [c.slash for c in completions("/set temp")] == ["set"]
    assert completions("/nothing") == []


def test_hints_replace_what_was_typed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    (hint,) = hints("/exp", tmp_path)
    assert (hint.text, hint.typed) == ("/export ", 4)
    (path,) = hints("look at @no", tmp_path)
    assert (path.text, path.typed) == ("@notes.txt", 3)
    (tmp_path / "two words.txt").write_text("x", encoding="utf-8")
    (quoted,) = hints("look at @two", tmp_path)
    assert quoted.text == '@"two words.txt"'
    for line in ("", "hello", "a@b.com", "/etc/hosts", "look @none"):
        assert hints(line, tmp_path) == []


# Thoughts.


@pytest.mark.parametrize(
    ("text", "thought", "answer", "open"),
    [
        ("Hello", "", "Hello", False),
        ("<think>hm</think>Hello", "hm", "Hello", False),
        ("\n<think>\nhm\n</think>\n\nHello", "hm", "Hello", False),
        ("<think>hm", "hm", "", True),
        ("hm</think>\nHello", "hm", "Hello", False),  # the template had opened it
        ("I say <think> in the middle", "", "I say <think> in the middle", False),
        ("", "", "", False),
    ],
)
def test_thoughts_and_answers(text: str, thought: str, answer: str, open: bool) -> None:
    parts = thinking.split(text)
    assert (parts.thought, parts.answer, parts.open) == (thought, answer, open)
    assert text[parts.answer_at :] == answer


def test_the_beginning_of_a_thought_is_waited_for() -> None:
    assert all(thinking.may_become_thought("<think>"[:i]) for i in range(8))
    assert not thinking.may_become_thought("<b>")
    assert not thinking.may_become_thought("<think>x")


# Provenance.

_RUNS = st.lists(st.tuples(st.sampled_from([TARGET, "model", "n-gram"]), st.integers(0, 9)))


@given(_RUNS, st.text(max_size=80))
def test_spans_are_the_text(runs: list[tuple[str, int]], text: str) -> None:
    provenance = Provenance(runs)
    assert "".join(piece for _, piece in provenance.spans(text)) == text
    again = Provenance.decoded(provenance.encoded())
    assert list(again.spans(text)) == list(provenance.spans(text))


def test_what_proposed_which_characters() -> None:
    provenance = Provenance([(TARGET, 2), ("model", 1), ("model", 2), ("n-gram", 1)])
    assert provenance.encoded() == "2t3m1n"
    assert list(provenance.spans("abcdefgh")) == [
        (TARGET, "ab"),
        ("model", "cde"),
        ("n-gram", "f"),
        (TARGET, "gh"),
    ]


def test_a_drafter_of_the_future_and_damage_are_no_harm() -> None:
    assert list(Provenance.decoded("2q1t").spans("abc")) == [("unknown", "ab"), (TARGET, "c")]
    assert list(Provenance.decoded("what is this").spans("abc")) == [(TARGET, "abc")]
    assert Provenance([("new drafter", 3)]).encoded() == "3x"


# Settings.


def test_settings_come_back_as_they_were_kept() -> None:
    settings = ChatSettings(temperature=0.1, k=3, seed=7, system="Be brief.")
    assert ChatSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_kept_settings_that_make_no_sense_are_left_out() -> None:
    kept = {"temperature": -5, "k": "many", "top_k": 3, "other": 1, "max_tokens": None}
    assert ChatSettings.from_dict(kept) == ChatSettings(top_k=3)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", " 0.5 ", 0.5),
        ("k", "auto", "auto"),
        ("k", "0", 0),
        ("seed", "", None),
        ("seed", "12", 12),
        ("system", " Be brief. ", "Be brief."),
    ],
)
def test_typed_values(name: str, text: str, value: object) -> None:
    assert getattr(ChatSettings().with_text(name, text), name) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("temperature", "hot", "temperature must be a number, not 'hot'."),
        ("temperature", "-1", "temperature must be 0, or between"),
        ("k", "many", "k must be auto or a whole number, not 'many'."),
        ("k", "33", "k must be auto or a number between 0 and 32, not 33."),
        ("seed", "x", "seed must be empty or a whole number"),
        ("max_tokens", "-1", "max_tokens must be 0"),
        ("top_p", "nan", "top_p must be between"),
    ],
)
def test_typed_values_that_make_no_sense(name: str, text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        ChatSettings().with_text(name, text)
    assert message in str(caught.value)


# Text.


@given(st.text())
def test_harmless_text_is_as_long_and_has_no_controls(text: str) -> None:
    shown = harmless(text)
    assert len(shown) == len(text)
    assert not any(ord(c) < 32 and c not in "\t\n" for c in shown)


def test_one_line_is_cut() -> None:
    assert one_line("a\n b\tc", 10) == "a b c"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("\x1b[31mred", 20) == "�[31mred"


def test_code_blocks_of_all_kinds() -> None:
    text = "a\n```py\none\n```\n~~~\ntwo\n```\n~~~\n````\n```\nthree\n```\n````\n  ```\nfour"
    assert code_blocks(text) == ["one", "two\n```", "```\nthree\n```", "four"]
    assert code_blocks("no `code` here") == []


# The heading.


@pytest.mark.parametrize("width", [1, 10, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("title", ["", "About cats", "日本語" * 50])
def test_the_heading_fits(width: int, title: str) -> None:
    info = EngineInfo(
        target="Qwen2.5-7B-Instruct-Q4_K_M.gguf",
        draft="Qwen2.5-0.5B-Q8_0.gguf",
        drafter="auto",
        drafters=("model", "n-gram"),
        num_draft_tokens="auto",
        n_ctx=4096,
        threads=2,
        devices=(),
        exact_widths=None,
    )
    line = heading(title=title, info=info, settings=ChatSettings(), used=412, width=width)
    if width >= 40:
        assert line.cell_length <= width
    if width >= 120:
        assert "ctx 412/4096" in line.plain
        assert "Qwen2.5-7B-Instruct-Q4_K_M + Qwen2.5-0.5B-Q8_0" in line.plain


# Preferences.


def test_preferences_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "below" / "tui.json"
    assert preferences.read(path) == Preferences()
    liked = Preferences(theme="nord", stats="strip", keys={"view.tokens": "f9"})
    preferences.write(path, liked)
    assert preferences.read(path) == liked


@pytest.mark.parametrize(
    "damage", ["", "[]", "{", '{"theme": 3, "stats": "x", "keys": [1]}', "\x00\xff", "null"]
)
def test_damaged_preferences_are_left_out(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "tui.json"
    path.write_bytes(damage.encode("latin-1"))
    assert preferences.read(path) == Preferences()


def test_preferences_that_cannot_be_written_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    preferences.write(tmp_path / "file" / "tui.json", Preferences())


# The pace of painting.


def test_a_cheap_screen_is_painted_ten_times_a_second() -> None:
    used = iter(range(100))
    pace = Pace(clock=lambda: next(used) * 0.005)
    assert [pace.wait_s() for _ in range(20)] == [0.1] * 20


def test_a_dear_screen_is_painted_less_often() -> None:
    used = iter(range(100))
    pace = Pace(clock=lambda: next(used) * 0.04)
    waits = [pace.wait_s() for _ in range(30)]
    assert waits[-1] == pytest.approx(0.2, rel=0.01)  # a fifth of a core
    slow = iter(range(100))
    pace = Pace(clock=lambda: next(slow) * 5.0)
    assert [pace.wait_s() for _ in range(10)][-1] == 0.5
