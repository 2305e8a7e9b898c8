"""Token ids to text: the split into tokens never shows."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgespec.text.detokenize import Detokenizer


def detokenizer(*pieces: bytes) -> Detokenizer:
    """Token i stands for pieces[i]."""
    return Detokenizer(lambda token: pieces[token])


def feed_all(pieces: list[bytes]) -> list[str]:
    """The text after each token, and last what flush gives."""
    stream = detokenizer(*pieces)
    return [*(stream.feed(token) for token in range(len(pieces))), stream.flush()]


def test_plain_text_comes_at_once() -> None:
    assert feed_all([b"Hello", b" wor", b"ld"]) == ["Hello", " wor", "ld", ""]


def test_emoji_over_four_tokens_is_held_back_until_complete() -> None:
    first, second, third, fourth = (bytes([byte]) for byte in "🦙".encode())
    assert feed_all([b"a" + first, second, third, fourth + b"b"]) == ["a", "", "", "🦙b", ""]


def test_two_characters_that_share_a_token() -> None:
    data = "é漢".encode()
    assert feed_all([data[:1], data[1:3], data[3:]]) == ["", "é", "漢", ""]


def test_incomplete_character_at_the_end_becomes_one_mark() -> None:
    assert feed_all([b"ok", "🦙".encode()[:3]]) == ["ok", "", "\ufffd"]


def test_invalid_byte_does_not_block_the_stream() -> None:
    assert feed_all([b"a\xff", b"b"]) == ["a\ufffd", "b", ""]


def test_character_broken_off_by_other_text_does_not_block_the_stream() -> None:
    assert feed_all(["🦙".encode()[:2], b"next"]) == ["", "\ufffdnext", ""]


def test_empty_pieces_change_nothing() -> None:
    data = "ü".encode()
    assert feed_all([b"", data[:1], b"", data[1:]]) == ["", "", "", "ü", ""]


def test_flush_leaves_nothing_behind() -> None:
    stream = detokenizer(b"\xe2\x82", b"\xac")
    stream.feed(0)
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_an_unknown_token_is_the_callers_error() -> None:
    with pytest.raises(IndexError):
        detokenizer(b"a").feed(1)


@given(st.lists(st.binary(max_size=6), max_size=12))
@example([b"\xed", b"\xa0\x80"])  # a surrogate
@example([b"\xf4\x90", b"\x80\x80"])  # past the last character
@example([b"\xc0", b"\x80"])  # overlong
def test_any_split_of_any_bytes_equals_decoding_at_once(pieces: list[bytes]) -> None:
    assert "".join(feed_all(pieces)) == b"".join(pieces).decode("utf-8", errors="replace")


@given(st.text(max_size=20), st.data())
def test_no_split_of_valid_text_shows_a_mark(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=8).map(sorted))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    shown = feed_all(pieces)
    assert "".join(shown) == text
    assert shown[-1] == ""


@given(st.text(min_size=1, max_size=20))
def test_a_character_is_shown_with_its_last_byte(text: str) -> None:
    raw = text.encode()
    stream = detokenizer(*(bytes([byte]) for byte in raw))
    shown = ""
    for end in range(1, len(raw) + 1):
        shown += stream.feed(end - 1)
        assert shown == raw[:end].decode("utf-8", errors="ignore")
