"""Stop strings: the split into pieces never shows, and nothing is shown that must go away."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgespec.errors import OptionError
from edgespec.text.stops import StopStrings


def feed_all(stops: list[str], pieces: list[str]) -> list[str]:
    """The text after each piece, and last what flush gives."""
    watch = StopStrings(stops)
    return [*(watch.feed(piece) for piece in pieces), watch.flush()]


def naive(stops: list[str], text: str) -> tuple[str, str | None]:
    """The text before the stop string that is complete first, and that stop string."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_without_stops_everything_passes() -> None:
    assert feed_all([], ["a", "", "b\n"]) == ["a", "", "b\n", ""]


def test_stop_inside_one_piece_cuts_it_and_all_after() -> None:
    watch = StopStrings(["END"])
    assert watch.feed("beforeENDafter") == "before"
    assert watch.found == "END"
    assert watch.feed("more END more") == ""
    assert watch.flush() == ""
    assert watch.found == "END"


def test_stop_over_three_pieces_never_shows() -> None:
    watch = StopStrings(["</stop>"])
    assert watch.feed("text</") == "text"
    assert watch.feed("sto") == ""
    assert watch.found is None
    assert watch.feed("p> rest") == ""
    assert watch.found == "</stop>"


def test_held_back_text_comes_when_it_turns_out_harmless() -> None:
    assert feed_all(["\n\nUser"], ["a\n", "\nUs", "age"]) == ["a", "", "\n\nUsage", ""]


def test_only_what_could_start_a_stop_is_held_back() -> None:
    assert feed_all(["aab"], ["aaaa", "c"]) == ["aa", "aac", ""]


def test_flush_gives_the_rest_once() -> None:
    watch = StopStrings(["STOP"])
    assert watch.feed("all ST") == "all "
    assert watch.flush() == "ST"
    assert watch.flush() == ""
    assert watch.found is None


def test_a_false_start_may_hide_a_true_one() -> None:
    watch = StopStrings(["ababc"])
    assert [watch.feed(letter) for letter in "xababab"] == ["x", "", "", "", "", "ab", ""]
    assert watch.feed("c") == ""
    assert watch.found == "ababc"


def test_the_stop_that_is_complete_first_wins() -> None:
    watch = StopStrings(["abcd", "bc"])
    assert watch.feed("abcd") == "a"
    assert watch.found == "bc"


def test_the_longest_of_those_complete_together_wins() -> None:
    for stops in (["cd", "bcd", "d"], ["d", "bcd", "cd"]):
        watch = StopStrings(stops)
        assert watch.feed("abcde") == "a"
        assert watch.found == "bcd"


def test_a_stop_that_starts_another_does_not_wait_for_it() -> None:
    watch = StopStrings(["\n\n", "\n"])
    assert watch.feed("line\n") == "line"
    assert watch.found == "\n"


def test_a_stop_found_through_another_ones_start() -> None:
    watch = StopStrings(["abcx", "bcy"])
    assert watch.feed("1abc") == "1"
    assert watch.feed("y") == "a"
    assert watch.found == "bcy"


def test_thousands_of_stops_are_allowed() -> None:
    watch = StopStrings([f"<{number}>" for number in range(5000)])
    assert watch.feed("a <49") == "a "
    assert watch.feed("99> b") == ""
    assert watch.found == "<4999>"


def test_text_held_back_is_never_longer_than_a_stop() -> None:
    watch = StopStrings(["aaaaaaab"])
    shown = sum(len(watch.feed("a")) for _ in range(1000))
    assert shown == 1000 - len("aaaaaaa")


@pytest.mark.parametrize(
    ("stops", "message"),
    [
        ([""], r"stop\[0\] is empty"),
        (["ok", ""], r"stop\[1\] is empty"),
        (["ok", 7], r"stop\[1\] is 7, which is not a string"),
        ("END", r"not a list; write \['END'\]"),
    ],
)
def test_unusable_stops_are_refused(stops: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        StopStrings(stops)


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4),
    st.lists(st.text("ab\n", max_size=6), max_size=10),
)
@example(["abcd", "bc"], ["ab", "cd"])
@example(["aab"], ["aa", "ab"])
def test_any_split_equals_a_search_in_the_whole_text(stops: list[str], pieces: list[str]) -> None:
    watch = StopStrings(stops)
    shown = "".join([watch.feed(piece) for piece in pieces] + [watch.flush()])
    assert (shown, watch.found) == naive(stops, "".join(pieces))


@given(
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.text("ab", max_size=30),
)
def test_as_much_as_is_certain_is_shown(stops: list[str], text: str) -> None:
    watch = StopStrings(stops)
    shown = ""
    for end, letter in enumerate(text, start=1):
        shown += watch.feed(letter)
        if watch.found is not None:
            break
        starts = {stop[:size] for stop in stops for size in range(1, len(stop))}
        held = max((len(start) for start in starts if text[:end].endswith(start)), default=0)
        assert shown == text[: end - held]
