"""Markdown: tables that line up, and foreign text that is shown as it is."""

from __future__ import annotations

import unicodedata
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from edgespec.bench.report.markup import milliseconds, name, narrow_tables, size, table, text


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("model:7", "model:7"),
        ("off (2)", "off (2)"),
        ("code_write-1.gguf", "code_write-1.gguf"),
        ("1.42x [1.31, 1.55]; k < 3 & more", "1.42x [1.31, 1.55]; k < 3 & more"),
        ("a|b\nc\td", r"a\|b c d"),
        ("<script>", r"\<script>"),
        ("*a* `b` _c_ ~~d~~", r"\*a\* \`b\` \_c\_ \~\~d\~\~"),
        ("__init__ a__b _ x_", r"\_\_init\_\_ a\_\_b \_ x\_"),
        ("[a](b) ![c](d)", r"[a]\(b) ![c]\(d)"),
        ("C:\\x", r"C:\\x"),
        ("- a", r"\- a"),
        ("# a", r"\# a"),
        ("12. a 3. b", r"12\. a 3. b"),
        ("&lt; &#60; &", r"\&lt; \&#60; &"),
        ("\x1b[2Jx\u202ey\u200b", "[2Jx y"),
        ("", ""),
    ],
)
def test_text_is_changed_only_where_it_would_mean_something(foreign: str, shown: str) -> None:
    assert text(foreign) == shown


@given(st.text(st.sampled_from('ab12 .\\`*_{}[]()<>#+-=!|~:;&"/\n\t\x1b')))
def test_text_is_rendered_as_it_was(foreign: str) -> None:
    shown = escape(" ".join(foreign.replace("\x1b", " ").split()))
    render = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
    assert f"<td>{shown}</td>\n" in render(table(("name", "n"), [[text(foreign), "1"]], "lr"))
    assert f"<li>{shown}</li>\n" in render(f"- {text(foreign)}")


def test_long_names_are_cut() -> None:
    assert len(name("x" * 100)) == 60
    assert name("x" * 100).endswith("...")
    assert name("x" * 60) == "x" * 60


def test_a_table_aligns_wide_and_combining_characters() -> None:
    shown = table(("name", "n"), [["\u4e2d\u6587", "1"], ["e\u0301", "22"]], "lr").splitlines()

    def columns(line: str) -> int:
        wide = sum(unicodedata.east_asian_width(char) == "W" for char in line)
        return len(line) + wide - sum(bool(unicodedata.combining(char)) for char in line)

    assert len({columns(line) for line in shown}) == 1
    assert shown[1] == "| ---- | --: |"


def test_a_table_too_wide_is_split_and_keeps_its_first_column() -> None:
    header = ["category", "aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"]
    shown = narrow_tables(header, [["chat", "1", "2", "3"]], 40)
    assert [part.splitlines()[0].split()[1::2] for part in shown] == [
        ["category", "aaaaaaaaaa", "bbbbbbbbbb"],
        ["category", "cccccccccc"],
    ]
    assert len(narrow_tables(header, [], 10)) == 3  # a column too wide still has its place


def test_figures_have_the_digits_that_matter() -> None:
    seconds = (None, 0.0, 0.11, 0.0292, 0.0000321)
    assert list(map(milliseconds, seconds)) == ["-", "0.00", "110.0", "29.2", "0.03"]
    assert [size(3 * 2**30), size(2**27)] == ["3.0 GiB", "128 MiB"]
