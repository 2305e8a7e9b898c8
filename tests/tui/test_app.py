"""The whole app on a fake model, driven by keys: what a user does, and what he then sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Paste
from textual.pilot import Pilot

from edgespec.errors import BackendError, ModelLoadError
from edgespec.tui.app import EdgespecApp
from edgespec.tui.chats.store import ChatStore
from edgespec.tui.screen import ChatScreen
from edgespec.tui.widgets.markdown_text import MarkdownPart, MarkdownText, drawn
from edgespec.tui.widgets.message import AnswerMessage, UserMessage
from tests.tui.conftest import FakeLoader, MakeApp, MakeLoader
from tests.tui.looking import rows, text
from tests.tui.waiting import wait_until

LARGE, SMALL = (120, 36), (80, 24)
CODE = "Look:\n\n```python\nprint('one')\n```\n\nand\n\n```\ntwo\n```\n"


def screen(app: EdgespecApp) -> ChatScreen:
    return app.chat_screen


def loader(app: EdgespecApp) -> FakeLoader:
    loaded = app.bridge.loader
    assert isinstance(loaded, FakeLoader)
    return loaded


def app_of(pilot: Pilot[None]) -> EdgespecApp:
    app = pilot.app
    assert isinstance(app, EdgespecApp)
    return app


async def ready(pilot: Pilot[None]) -> ChatScreen:
    """The model is loaded."""
    app = pilot.app
    assert isinstance(app, EdgespecApp)
    await wait_until(pilot, lambda: app.chat_screen.info is not None, "the model is loaded")
    app.chat_screen.box.prompt.cursor_blink = False
    return app.chat_screen


async def type_in(pilot: Pilot[None], line: str) -> None:
    app = pilot.app
    assert isinstance(app, EdgespecApp)
    app.chat_screen.box.prompt.focus()
    app.chat_screen.box.prompt.put(line)
    await pilot.press("enter")


async def ask(pilot: Pilot[None], line: str) -> AnswerMessage:
    """And wait for the whole answer."""
    app = pilot.app
    assert isinstance(app, EdgespecApp)
    await type_in(pilot, line)
    shown = app.chat_screen

    def answered() -> bool:
        last = [(m.role, m.text) for m in shown.conversation.messages[-2:]]
        return not shown.answering.busy and len(last) == 2 and last[0] == ("user", line)

    await wait_until(pilot, answered, f"an answer to {line!r}")
    return shown.transcript.answers[-1]


async def test_a_question_and_its_answer(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        await ready(pilot)
        answer = await ask(pilot, "Hello")
        assert answer.text == "You said: Hello"
        seen = text(pilot.app)
        assert "You said: Hello" in seen
        assert "tok/s" in seen
        assert "ACCEPTANCE" in seen


async def test_typed_letter_by_letter(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await pilot.press(*"Hi", "ctrl+j", *"there", "enter")
        await wait_until(pilot, lambda: bool(shown.transcript.answers), "an answer")
        assert shown.transcript.messages[0].text == "Hi\nthere"
        assert shown.box.prompt.text == ""


async def test_the_second_question_knows_the_first(
    make_app: MakeApp, make_loader: MakeLoader
) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "one")
        await ask(pilot, "two")
        assert isinstance(pilot.app, EdgespecApp)
        tokens = pilot.app.chat_screen.answering.stats.view().context_used
        assert tokens > len("You said: one")
        messages = pilot.app.chat_screen.conversation.messages
        assert [m.text for m in messages] == ["one", "You said: one", "two", "You said: two"]


async def test_stop_keeps_what_there_is(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        model = loader(shown.edgespec).model.model
        model.hold()
        await type_in(pilot, "Hello")
        model.let(4)
        await wait_until(pilot, lambda: bool(shown.transcript.answers[-1].text), "some text")
        await pilot.press("escape")
        assert shown.answering.state == "stopping"
        model.release()
        await wait_until(pilot, lambda: not shown.answering.busy, "the end")
        answer = shown.transcript.answers[-1]
        assert answer.text
        assert "You said: Hello".startswith(answer.text)
        assert "stopped" in text(pilot.app)
        kept = shown.conversation.messages[-1]
        assert (kept.text, kept.finish_reason) == (answer.text, "cancelled")


async def test_stop_while_the_prompt_is_read(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        model = loader(shown.edgespec).model.model
        model.hold()
        await type_in(pilot, "Hello")
        await wait_until(pilot, lambda: shown.answering.state == "reading", "it reads")
        await pilot.press("escape")
        await wait_until(pilot, lambda: not shown.answering.busy, "the end")
        model.release()
        assert "Stopped before the first word." in text(pilot.app)
        assert (await ask(pilot, "again")).text == "You said: again"


async def test_answering_again_keeps_both_answers(
    make_app: MakeApp, make_loader: MakeLoader
) -> None:
    given = iter(["first", "second", "third"])
    said: dict[str, str] = {}

    def answers(question: str) -> str:
        if question not in said:
            said[question] = next(given)
        return said[question]

    async with make_app(loader=make_loader(answers)).run_test(
        size=SMALL, notifications=True
    ) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "Which?")
        said.clear()
        await pilot.press("ctrl+r")
        await wait_until(pilot, lambda: "second" in text(pilot.app), "the second answer")
        await wait_until(pilot, lambda: not shown.answering.busy, "the end")
        assert "first" not in text(pilot.app)
        assert "‹ 2/2 ›" in text(pilot.app)
        shown.transcript.focus_message(-1)
        await pilot.press("left")
        await wait_until(pilot, lambda: "‹ 1/2 ›" in text(pilot.app), "the first answer again")
        assert "first" in text(pilot.app)


async def test_editing_a_question_keeps_the_old_one(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "one")
        await ask(pilot, "two")
        shown.transcript.focus_message(0)
        await pilot.press("e")
        assert shown.box.prompt.text == "one"
        assert "take the place of the old one" in text(pilot.app)
        await ask(pilot, "uno")
        assert [m.text for m in shown.conversation.messages] == ["uno", "You said: uno"]
        shown.transcript.focus_message(0)
        await pilot.press("left")
        await wait_until(pilot, lambda: len(shown.conversation.messages) == 4, "the old branch")
        assert "You said: two" in text(pilot.app)


async def test_giving_up_an_edit(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "one")
        await type_in(pilot, "/edit")
        assert shown.box.prompt.text == "one"
        await pilot.press("escape")
        assert not shown.conversation.editing
        assert shown.box.prompt.text == ""
        await ask(pilot, "two")
        assert len(shown.conversation.messages) == 4


async def test_the_token_view_shows_who_proposed_what(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        answer = await ask(pilot, "Hello, how are you?")
        await pilot.press("f3")
        await wait_until(pilot, lambda: not answer.query(MarkdownText), "the tokens")
        assert "You said: Hello, how are you?" in text(pilot.app)
        sources = {source for source, _ in answer.provenance.spans(answer.text)}
        assert sources == {"target", "half"}
        again = await ask(pilot, "And now?")
        assert not again.query(MarkdownText)
        await pilot.press("f3")
        await wait_until(pilot, lambda: bool(again.query(MarkdownText)), "Markdown again")
        assert shown.transcript.answers[0].query(MarkdownText)


async def test_comparing_with_plain_decoding(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "Hello")
        await pilot.press("f4")
        await wait_until(pilot, lambda: "measured:" in text(pilot.app), "the comparison")
        seen = text(pilot.app)
        assert "Plain, for comparison" in seen
        assert "the same 16 tokens" in seen  # 15 letters and the end
        assert len(shown.conversation.messages) == 2  # it is not part of the chat
        assert shown.answering.stats.view().measured
        assert "measured" in "\n".join(row[84:] for row in rows(pilot.app))


async def test_a_comparison_that_differs_says_so(
    make_app: MakeApp, make_loader: MakeLoader
) -> None:
    said = ["the cat sat"]
    async with make_app(loader=make_loader(lambda q: said[0])).run_test(
        size=LARGE, notifications=True
    ) as pilot:
        await ready(pilot)
        await ask(pilot, "Hello")
        said[0] = "the dog sat"
        await pilot.press("f4")
        await wait_until(pilot, lambda: "then different" in text(pilot.app), "the difference")
        assert "the same up to token 4," in text(pilot.app)


async def test_code_blocks_are_copied_one_after_another(
    make_app: MakeApp, make_loader: MakeLoader, tmp_path: Path
) -> None:
    async with make_app(loader=make_loader(lambda q: CODE)).run_test(
        size=LARGE, notifications=True
    ) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "Code?")
        shown.transcript.focus_message(-1)
        copied = tmp_path / "clipboard.txt"
        for wanted in ("print('one')", "two", "print('one')"):
            await pilot.press("c")
            assert copied.read_text(encoding="utf-8") == wanted
        await pilot.press("y")
        assert copied.read_text(encoding="utf-8") == CODE
        await type_in(pilot, "/copy 2")
        assert copied.read_text(encoding="utf-8") == "two"


async def test_thoughts_are_folded(make_app: MakeApp, make_loader: MakeLoader) -> None:
    thought = "<think>\nLet me see what this is.\n</think>\n\nIt is a cat."
    async with make_app(loader=make_loader(lambda q: thought)).run_test(
        size=LARGE, notifications=True
    ) as pilot:
        shown = await ready(pilot)
        answer = await ask(pilot, "What is it?")
        seen = text(pilot.app)
        assert "It is a cat." in seen
        assert "Let me see" not in seen
        assert "thought: 6 words" in seen
        answer.focus()
        await pilot.press("space")
        await wait_until(pilot, lambda: "Let me see" in text(pilot.app), "the thought")
        assert shown.conversation.messages[-1].text == thought


async def test_slash_commands(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        await type_in(pilot, "/set temperature 0.5")
        assert shown.conversation.settings.temperature == 0.5
        assert "temp 0.5" in text(pilot.app)
        await type_in(pilot, "/set temperature hot")
        assert shown.conversation.settings.temperature == 0.5
        await type_in(pilot, "/system Be brief.")
        assert shown.conversation.settings.system == "Be brief."
        await type_in(pilot, "/nwe")
        await wait_until(
            pilot, lambda: "Did you mean /new?" in text(pilot.app), "a hint at the right name"
        )
        assert not shown.transcript.messages


async def test_a_path_is_no_command(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        await ready(pilot)
        assert (await ask(pilot, "/etc/hosts is what?")).text == "You said: /etc/hosts is what?"


async def test_commands_are_completed(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await pilot.press("/", "e", "x")
        assert "/export" in text(pilot.app)
        await pilot.press("tab")
        assert shown.box.prompt.text == "/export "


async def test_files_go_along(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("milk and honey", encoding="utf-8")
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "What is in @notes.txt?")
        (file,) = shown.conversation.messages[0].attachments
        assert file.text == "milk and honey"
        assert "notes.txt" in text(pilot.app)
        await type_in(pilot, "And in @nothing.txt?")
        await wait_until(pilot, lambda: "nothing.txt" in text(pilot.app), "a complaint")
        assert shown.box.prompt.text == "And in @nothing.txt?"
        assert len(shown.conversation.messages) == 2


async def test_a_large_paste_goes_along_like_a_file(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        pilot.app.post_message(Paste("x" * 1_000_000))
        await wait_until(pilot, lambda: bool(shown.attached), "the paste")
        assert shown.box.prompt.text == ""
        assert "1000.0 kB" in text(pilot.app)
        await type_in(pilot, "What is this?")
        await wait_until(pilot, lambda: "but the context holds" in text(pilot.app), "too long")
        # It can be sent again without what made it too long.
        assert shown.box.prompt.text == "What is this?"
        assert len(shown.attached) == 1
        await pilot.press("escape")
        assert shown.box.prompt.text == ""
        assert (await ask(pilot, "/new is no command here\nbut text")).text


async def test_a_small_paste_with_newlines_does_not_send(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        pilot.app.post_message(Paste("one\ntwo\n" * 100))
        await wait_until(pilot, lambda: bool(shown.box.prompt.text), "the paste")
        assert shown.box.prompt.text == "one\ntwo\n" * 100
        assert not shown.transcript.messages


async def test_chats_are_kept_and_opened_again(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "About cats")
        await type_in(pilot, "/set temperature 0.25")
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        assert not shown.transcript.messages
        assert shown.conversation.settings.temperature == 0.0
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: "About cats" in text(pilot.app), "the list")
        await pilot.press("enter")
        await wait_until(pilot, lambda: bool(shown.transcript.messages), "the chat")
        assert "You said: About cats" in text(pilot.app)
        assert shown.conversation.settings.temperature == 0.25
        await ask(pilot, "And dogs")
        assert len(shown.conversation.messages) == 4


async def test_questions_of_earlier_chats_are_remembered(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "About cats")
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await pilot.press("up")
        assert shown.box.prompt.text == "About cats"
        await pilot.press("down")
        assert shown.box.prompt.text == ""


async def test_a_long_chat_shows_its_end_first(make_app: MakeApp, start: object) -> None:
    app = make_app()
    chat = app.store.create({})
    parent = None
    for turn in range(40):
        question = app.store.add(chat.id, parent, "user", f"question {turn}")
        parent = app.store.add(chat.id, question.id, "assistant", "").id
        app.store.write(parent, f"answer {turn}", finish_reason="stop")
    async with app.run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        shown.conversation.open(chat.id)
        await shown.show_chat()
        await wait_until(pilot, lambda: "answer 39" in text(pilot.app), "the end")
        assert len(shown.transcript.messages) == 20
        shown.transcript.scroll_home(animate=False)
        await wait_until(pilot, lambda: "60 earlier messages" in text(pilot.app), "the start")
        await pilot.click("Earlier")
        await wait_until(pilot, lambda: len(shown.transcript.messages) == 40, "more")
        texts = [message.text for message in shown.transcript.messages]
        assert texts == [f"{what} {i}" for i in range(20, 40) for what in ("question", "answer")]


async def test_an_answer_that_a_crash_interrupted(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()
    chat = app.store.create({})
    question = app.store.add(chat.id, None, "user", "Hello")
    answer = app.store.add(chat.id, question.id, "assistant", "")
    app.store.write(answer.id, "I was about to")
    async with app.run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        shown.conversation.open(chat.id)
        await shown.show_chat()
        await wait_until(pilot, lambda: "I was about to" in text(pilot.app), "what there is")
        assert "interrupted" in text(pilot.app)


async def test_a_model_that_cannot_be_loaded(make_app: MakeApp, make_loader: MakeLoader) -> None:
    broken = make_loader()
    broken.errors[""] = ModelLoadError("fake.gguf is broken: pull it again.")
    async with make_app(loader=broken).run_test(size=LARGE, notifications=True) as pilot:
        await wait_until(pilot, lambda: "fake.gguf is broken" in text(pilot.app), "the error")
        assert "no model" in text(pilot.app)
        await type_in(pilot, "Hello")
        await wait_until(pilot, lambda: "No model is loaded" in text(pilot.app), "the reason")
        assert app_of(pilot).chat_screen.box.prompt.text == "Hello"
        await type_in(pilot, "/model other")
        await wait_until(pilot, lambda: len(broken.loaded) == 1, "the other model")
        shown = await ready(pilot)
        assert (await ask(pilot, "Hello")).text == "You said: Hello"
        assert len(shown.conversation.messages) == 2


async def test_an_engine_that_breaks(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        model = loader(shown.edgespec).model.model
        model.hold()
        await type_in(pilot, "Hello")
        model.let(4)
        await wait_until(pilot, lambda: bool(shown.transcript.answers[-1].text), "some text")
        model.fail_next = BackendError("The device is gone: load the model again.")
        model.release()
        await wait_until(pilot, lambda: "The device is gone" in text(pilot.app), "the error")
        assert shown.transcript.answers[-1].text
        assert (await ask(pilot, "again")).text == "You said: again"


async def test_ctrl_c_stops_then_clears_then_leaves(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        model = loader(app).model.model
        model.hold()
        await type_in(pilot, "Hello")
        await wait_until(pilot, lambda: shown.answering.busy, "an answer")
        shown.box.prompt.put("next")
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: not shown.answering.busy, "the end")
        model.release()
        assert shown.box.prompt.text == "next"
        await pilot.press("ctrl+c")
        assert shown.box.prompt.text == ""
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: "again to quit" in text(pilot.app), "a warning")
        assert app.is_running
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: app._exit, "the end")


async def test_wide_hostile_and_backward_text(make_app: MakeApp, make_loader: MakeLoader) -> None:
    nasty = "\x1b[2J\x1b]0;title\x07 日本語 שלום \u202eevil\u202c [bold]not bold[/bold] \x00 end"
    async with make_app(loader=make_loader(lambda q: nasty)).run_test(
        size=SMALL, notifications=True
    ) as pilot:
        await ready(pilot)
        answer = await ask(pilot, "[red]x[/red] \x1b[31m")
        assert answer.text == nasty
        seen = text(pilot.app)
        assert "\x1b" not in seen
        assert "\u202e" not in seen
        assert "日本語" in seen
        assert "[red]x[/red]" in seen
        await pilot.press("f3")
        await wait_until(pilot, lambda: not answer.query(MarkdownText), "tokens")
        assert "\x1b" not in text(pilot.app)
        assert "[bold]not bold[/bold]" in text(pilot.app)


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20), (45, 12), (30, 8), (10, 3)])
async def test_any_size(size: tuple[int, int], make_app: MakeApp) -> None:
    async with make_app().run_test(size=size, notifications=True) as pilot:
        await ready(pilot)
        assert (await ask(pilot, "Hello")).text == "You said: Hello"
        assert len(rows(pilot.app)) == size[1]


async def test_an_answer_is_broken_anew_for_every_width(
    make_app: MakeApp, make_loader: MakeLoader
) -> None:
    long = "many words that make a long line, which must be broken " * 12
    async with make_app(loader=make_loader(lambda q: long)).run_test(size=LARGE) as pilot:
        await ready(pilot)
        answer = await ask(pilot, "Hello")
        part = answer.query_one(MarkdownPart)
        heights = {}
        for size in (LARGE, SMALL, (60, 20), (200, 50), LARGE):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            width = part.content_size.width
            assert part.size.height == drawn(answer.text, width, dark=True).plain.count("\n") + 1
            heights[size] = part.size.height
        assert heights[60, 20] > heights[LARGE] > heights[200, 50]


async def test_text_of_an_answer_can_be_selected(
    make_app: MakeApp, make_loader: MakeLoader
) -> None:
    async with make_app(loader=make_loader(lambda q: "One **bold** word.")).run_test(
        size=LARGE
    ) as pilot:
        shown = await ready(pilot)
        answer = await ask(pilot, "Hello")
        part = answer.query_one(MarkdownPart)
        await pilot.mouse_down(part, offset=(0, 0))
        await pilot.hover(part, offset=(7, 0))
        await pilot.mouse_up(part, offset=(7, 0))
        assert shown.get_selected_text() == "One bold"


async def test_a_storm_of_sizes_while_an_answer_comes(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        await type_in(pilot, "Hello " * 50)
        for size in [(120, 36), (20, 5), (200, 60), (80, 24), (1, 1), (100, 20)] * 3:
            await pilot.resize_terminal(*size)
        await wait_until(
            pilot,
            lambda: bool(shown.transcript.answers) and not shown.answering.busy,
            "the answer",
        )
        assert shown.transcript.answers[-1].text.startswith("You said: Hello")


async def test_the_reader_is_not_carried_away(make_app: MakeApp, make_loader: MakeLoader) -> None:
    long = "\n\n".join(f"line {i}" for i in range(60))
    async with make_app(loader=make_loader(lambda q: long)).run_test(
        size=SMALL, notifications=True
    ) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "one")
        assert "line 59" in text(pilot.app)
        await pilot.press("pageup", "pageup")
        await wait_until(pilot, lambda: "line 59" not in text(pilot.app), "earlier lines")
        place = shown.transcript.scroll_y
        await shown.transcript.note("something new at the end")
        await pilot.pause()
        assert shown.transcript.scroll_y == place
        await ask(pilot, "two")
        assert "line 59" in text(pilot.app)


async def test_the_speed_can_be_hidden_and_stays_so(make_app: MakeApp) -> None:
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "Hello")
        assert shown.panel.display
        await pilot.press("f2")
        await wait_until(pilot, lambda: not shown.panel.display, "the strip")
        assert shown.strip.display
        await pilot.press("f2")
        await wait_until(pilot, lambda: not shown.strip.display, "nothing")
    async with make_app().run_test(size=LARGE, notifications=True) as pilot:
        shown = await ready(pilot)
        assert not shown.panel.display
        assert not shown.strip.display


async def test_a_theme_is_remembered(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        await ready(pilot)
        await type_in(pilot, "/theme textual-light")
        assert pilot.app.theme == "textual-light"
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        await ready(pilot)
        assert pilot.app.theme == "textual-light"


async def test_keys_can_be_changed(make_app: MakeApp, tmp_path: Path) -> None:
    kept = tmp_path / "config" / "tui.json"
    kept.parent.mkdir()
    kept.write_text('{"keys": {"view.tokens": "f9"}}', encoding="utf-8")
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await pilot.press("f3")
        assert not shown.as_tokens
        await pilot.press("f9")
        assert shown.as_tokens


async def test_chats_that_cannot_be_kept_are_told(make_app: MakeApp, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    async with make_app(chats=blocked / "chats.db").run_test(
        size=LARGE, notifications=True
    ) as pilot:
        await ready(pilot)
        await wait_until(
            pilot, lambda: str(blocked)[-10:] in text(pilot.app).replace("\n", ""), "a warning"
        )
        assert (await ask(pilot, "Hello")).text == "You said: Hello"


async def test_export(make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "Hello")
        await type_in(pilot, "/export md")
        (written,) = tmp_path.glob("*.md")
        assert "You said: Hello" in written.read_text(encoding="utf-8")


async def test_quitting_in_the_middle_keeps_the_answer(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        model = loader(app).model.model
        model.hold()
        await type_in(pilot, "Hello")
        model.let(4)
        await wait_until(pilot, lambda: bool(shown.transcript.answers[-1].text), "some text")
        await pilot.press("ctrl+q")
        model.release()
    app.store.close()
    store = ChatStore(tmp_path / "data" / "chats.db")
    (chat,) = store.chats()
    question, answer = store.branch(chat.id)
    assert question.text == "Hello"
    assert answer.text
    assert "You said: Hello".startswith(answer.text)


async def test_messages_are_told_apart(make_app: MakeApp) -> None:
    async with make_app().run_test(size=SMALL, notifications=True) as pilot:
        shown = await ready(pilot)
        await ask(pilot, "Hello")
        kinds = [type(message) for message in shown.transcript.messages]
        assert kinds == [UserMessage, AnswerMessage]
        await pilot.press("tab")
        assert shown.transcript.focused_message is shown.transcript.messages[-1]
        await pilot.press("k")
        assert shown.transcript.focused_message is shown.transcript.messages[0]
        await pilot.press("tab")
        assert shown.box.prompt.has_focus
