"""Where lines end an answer in an editor, and what was suggested there before."""

from __future__ import annotations

import pytest

from edgespec.server.lines import LineLimits
from edgespec.server.suggestions import Suggestions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def cut(text: str, indent: int, size: int) -> tuple[str, bool]:
    """The text, fed in pieces of this size."""
    limits = LineLimits(indent, 0)
    shown = [limits.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join(shown) + limits.flush(), limits.ended


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("text", "indent", "shown"),
    [
        ("a\n  b\nc\n  d", 2, "a\n  b\n"),
        ("a\n b", 2, "a\n"),
        ("a\n\tb\n\t\tc\nd", 1, "a\n\tb\n\t\tc\n"),
        ("a\n\n  b", 2, "a\n"),  # an empty line, too
        ("  a\n  b", 4, "  a\n"),  # the first line goes on with one that is there
        ("a\r\n  b\r\nc", 2, "a\r\n  b\r\n"),
    ],
)
def test_a_line_that_is_indented_less_is_cut(text: str, indent: int, shown: str, size: int) -> None:
    assert cut(text, indent, size) == (shown, True)


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    ("text", "indent"), [("a\nb\n\nc", 0), ("a\n  b\n    c", 2), ("a\n ", 2), ("a\n", 2), ("", 2)]
)
def test_other_lines_are_kept(text: str, indent: int, size: int) -> None:
    assert cut(text, indent, size) == (text, False)


def test_white_space_is_held_back_until_it_is_enough() -> None:
    limits = LineLimits(2, 0)
    assert limits.feed("a\n ") == "a\n"
    assert limits.feed(" ") == "  "
    assert limits.feed("b") == "b"


def test_time_ends_an_answer_with_the_line() -> None:
    clock = Clock()
    limits = LineLimits(0, 1.0, clock=clock)
    clock.now = 50.0
    limits.start()
    assert limits.feed("a\nb") == "a\nb"
    clock.now = 52.0
    limits.start()  # it has begun already
    assert (limits.feed("c"), limits.ended) == ("c", False)
    assert (limits.feed("d\ne\n"), limits.ended) == ("d\n", True)
    assert limits.feed("more") == ""


def test_time_alone_ends_nothing() -> None:
    clock = Clock()
    for seconds in (0.0, -1.0):
        limits = LineLimits(0, seconds, clock=clock)
        limits.start()
        clock.now += 100
        assert (limits.feed("a\nb"), limits.ended) == ("a\nb", False)


# Suggestions.


def remembered(before: str, after: str = "", text: str = "one two") -> Suggestions:
    found = Suggestions()
    found.add(before, after, text)
    return found


def test_the_rest_of_a_suggestion() -> None:
    found = remembered("def f", "end")
    assert found.rest("def f", "end") == "one two"
    assert found.rest("def fone", "end") == " two"
    assert found.rest("def fone two", "end") == ""  # all of it was taken
    assert found.rest("def fX", "end") == ""
    assert found.rest("def g", "end") == ""
    assert found.rest("xdef f", "end") == ""  # what came before was all there was
    assert found.rest("def f", "other") == ""
    assert Suggestions().rest("", "") == ""


def test_a_window_that_moves_along_is_known_again() -> None:
    lines = [f"line {number} of a long file\n" for number in range(60)]
    found = remembered("".join(lines[:40]), text="one\ntwo\n")
    assert found.rest("".join(lines[3:40]) + "one\n", "") == "two\n"
    assert found.rest("".join(lines[3:39]) + "one\n", "") == ""
    assert found.rest("".join(lines[38:40]), "") == ""  # too little to be sure


def test_the_beginning_of_what_follows_tells_gaps_apart() -> None:
    found = remembered("a", "x" * 100)
    assert found.rest("a", "x" * 90) == "one two"
    assert found.rest("a", "x" * 60) == ""


def test_the_last_suggestion_counts_and_old_ones_go() -> None:
    found = remembered("a", text="first")
    found.add("a", "", "second")
    found.add("a", "", "")  # nothing was suggested
    assert found.rest("a", "") == "second"
    assert found.rest("af", "") == "irst"
    for number in range(100):
        found.add(f"other {number}", "", "text")
    assert found.rest("a", "") == ""
