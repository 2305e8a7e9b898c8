"""The chat screen: puts the widgets together, and turns what the user does into commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.getters import query_one
from textual.screen import Screen
from textual.widgets import Footer, Static

from edgespec.engine import EngineInfo
from edgespec.tui import commands
from edgespec.tui.answering import Answering
from edgespec.tui.attachments import Attachment, find
from edgespec.tui.bridge import Bridge, Loaded, NotLoaded, Progress, Wish
from edgespec.tui.chats.store import Message
from edgespec.tui.conversation import Conversation
from edgespec.tui.handlers import HANDLERS
from edgespec.tui.header import heading
from edgespec.tui.hints import hints
from edgespec.tui.loaded import LoadedModel
from edgespec.tui.pace import Pace
from edgespec.tui.showing import widget_of
from edgespec.tui.speed.draw import Glyphs
from edgespec.tui.widgets.message import ChatMessage
from edgespec.tui.widgets.panel import StatsPanel, StatsStrip
from edgespec.tui.widgets.prompt import Prompt, PromptBox
from edgespec.tui.widgets.transcript import Earlier, Transcript

if TYPE_CHECKING:
    from edgespec.tui.app import EdgespecApp

_SLOW_PAINTS = 3  # the panel is painted at every third paint
_SHOWN = 20  # messages of a chat that is opened
_WELCOME = "Ask something. f1 shows all keys and commands; nothing leaves this machine."


class ChatScreen(Screen[None]):
    """Knows all the widgets; they do not know each other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *commands.bindings("chat"),
        ("ctrl+c", "interrupt", "Copy or stop"),
        ("pageup", "scroll(-1)", "Scroll"),
        ("pagedown", "scroll(1)", "Scroll"),
    ]
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  Textual declares them so
        (0, "-tiny"),
        (40, "-narrow"),
        (60, "-middle"),
        (100, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"),
        (10, "-short"),
        (18, "-tall"),
    ]

    transcript = query_one(Transcript)
    box = query_one(PromptBox)
    panel = query_one(StatsPanel)
    strip = query_one(StatsStrip)
    heading = query_one("#heading", Static)

    def __init__(
        self,
        conversation: Conversation,
        bridge: Bridge,
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        self.conversation = conversation
        self.bridge = bridge
        self.answering = Answering(self, conversation, bridge, clock)
        self.attached: list[Attachment] = []
        self.as_tokens = False
        self.model = LoadedModel()
        self._clock = clock
        self._paints = 0
        self._pace = Pace()
        self._asked_to_quit = -10.0

    @property
    def edgespec(self) -> EdgespecApp:
        return cast("EdgespecApp", self.app)

    @property
    def glyphs(self) -> Glyphs:
        return self.edgespec.glyphs

    def compose(self) -> ComposeResult:
        yield Static(id="heading")
        with Horizontal(id="middle"):
            yield Transcript()
            yield StatsPanel(self.glyphs)
        yield StatsStrip(self.glyphs)
        yield PromptBox(lambda line: hints(line, Path.cwd()))
        yield Footer(compact=True)

    async def on_mount(self) -> None:
        self.box.prompt.focus()
        self.box.prompt.remember(self.conversation.store.questions())
        await self.show_chat()
        await self._tell_problem()
        await self._keep_painting()

    # What happens by itself.

    async def _keep_painting(self) -> None:
        await self.paint()
        self.set_timer(self._pace.wait_s(), self._keep_painting)

    async def paint(self) -> None:
        """Take what has happened since the last time, and show it."""
        events = self.bridge.take()
        self._paints += 1
        if not events and not self.answering.busy and not self.model.loading:
            return
        was_busy = self.answering.busy
        for event in events:
            if isinstance(event, Progress | Loaded | NotLoaded):
                await self._show_loading(event)
        rest = [e for e in events if not isinstance(e, Progress | Loaded | NotLoaded)]
        if rest:
            await self.answering.take(rest)
            await self._tell_problem()
        if self._paints % _SLOW_PAINTS == 0 or was_busy != self.answering.busy:
            self.show_numbers()

    async def _show_loading(self, event: Progress | Loaded | NotLoaded) -> None:
        for note in self.model.take(event, has_engine=self.bridge.engine is not None):
            await self.transcript.note(note.text, note.kind)
        if isinstance(event, Loaded):
            self.answering.forget_speed(event.info.n_ctx)
            self.conversation.forgotten = 0
        self.show_numbers()

    def show_numbers(self) -> None:
        """The line at the top, the panel and the strip."""
        view = self.answering.stats.view()
        self.answering.show_state()
        self.heading.update(
            heading(
                title=self.conversation.title,
                info=self.model.info,
                settings=self.conversation.settings,
                used=view.context_used,
                width=self.size.width,
                loading=self.model.loading,
            ),
            layout=False,
        )
        state = self.model.panel_state(self.answering.state, self.conversation.settings)
        self.panel.show(view, state)
        self.strip.show(view, state)

    def on_resize(self) -> None:
        self.show_numbers()

    # What is shown of a chat.

    async def show_chat(self) -> None:
        """The messages of the chat that is open."""
        messages = self.conversation.messages
        earlier = max(0, len(messages) - _SHOWN)
        widgets = [self._widget(message) for message in messages[earlier:]]
        await self.transcript.show(widgets, earlier, _WELCOME)
        self.show_numbers()

    async def on_earlier_wanted(self, event: Earlier.Wanted) -> None:
        """More of the messages that are not shown."""
        messages = self.conversation.messages
        shown = len([m for m in self.transcript.messages if m.key is not None])
        end = max(0, len(messages) - shown)
        begin = max(0, end - _SHOWN)
        widgets = [self._widget(message) for message in messages[begin:end]]
        await self.transcript.show_earlier(widgets, begin)

    def _widget(self, message: Message) -> ChatMessage:
        return widget_of(message, as_tokens=self.as_tokens, glyphs=self.glyphs)

    # What the user does.

    async def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """A command or a question."""
        if commands.is_slash(event.text):
            await self._slash(event.text.strip())
            return
        if self.answering.busy:
            self.notify("An answer is being made: esc stops it.", severity="warning")
            return
        found = find(event.text, Path.cwd())
        if found.complaints:
            self.notify(found.complaints[0], severity="error", markup=False)
            return
        self.box.prompt.clear()
        edited = self.conversation.editing
        message = self.conversation.say(event.text, [*self.attached, *found.attachments])
        self.attach([])
        if edited:
            await self.show_chat()
        else:
            await self.transcript.add(self._widget(message))
        await self.answering.begin(message)

    async def _slash(self, line: str) -> None:
        command, argument = commands.slash(line)
        if command is None:
            self.notify(commands.nearest(line), severity="error", markup=False)
            return
        self.box.prompt.clear()
        await self.run(command.id, argument)

    async def run(self, command: str, argument: str = "") -> None:
        """Do what a key, a slash command or the palette asks for."""
        await HANDLERS[command](self, argument)
        await self._tell_problem()

    async def _tell_problem(self) -> None:
        """What is wrong with the file of chats, once."""
        if problem := self.conversation.store.take_problem():
            await self.transcript.note(problem, "error")

    async def action_run(self, command: str) -> None:
        await self.run(command)

    async def on_chat_message_run(self, event: ChatMessage.Run) -> None:
        """A key on a message."""
        event.message.focus()
        await self.run(event.command)

    def on_prompt_pasted(self, event: Prompt.Pasted) -> None:
        """Too much to look at in the prompt: it goes along like a file."""
        name = f"pasted text {len(self.attached) + 1}"
        self.attach([*self.attached, Attachment(name, event.text)])

    def attach(self, files: Sequence[Attachment]) -> None:
        """These go along with the next question."""
        self.attached = list(files)
        parts = [f"@ {file.name} ({file.size / 1000:.1f} kB)" for file in files]
        if self.conversation.editing:
            parts.append("the question will take the place of the old one; esc: no")
        self.box.show_attached("   ".join(parts))

    def give_back(self, question: Message) -> None:
        """See answering.Place; what is being typed meanwhile is not disturbed."""
        if not self.box.prompt.text and not self.attached:
            self.conversation.edit(question)
            self.box.prompt.put(question.text)
            self.attach(question.attachments)

    def action_scroll(self, pages: int) -> None:
        move = self.transcript.scroll_page_up if pages < 0 else self.transcript.scroll_page_down
        move(animate=False)

    async def action_interrupt(self) -> None:
        """Copy what is selected, or else stop, or else clear the prompt, or else quit."""
        if selected := self.get_selected_text():
            self.notify(self.edgespec.clipboard_of_user.copy(selected), markup=False)
            self.clear_selection()
        elif self.answering.busy or self.model.loading:
            self.answering.stop()
        elif self.box.prompt.text:
            self.box.prompt.clear()
        elif self._clock() - self._asked_to_quit < 2.0:
            await self.run("app.quit")
        else:
            self._asked_to_quit = self._clock()
            self.notify("Press ctrl+c again to quit.", timeout=2)

    @property
    def info(self) -> EngineInfo | None:
        """Of the model that is loaded."""
        return self.model.info

    @property
    def is_loading(self) -> bool:
        return bool(self.model.loading)

    def load(self, wish: Wish) -> None:
        """Another model, in the background."""
        self.model.loading = "loading"
        self.bridge.load(wish)
        self.show_numbers()
