"""What is thought and what is said, however the text is cut into pieces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.text.thoughts import CLOSE, OPEN, Said, Thoughts


def split(pieces: Sequence[str], *, open: bool = False) -> Said:
    """All that comes out of it."""
    thoughts = Thoughts(open=open)
    said = [thoughts.feed(piece) for piece in pieces] + [thoughts.flush()]
    return Said("".join(one.thought for one in said), "".join(one.answer for one in said))


def expected(text: str, *, open: bool) -> Said:
    """The same from the whole text at once."""
    if not open:
        start = text.lstrip()
        if not start.startswith(OPEN):
            return Said("", text)
        text = start.removeprefix(OPEN)
    thought, _, answer = text.partition(CLOSE)
    return Said(thought.strip(), answer.lstrip())


PARTS = [OPEN, CLOSE, "<", "</", "think", ">", "/", " ", "\n", "\u3000", "a", "Ab c", "é", ""]
texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(texts, st.lists(st.integers(0, 60), max_size=12), st.booleans())
def test_pieces_make_no_difference(text: str, cuts: list[int], open: bool) -> None:
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    assert split(pieces, open=open) == expected(text, open=open)
    assert split(list(text), open=open) == expected(text, open=open)


@pytest.mark.parametrize(
    ("text", "open", "thought", "answer"),
    [
        ("Hello", False, "", "Hello"),
        ("  Hello ", False, "", "  Hello "),
        ("<think>\nWell.\n</think>\n\nHello\n", False, "Well.", "Hello\n"),
        ("\n<think>Well.</think>Hello", False, "Well.", "Hello"),
        ("Well.\n</think>\n\nHello", True, "Well.", "Hello"),
        ("<think>\n\n</think>\n\nHello", False, "", "Hello"),
        ("</think>Hello", True, "", "Hello"),
        ("<think>Well, a < b </thin", False, "Well, a < b </thin", ""),
        ("Well", True, "Well", ""),
        ("", True, "", ""),
        ("", False, "", ""),
        (" \n", False, "", " \n"),
        ("<thin", False, "", "<thin"),
        ("So <think>no</think>", False, "", "So <think>no</think>"),
        ("<think>a</think>b<think>c</think>d", False, "a", "b<think>c</think>d"),
        ("</think>Hello", False, "", "</think>Hello"),
        ("<think>a\n\nb</think> ", False, "a\n\nb", ""),
    ],
)
def test_what_is_thought_and_what_is_said(text: str, open: bool, thought: str, answer: str) -> None:
    assert split([text], open=open) == Said(thought, answer)
    assert split(list(text), open=open) == Said(thought, answer)


def test_nothing_is_held_back_longer_than_needed() -> None:
    thoughts = Thoughts()
    assert thoughts.feed("<thi") == Said("", "")
    assert thoughts.feed("nk>One ") == Said("One", "")
    assert thoughts.feed("two <") == Said(" two", "")
    assert thoughts.feed(" three</th") == Said(" < three", "")
    assert thoughts.feed("ink>\n") == Said("", "")
    assert thoughts.feed(" Four <") == Said("", "Four <")
    assert thoughts.feed(" five ") == Said("", " five ")
    assert thoughts.flush() == Said("", "")


def test_an_answer_that_is_no_thought_comes_as_it_is() -> None:
    thoughts = Thoughts()
    assert thoughts.feed(" ") == Said("", "")
    assert thoughts.feed("<b") == Said("", " <b")
    assert thoughts.feed(">  ") == Said("", ">  ")
