"""Numbers as text, and pictures out of characters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from edgespec.tui.speed import draw
from edgespec.tui.speed.draw import ASCII, UNICODE, Glyphs

GLYPHS = st.sampled_from([UNICODE, ASCII])
WIDTHS = st.integers(-3, 80)
ANY = st.floats(allow_nan=True, allow_infinity=True)


# Sparklines.


def test_a_sparkline_starts_at_zero_and_ends_at_its_largest_value() -> None:
    assert draw.sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"


def test_a_steady_rate_is_a_full_line_and_not_noise() -> None:
    assert draw.sparkline([100, 101, 100, 99], 4) == "████"


def test_a_sparkline_shows_the_last_values_at_the_right_end() -> None:
    assert draw.sparkline([7, 0, 7], 2) == "▁█"
    assert draw.sparkline([7, 0], 5) == "   █▁"


def test_a_sparkline_has_a_top_of_its_own_when_told() -> None:
    assert draw.sparkline([0, 1, 4, 8, 80], 5, top=8) == "▁▂▅██"


@pytest.mark.parametrize("top", [0.0, -1.0, math.nan, math.inf])
def test_a_top_that_is_none_is_replaced_by_the_largest_value(top: float) -> None:
    assert draw.sparkline([0, 7], 2, top=top) == "▁█"


def test_a_sparkline_of_zeros_is_low_and_one_of_nothing_is_empty() -> None:
    assert draw.sparkline([0, 0], 3) == " ▁▁"
    assert draw.sparkline([], 3) == "   "
    assert draw.sparkline([1], 0) == draw.sparkline([1], -1) == ""


def test_a_value_that_is_not_known_leaves_a_gap() -> None:
    assert draw.sparkline([7, math.nan, 7], 3) == "█ █"
    assert draw.sparkline([math.nan], 1) == " "
    assert draw.sparkline([math.inf, -math.inf, 7], 3) == "█▁█"


def test_a_value_below_zero_is_shown_as_zero() -> None:
    assert draw.sparkline([-5, 7], 2) == "▁█"


def test_a_sparkline_without_unicode() -> None:
    assert draw.sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, glyphs=ASCII) == " .:-=+*#"


@given(st.lists(ANY, max_size=50), WIDTHS, st.none() | ANY, GLYPHS)
def test_a_sparkline_is_as_wide_as_asked(
    values: list[float], width: int, top: float | None, glyphs: Glyphs
) -> None:
    line = draw.sparkline(values, width, top, glyphs)
    assert len(line) == max(width, 0)
    assert set(line) <= set(glyphs.levels) | {" "}


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=40))
def test_a_sparkline_is_in_the_order_of_its_values(values: list[float]) -> None:
    levels = [UNICODE.levels.index(level) for level in draw.sparkline(values, len(values))]
    for (one, low), (other, high) in zip(
        zip(values, levels, strict=True), list(zip(values, levels, strict=True))[1:], strict=False
    ):
        assert (one <= other) <= (low <= high)


# Bars.


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        (0.0, "░░░░"),
        (1.0, "████"),
        (0.5, "██░░"),
        (1 / 32, "▏░░░"),
        (0.7, "██▊░"),  # 22.4 eighths
        (31 / 32, "███▉"),
        (-1.0, "░░░░"),
        (7.0, "████"),
        (None, "░░░░"),
        (math.nan, "░░░░"),
        (math.inf, "░░░░"),
    ],
)
def test_a_bar_is_exact_to_an_eighth_of_a_cell(share: float | None, drawn: str) -> None:
    assert draw.bar(share, 4) == drawn


def test_a_bar_without_unicode_has_whole_cells() -> None:
    assert draw.bar(0.5, 4, ASCII) == "##.."
    assert draw.bar(0.7, 4, ASCII) == "###."


@given(st.none() | ANY, WIDTHS, GLYPHS)
def test_a_bar_is_as_wide_as_asked(share: float | None, width: int, glyphs: Glyphs) -> None:
    assert len(draw.bar(share, width, glyphs)) == max(width, 0)


def test_a_split_bar_has_a_part_for_each_share() -> None:
    assert draw.split_bar([1, 2, 1], 8) == "▓▓████░░"
    assert draw.split_bar([10, 20, 10], 8) == "▓▓████░░"
    assert draw.split_bar([1, 2, 1], 8, ASCII) == "==####.."


def test_cells_that_are_left_over_go_to_the_largest_rests() -> None:
    assert draw.split_widths([5.9, 18.5, 1.9], 31) == (7, 22, 2)  # 6.95, 21.81, 2.24
    assert draw.split_widths([1, 1, 1], 4) == (2, 1, 1)


def test_a_split_bar_of_nothing_is_empty() -> None:
    assert draw.split_bar([], 3) == draw.split_bar([0, 0], 3) == "░░░"
    assert draw.split_widths([0.0, 0.0], 3) == (0, 0)


def test_shares_that_are_no_numbers_have_no_part() -> None:
    assert draw.split_widths([math.nan, 1.0, -1.0, math.inf], 5) == (0, 5, 0, 0)


@given(st.lists(ANY, max_size=6), WIDTHS, GLYPHS)
def test_a_split_bar_is_as_wide_as_asked(shares: list[float], width: int, glyphs: Glyphs) -> None:
    assert len(draw.split_bar(shares, width, glyphs)) == max(width, 0)
    widths = draw.split_widths(shares, width)
    assert len(widths) == len(shares)
    assert min(widths, default=0) >= 0
    some = any(math.isfinite(share) and share > 0 for share in shares)
    assert sum(widths) == (max(width, 0) if some else 0)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(0, 60))
def test_no_part_is_a_cell_off(shares: list[float], width: int) -> None:
    for share, cells in zip(shares, draw.split_widths(shares, width), strict=True):
        assert abs(share * width / sum(shares) - cells) < 1 + 1e-9


# Numbers.


@pytest.mark.parametrize(
    ("x", "text", "short"),
    [
        (0.0, "0.0", "0.0"),
        (7.04, "7.0", "7.0"),
        (99.94, "99.9", "99.9"),
        (99.96, "100.0", "100"),
        (110.7, "110.7", "111"),
        (999.94, "999.9", "1000"),
        (999.96, "1000", "1000"),
        (4321.5, "4322", "4322"),
        (None, "–", "–"),
        (math.nan, "–", "–"),
        (math.inf, "–", "–"),
    ],
)
def test_rates(x: float | None, text: str, short: str) -> None:
    assert draw.rate(x) == text
    assert draw.rate(x, short=True) == short


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0.00 s"),
        (0.41, "0.41 s"),
        (0.994, "0.99 s"),
        (0.996, "1.0 s"),
        (7.1, "7.1 s"),
        (9.96, "10 s"),
        (12.3, "12 s"),
        (59.6, "1 min 0 s"),
        (185.0, "3 min 5 s"),
        (-7.1, "-7.1 s"),
        (-61.0, "-1 min 1 s"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_seconds(x: float | None, text: str) -> None:
    assert draw.seconds(x) == text


@pytest.mark.parametrize(
    ("x", "text"), [(0.0059, "5.9"), (0.1264, "126"), (0.0, "0.0"), (None, "–"), (math.inf, "–")]
)
def test_milliseconds(x: float | None, text: str) -> None:
    assert draw.milliseconds(x) == text


def test_percents() -> None:
    assert draw.percent(0.515) == "52%"
    assert draw.percent(0.515, digits=1) == "51.5%"
    assert draw.percent(0.0) == "0%"
    assert draw.percent(1.0) == "100%"
    assert draw.percent(None) == draw.percent(math.nan) == "–"


@pytest.mark.parametrize(
    ("x", "text"),
    [(2.1, "×2.1"), (0.8, "×0.8"), (1.0, "×1.0"), (9.94, "×9.9"), (12.4, "×12"), (None, "–")],
)
def test_speedups(x: float | None, text: str) -> None:
    assert draw.speedup(x) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0"),
        (4096, "4096"),
        (9999, "9999"),
        (10_000, "10.0k"),
        (12_345, "12.3k"),
        (131_072, "131k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (1_234_567, "1.2M"),
        (None, "–"),
    ],
)
def test_token_counts(n: int | None, text: str) -> None:
    assert draw.tokens(n) == text


def test_without_unicode_there_is_nothing_but_ascii() -> None:
    assert draw.speedup(2.1, ASCII) == "x2.1"
    for unknown in (draw.rate, draw.seconds, draw.milliseconds, draw.percent, draw.speedup):
        assert unknown(None, ASCII) == "-"
    assert draw.tokens(None, ASCII) == "-"
    characters = "".join(getattr(ASCII, name) for name in Glyphs.__slots__)
    assert characters.isascii()


def test_every_unicode_character_is_one_cell_wide() -> None:
    characters = "".join(getattr(UNICODE, name) for name in Glyphs.__slots__)
    assert Content(characters).cell_length == len(characters)


def test_the_terminal_decides_on_the_characters() -> None:
    assert draw.glyphs_for(False, "xterm-256color") is UNICODE
    assert draw.glyphs_for(False, "") is UNICODE
    assert draw.glyphs_for(False, "linux") is ASCII
    assert draw.glyphs_for(True, "xterm-256color") is ASCII
