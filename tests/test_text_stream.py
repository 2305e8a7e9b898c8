"""Tokens to shown text: characters, stop strings and hidden tokens together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import OptionError
from edgespec.text.stream import TextStream

EOG = 99


def stream(*pieces: bytes, stops: tuple[str, ...] = ()) -> TextStream:
    """Token i stands for pieces[i]; EOG is hidden and has a text that would be seen."""
    return TextStream(lambda token: b"<eog>" if token == EOG else pieces[token], stops, {EOG})


def test_take_gives_each_text_once() -> None:
    text = stream(b"one ", b"two ", b"three")
    assert not text.feed(0)
    assert not text.feed(1)
    assert text.take() == "one two "
    assert text.take() == ""
    assert not text.feed(2)
    assert text.take() == "three"
    assert text.finish() == ""


def test_finish_gives_what_was_not_taken_and_what_was_held_back() -> None:
    text = stream(b"a", b"b ST", stops=("STOP",))
    text.feed(0)
    text.feed(1)
    assert text.finish() == "ab ST"
    assert text.finish() == ""
    assert text.take() == ""


def test_emoji_over_two_tokens() -> None:
    first, second = "🦙".encode()[:2], "🦙".encode()[2:]
    text = stream(first, second)
    text.feed(0)
    assert text.take() == ""
    text.feed(1)
    assert text.take() == "🦙"


def test_incomplete_character_at_the_end_is_marked() -> None:
    text = stream(b"a\xf0\x9f")
    text.feed(0)
    assert text.take() == "a"
    assert text.finish() == "\ufffd"


def test_stop_over_three_tokens_ends_at_the_third() -> None:
    text = stream(b"hi <", b"|end", b"|> more", stops=("<|end|>",))
    assert [text.feed(token) for token in range(3)] == [False, False, True]
    assert text.found == "<|end|>"
    assert text.finish() == "hi "


def test_stop_inside_one_token() -> None:
    text = stream(b"hi\n\nUser: x", stops=("User:",))
    assert text.feed(0)
    assert text.take() == "hi\n\n"
    assert text.finish() == ""


def test_stop_of_split_characters() -> None:
    stop = "🛑".encode()
    text = stream(b"go" + stop[:1], stop[1:3], stop[3:] + b"x", stops=("🛑",))
    assert [text.feed(token) for token in range(3)] == [False, False, True]
    assert text.finish() == "go"


def test_tokens_after_the_stop_change_nothing() -> None:
    text = stream(b"a.", b"bc", b"\xf0", stops=(".",))
    assert text.feed(0)
    assert text.feed(1)
    assert text.feed(2)
    assert text.feed(EOG)
    assert text.finish() == "a"


def test_hidden_tokens_have_no_text() -> None:
    text = stream(b"a", b"b", stops=("<eog>",))
    assert [text.feed(token) for token in (0, EOG, 1, EOG)] == [False] * 4
    assert text.finish() == "ab"


def test_hidden_token_lets_held_back_text_wait() -> None:
    text = stream(b"a ST", stops=("STOP",))
    text.feed(0)
    text.feed(EOG)
    assert text.take() == "a "
    assert text.finish() == "ST"


def test_without_tokens_there_is_no_text() -> None:
    assert stream().finish() == ""


def test_unusable_stop_is_refused() -> None:
    with pytest.raises(OptionError, match="empty"):
        stream(stops=("",))


def cut(text: str, stop: str) -> str:
    """What comes before the first `stop`."""
    return text.split(stop, 1)[0]


@given(
    st.lists(st.one_of(st.binary(max_size=3), st.sampled_from([b"S", b"TO", b"P", b"STOP"]))),
    st.lists(st.booleans()),
)
def test_any_tokens_give_the_text_before_the_stop(pieces: list[bytes], takes: list[bool]) -> None:
    text = stream(*pieces, stops=("STOP",))
    shown = ""
    stopped = False
    for token in range(len(pieces)):
        stopped = text.feed(token)
        if token < len(takes) and takes[token]:
            shown += text.take()
        if stopped:
            break
    shown += text.finish()
    whole = b"".join(pieces).decode("utf-8", errors="replace")
    assert shown == cut(whole, "STOP")
    assert stopped == ("STOP" in whole)
