"""Panel and strip as they stand on the screen, at several sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.color import Color
from textual.content import Content
from textual.pilot import Pilot
from textual.style import Style
from textual.widget import Widget

from edgespec.tui.colours import MUTED
from edgespec.tui.speed.draw import ASCII, UNICODE, Glyphs
from edgespec.tui.speed.panel_text import PanelText
from edgespec.tui.speed.stats import StatsView
from edgespec.tui.speed.strip_text import StripText
from edgespec.tui.widgets.panel import PanelState, StatsPanel, StatsStrip

CAPTIONS = (
    "SPEED",
    "ACCEPTANCE",
    "DRAFT LENGTH",
    "STEP TIME",
    "LAST STEP",
    "CONTEXT",
    "SESSION",
)

VIEW = StatsView(
    generating=True,
    tokens=260,
    steps=89,
    rate=110.7,
    mean_rate=104.2,
    peak_rate=118.3,
    rates=(20.0, 60.0, *[110.0] * 30),
    plain_s=1 / 52.1,
    step_s=0.0263,
    speedup=2.1,
    ttft_s=0.41,
    prefill_rate=612.3,
    prompt_tokens=152,
    cached=40,
    prefilled=112,
    drafted=330,
    accepted=170,
    acceptance=170 / 330,
    tokens_per_step=2.91,
    positions=((66, 87), (42, 72), (25, 58), (13, 45), (5, 41), (0, 27), *[(0, 0)] * 3),
    break_even=0.1,
    k=3,
    ks=(3, 4, 5, 2, 1, 0, 8, 3),
    drafter="model",
    reason="3 tokens: 2.61 expected to stand, 0.40 to pay",
    draft_s=0.0059,
    verify_s=0.0185,
    rest_s=0.0019,
    last_drafted=3,
    last_accepted=2,
    context_used=412,
    n_ctx=4096,
    turns=3,
    session_tokens=742,
    session_speedup=2.0,
    saved_s=7.1,
)
STATE = PanelState(state="generating", k_mode="auto", drafters="model, n-gram")
NOTHING = StatsView(n_ctx=4096)
READING = StatsView(generating=True, n_ctx=4096, prompt_tokens=4096, prefilled=812)


class PanelApp(App[None]):
    """One of the two widgets, and nothing else."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, shown: StatsPanel | StatsStrip, css: str = "") -> None:
        super().__init__()
        self.shown = shown
        self.extra = css

    def compose(self) -> ComposeResult:
        yield self.shown

    def on_mount(self) -> None:
        self.stylesheet.add_source(self.extra)
        self.refresh_css()


def rows(widget: Widget) -> list[str]:
    """What the widget shows, row by row, without its border."""
    return [widget.render_line(y).text.rstrip() for y in range(widget.content_size.height)]


Act = Callable[[Pilot[None]], Awaitable[None]]


def shown(
    widget: StatsPanel | StatsStrip,
    view: StatsView = VIEW,
    state: PanelState = STATE,
    *,
    size: tuple[int, int] = (34, 40),
    css: str = "",
    then: Act | None = None,
) -> list[str]:
    """The rows of the widget in a terminal of this size."""

    async def run() -> list[str]:
        app = PanelApp(widget, css)
        async with app.run_test(size=size) as pilot:
            widget.show(view, state)
            await pilot.pause()
            if then is not None:
                await then(pilot)
                await pilot.pause()
            return rows(widget)

    return asyncio.run(run())


def panel(view: StatsView = VIEW, state: PanelState = STATE, height: int = 40) -> list[str]:
    return shown(StatsPanel(), view, state, size=(34, height))


def strip(
    view: StatsView = VIEW, state: PanelState = STATE, *, width: int = 80, rows: int = 2
) -> list[str]:
    return shown(StatsStrip(rows=rows), view, state, size=(width, 5))


def captions(lines: list[str]) -> list[str]:
    return [name for name in CAPTIONS if any(line.startswith(name) for line in lines)]


def below(lines: list[str], caption: str) -> list[str]:
    """The caption's own row and those below it, up to an empty one."""
    start = next(i for i, line in enumerate(lines) if line.startswith(caption))
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    return lines[start:end]


# The panel.


def test_a_panel_shows_everything_where_there_is_room() -> None:
    assert panel() == [
        "SPEED                 generating",
        " 110.7 tok/s   ×2.1 est",
        " ▅██████████████████████████████",
        " mean 104 peak 118 plain 52.1",
        " ttft 0.41 s · prefill 612 tok/s",
        "",
        "ACCEPTANCE                 51.5%",
        " 170 of 330 drafted",
        " 2.91 tok/step (1 = no gain)",
        " 1  █████████████████▌░░░░░  76%",
        " 2  █████████████▍░░░░░░░░░  58%",
        " 3  █████████▉░░░░░░░░░░░░░  43%",
        " 4  ██████▋░░░░░░░░░░░░░░░░  29%",
        " 5  ██▊░░░░░░░░░░░░░░░░░░░░  12%",
        " 6  ░░░░░░░░░░░░░░░░░░░░░░░   0%",
        "",
        "DRAFT LENGTH            k=3 auto",
        "                        ▄▅▅▃▂▁█▄",
        " model             model, n-gram",
        " 3 tokens: 2.61 expected to",
        " stand, 0.40 to pay",
        "",
        "",
        "STEP TIME                26.3 ms",
        " ▓▓▓▓▓▓▓██████████████████████░░",
        " draft 5.9 verify 18.5 rest 1.9",
        " break-even at 10% accepted",
        "",
        "LAST STEP            2 of 3 kept",
        "CONTEXT 412/4096, 40 cached  10%",
        "SESSION        3 turns · 742 tok",
        " mean ×2.0 · saved 7.1 s",
        *[""] * 8,
    ]


def test_a_panel_says_where_nothing_is_known() -> None:
    lines = panel(NOTHING, PanelState())
    assert below(lines, "SPEED") == ["SPEED                       idle", " – tok/s   ×–"]
    text = "\n".join(lines)
    for piece in (
        "mean – · peak – · plain –",
        "ttft – · prefill – tok/s",
        "– tok/step",
        "k=– auto",
        "– ms",
        "draft – · verify – · rest –",
        "break-even –",
        "CONTEXT 0/4096",
        "0 turns · 0 tok",
        "mean ×– · saved –",
    ):
        assert piece in text
    assert captions(lines) == list(CAPTIONS)


@pytest.mark.parametrize(
    ("height", "missing"),
    [
        (32, ()),
        (30, ()),  # without what is more of the reason
        (29, ("LAST STEP",)),
        (27, ("LAST STEP", "SESSION")),
        (25, ("LAST STEP", "CONTEXT", "SESSION")),
        (20, ("DRAFT LENGTH", "LAST STEP", "CONTEXT", "SESSION")),
        (15, ("DRAFT LENGTH", "STEP TIME", "LAST STEP", "CONTEXT", "SESSION")),
        (9, ("DRAFT LENGTH", "STEP TIME", "LAST STEP", "CONTEXT", "SESSION")),
        (5, CAPTIONS[1:]),
        (2, CAPTIONS[1:]),
    ],
)
def test_what_matters_least_goes_first(height: int, missing: tuple[str, ...]) -> None:
    lines = panel(height=height)
    assert len(lines) == height
    assert captions(lines) == [name for name in CAPTIONS if name not in missing]
    assert any(line.startswith(" 1  █") for line in lines) == (height >= 15)


def test_a_panel_follows_the_size_of_its_terminal() -> None:
    async def shrink(pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(34, 12)

    assert captions(shown(StatsPanel(), then=shrink)) == ["SPEED", "ACCEPTANCE"]


def test_a_panel_shows_what_came_before_it_had_a_size() -> None:
    widget = StatsPanel()
    widget._figures = (VIEW, STATE)

    async def run() -> list[str]:
        app = PanelApp(widget)
        async with app.run_test(size=(34, 40)) as pilot:
            await pilot.pause()
            return rows(widget)

    assert " 110.7 tok/s   ×2.1 est" in asyncio.run(run())


def test_reading_shows_how_far_it_is_instead_of_a_speed() -> None:
    lines = panel(READING, replace(STATE, state="reading"))
    first = below(lines, "SPEED")
    assert first[0] == "SPEED                    reading"
    assert first[1] == " reading 812/4096"
    assert first[2] == " ██████▏" + "░" * 24  # 812/4096 of 31 cells
    more = panel(replace(READING, cached=300, prefilled=512))
    assert below(more, "SPEED")[1] == " reading 812/4096 · 300 cached"


def test_a_speedup_is_measured_or_estimated() -> None:
    lines = panel(replace(VIEW, measured=True))
    assert " 110.7 tok/s   ×2.1 measured" in lines


def test_numbers_of_a_slow_machine_fit() -> None:
    slow = replace(VIEW, mean_rate=3.1, peak_rate=4.25, plain_s=1 / 2.2, draft_s=0.2, verify_s=0.7)
    lines = panel(slow)
    assert " mean 3.1 · peak 4.2 · plain 2.2" in lines
    assert " draft 200 verify 700 rest 1.9" in lines


def test_a_position_from_the_ninth_on_is_one_row() -> None:
    positions = (*[(1, 2)] * 8, (1, 4))
    lines = panel(replace(VIEW, positions=positions))
    assert [line[:3] for line in below(lines, "ACCEPTANCE")[3:]] == [
        *(f" {i} " for i in range(1, 9)),
        " 9+",
    ]
    assert below(lines, "ACCEPTANCE")[-1] == " 9+ █████▊░░░░░░░░░░░░░░░░░  25%"


def test_plain_decoding_has_no_bars() -> None:
    plain = replace(
        VIEW,
        drafted=0,
        accepted=0,
        acceptance=None,
        positions=StatsView().positions,
        ks=(0,) * 8,
        k=0,
        drafter="",
        reason="plain: nobody has a draft",
        last_drafted=0,
        last_accepted=0,
        break_even=None,
    )
    lines = panel(plain)
    assert below(lines, "ACCEPTANCE")[:2] == [
        "ACCEPTANCE                     –",
        " nothing drafted",
    ]
    assert below(lines, "DRAFT LENGTH") == [
        "DRAFT LENGTH            k=0 auto",
        "                        ▁▁▁▁▁▁▁▁",
        " plain             model, n-gram",
        " plain: nobody has a draft",
    ]
    assert "LAST STEP                  plain" in lines
    assert " break-even –" in lines


def test_a_fixed_k_is_named() -> None:
    lines = panel(state=replace(STATE, k_mode="4"))
    assert "DRAFT LENGTH      k=3 fixed at 4" in lines


def test_a_panel_says_why_nobody_drafts() -> None:
    why = "off: the draft model has another vocabulary, so its tokens mean something else"
    assert below(panel(state=replace(STATE, drafters=why)), "DRAFT LENGTH") == [
        "DRAFT LENGTH                 off",
        " off: the draft model has",
        " another vocabulary, so its",
        " tokens mean something else",
    ]


def test_a_long_reason_is_cut_to_three_lines() -> None:
    reason = " ".join(["because"] * 30)
    rows = below(panel(replace(VIEW, reason=reason)), "DRAFT LENGTH")[3:]
    assert rows == [
        " because because because because",
        " because because because because",
        " because because because becaus…",
    ]


def test_nothing_moves_when_the_reason_changes() -> None:
    one, two = (panel(replace(VIEW, reason=reason)) for reason in ("", "word " * 40))
    assert [line for line in one if "STEP TIME" in line]
    assert [i for i, line in enumerate(one) if line.startswith("STEP TIME")] == [
        i for i, line in enumerate(two) if line.startswith("STEP TIME")
    ]


def test_a_break_even_beyond_everything_is_out_of_reach() -> None:
    assert " break-even out of reach" in panel(replace(VIEW, break_even=1.3))


def test_a_session_that_lost_time_says_so() -> None:
    lines = panel(replace(VIEW, turns=1, session_speedup=0.8, saved_s=-3.0))
    assert below(lines, "SESSION") == [
        "SESSION         1 turn · 742 tok",
        " mean ×0.8 · lost 3.0 s",
    ]


def test_a_context_of_unknown_size_has_no_share() -> None:
    assert "CONTEXT 412, 40 cached         –" in panel(replace(VIEW, n_ctx=0))


def test_control_characters_do_not_reach_the_terminal() -> None:
    bad = replace(STATE, drafters="off: no\x1b[2J\nfile", state="a\x07b")
    text = "\n".join(panel(replace(VIEW, reason="\x1b]52;c;"), bad))
    assert not {"\x1b", "\x07"} & set(text)
    assert "off: no�[2J file" in text
    lines = PanelText(replace(VIEW, drafter="a\x1b\nb"), STATE, 32, UNICODE).lines(40)
    assert any(line.plain.startswith(" a� b ") for line in lines)


def test_markup_in_a_reason_is_only_text() -> None:
    assert " [red]no[/red] [/]" in panel(replace(VIEW, reason="[red]no[/red] [/]"))


def test_a_panel_without_unicode() -> None:
    lines = shown(StatsPanel(ASCII))
    assert " 110.7 tok/s   x2.1 est" in lines
    assert "\n".join(lines).isascii()


# Colours: a second cue, never the only one.


def colours(content: Content, text: str) -> set[str]:
    """The styles that cover `text` in `content`."""
    at = content.plain.index(text)
    return {str(span.style) for span in content.spans if span.start <= at < span.end}


@pytest.mark.parametrize(
    ("speedup", "colour"),
    [
        (2.1, "$text-success"),
        (1.0, "$text-success"),
        (0.96, "$text-success"),
        (0.8, "$text-warning"),
    ],
)
def test_a_speedup_below_1_is_a_warning(speedup: float, colour: str) -> None:
    view = replace(VIEW, speedup=speedup)
    for lines in (
        PanelText(view, STATE, 32, UNICODE).lines(40),
        StripText(view, STATE, 78, UNICODE).lines(2, 80),
        StripText(view, STATE, 78, UNICODE).lines(1, 80),
    ):
        assert colours(Content("\n").join(lines), "×") == {f"bold {colour}"}


@pytest.mark.parametrize(("used", "colour"), [(3200, set()), (3300, {"$text-warning"})])
def test_a_context_that_is_nearly_full_is_a_warning(used: int, colour: set[str]) -> None:
    lines = PanelText(replace(VIEW, context_used=used), STATE, 32, UNICODE).lines(40)
    line = next(line for line in lines if line.plain.startswith("CONTEXT"))
    assert colours(line, f"{used / 4096:.0%}") == colour


def test_the_parts_of_a_step_have_a_colour_each() -> None:
    lines = PanelText(VIEW, STATE, 32, UNICODE).lines(40)
    bar = next(line for line in lines if "▓" in line.plain)
    styles = [colours(bar, part) for part in "▓█░"]
    assert styles == [{"$text-warning"}, {"$text-primary"}, {MUTED}]


def test_all_styles_are_of_the_theme() -> None:
    lines = PanelText(VIEW, STATE, 32, UNICODE).lines(40)
    lines += StripText(VIEW, STATE, 78, UNICODE).lines(2, 80)
    styles = {str(span.style).removeprefix("bold ") for line in lines for span in line.spans}
    assert styles == {"bold", "$text-success", "$text-warning", "$text-primary", MUTED}
    assert MUTED.startswith("$foreground ")


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark", "ansi-light"])
def test_a_warning_is_seen_in_every_theme(theme: str) -> None:
    widget = StatsPanel()
    styles: dict[str, Style] = {}

    async def look(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await pilot.pause()
        for name in ("$text-success", "$text-warning"):
            styles[name] = pilot.app.stylesheet.parse_style(name)

    lines = shown(widget, replace(VIEW, speedup=0.8), then=look)
    assert " 110.7 tok/s   ×0.8 est" in lines
    assert styles["$text-success"].foreground != styles["$text-warning"].foreground


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
def test_what_is_muted_is_fainter_than_the_rest(theme: str) -> None:
    widget = StatsPanel()
    contrasts: list[float] = []

    async def look(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await pilot.pause()
        segments = {segment.text: segment.style for segment in widget.render_line(3)}
        for text in ("mean", " 104 "):  # the name is muted, the value is not
            style = segments[text]
            assert style is not None
            assert style.color is not None
            assert style.bgcolor is not None
            front, back = (Color.from_rich_color(one) for one in (style.color, style.bgcolor))
            contrasts.append(abs(front.brightness - back.brightness))

    shown(widget, then=look)
    muted, normal = contrasts
    assert 0.4 < muted < normal


# The strip.


def test_a_strip_has_two_rows() -> None:
    assert strip() == [
        "110.7 tok/s ████████████ ×2.1 est  acc 52% ████▋░░░░  k=3     ▄▅▅▃▂▁█▄",
        "2.91 tok/step · draft 22% verify 70% · 260 tok · ctx 412/4096 10%",
    ]


def test_a_strip_says_where_nothing_is_known() -> None:
    assert strip(NOTHING, PanelState()) == [
        "– tok/s              ×–  acc – ░░░░░░░░░  k=–",
        "– tok/step · draft – verify – · 0 tok · ctx 0/4096 0%",
    ]


def test_a_strip_of_one_row() -> None:
    assert strip(rows=1) == ["110.7 tok/s ×2.1 acc 52% k=3"]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_narrow_strip_keeps_speed_and_speedup(rows: int) -> None:
    assert strip(width=59, rows=rows) == ["110.7 tok/s ×2.1"]
    assert strip(width=20, rows=rows) == ["110.7 tok/s ×2.1"]


def test_a_strip_without_room_for_pictures_has_none() -> None:
    assert strip(width=60) == [
        "110.7 tok/s ×2.1  acc 52% k=3",
        "2.91 tok/step · draft 22% verify 70% · 260 tok · ctx 412/…",
    ]


def test_a_strip_shows_how_far_the_reading_is() -> None:
    assert strip(READING)[0].startswith("reading 812/4096 ██▍░░░░░░░░░  acc – ")
    assert strip(READING, rows=1) == ["reading 812/4096 acc – k=–"]
    assert strip(READING, width=50) == ["reading 812/4096"]


def test_a_strip_says_why_nobody_drafts() -> None:
    off = replace(STATE, drafters="off: no memory")
    assert strip(state=off)[0] == "110.7 tok/s ████████████ ×2.1 est  off: no memory"
    assert strip(state=off, rows=1) == ["110.7 tok/s ×2.1 off: no memory"]


def test_css_may_make_a_strip_flat_and_tall_again() -> None:
    css = "StatsStrip { height: 2; } .-short StatsStrip { height: 1; }"
    seen: list[list[str]] = []

    async def there_and_back(pilot: Pilot[None]) -> None:
        for short in (True, False):
            pilot.app.screen.set_class(short, "-short")
            await pilot.pause()
            seen.append(rows(pilot.app.query_one(StatsStrip)))

    lines = shown(StatsStrip(), size=(80, 5), css=css, then=there_and_back)
    assert seen[0] == ["110.7 tok/s ×2.1 acc 52% k=3"]
    assert lines == seen[1]
    assert len(lines) == 2


def test_the_rows_of_a_strip_may_change() -> None:
    widget = StatsStrip()
    heights: list[int] = []

    async def change(pilot: Pilot[None]) -> None:
        for rows in (1, 2):
            widget.rows = rows
            await pilot.pause()
            heights.append(widget.outer_size.height)

    shown(widget, size=(80, 5), then=change)
    assert heights == [1, 2]
    assert widget.rows == 2


def test_a_strip_without_unicode() -> None:
    assert "\n".join(shown(StatsStrip(ASCII), size=(80, 5))).isascii()


# Whatever comes.


@st.composite
def views(draw: st.DrawFn) -> StatsView:
    number = st.none() | st.floats(0, 1e7)
    count = st.integers(0, 10**7)
    text = st.text(max_size=120)
    return StatsView(
        generating=draw(st.booleans()),
        tokens=draw(count),
        steps=draw(count),
        rate=draw(number),
        mean_rate=draw(number),
        peak_rate=draw(number),
        rates=tuple(draw(st.lists(st.floats(0, 1e4), max_size=32))),
        plain_s=draw(number),
        speedup=draw(number),
        measured=draw(st.booleans()),
        ttft_s=draw(number),
        prefill_rate=draw(number),
        prompt_tokens=draw(count),
        cached=draw(count),
        prefilled=draw(count),
        drafted=draw(count),
        accepted=draw(count),
        acceptance=draw(st.none() | st.floats(0, 1)),
        tokens_per_step=draw(number),
        positions=tuple(draw(st.lists(st.tuples(count, count), min_size=9, max_size=9))),
        break_even=draw(number),
        k=draw(st.none() | st.integers(0, 32)),
        ks=tuple(draw(st.lists(st.integers(0, 32), max_size=32))),
        drafter=draw(text),
        reason=draw(text),
        draft_s=draw(number),
        verify_s=draw(number),
        rest_s=draw(number),
        context_used=draw(count),
        n_ctx=draw(count),
        turns=draw(count),
        session_tokens=draw(count),
        session_speedup=draw(number),
        saved_s=draw(st.floats(-1e5, 1e5)),
    )


STATES = st.builds(
    PanelState, state=st.text(), k_mode=st.just("auto") | st.text(), drafters=st.text()
)


@settings(deadline=None)
@given(views(), STATES, st.integers(1, 130), st.integers(1, 60), st.sampled_from([UNICODE, ASCII]))
def test_no_line_is_wider_and_no_panel_higher_than_there_is_room(
    view: StatsView, state: PanelState, width: int, height: int, glyphs: Glyphs
) -> None:
    lines = PanelText(view, state, width, glyphs).lines(height)
    assert 1 <= len(lines) <= height
    lines += StripText(view, state, width, glyphs).lines(2, width + 2)
    lines += StripText(view, state, width, glyphs).lines(1, width + 2)
    for line in lines:
        assert line.cell_length <= width
        assert "\n" not in line.plain


def test_the_same_figures_are_not_painted_again() -> None:
    painted: list[int] = []

    class Counting(StatsPanel):
        def update(self, *args: object, **options: object) -> None:
            painted.append(1)
            super().update(*args, **options)  # type: ignore[arg-type]

    async def again(pilot: Pilot[None]) -> None:
        before = len(painted)
        widget.show(replace(VIEW), replace(STATE))
        assert len(painted) == before
        widget.show(replace(VIEW, rate=1.0), STATE)
        assert len(painted) == before + 1

    widget = Counting()
    shown(widget, then=again)
