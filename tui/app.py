"""The app around the chat screen: themes, keys, the palette, and how it begins and ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen

from edgespec.tui import preferences
from edgespec.tui.bridge import Bridge, Loader, Wish
from edgespec.tui.chats.store import ChatStore
from edgespec.tui.clipboard import Clipboard
from edgespec.tui.commands import COMMANDS
from edgespec.tui.conversation import Conversation
from edgespec.tui.preferences import Preferences
from edgespec.tui.screen import ChatScreen
from edgespec.tui.settings import ChatSettings
from edgespec.tui.speed.draw import UNICODE, glyphs_for
from edgespec.tui.terminal import kept_clean

# The engine's thread gets its turn so often while the screen is painted (measured: with Python's
# usual 5 ms, painting takes a fifth of the engine's speed).
_SWITCH_INTERVAL_S = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the app begins with. has_gpu: asked when draft models are ranked. chats, preferences,
    log: files. paths: (what, where) for the help. theme: "" for the user's own."""

    loader: Loader
    settings: ChatSettings
    has_gpu: Callable[[], bool]
    chats: Path
    preferences: Path
    log: Path
    clipboard: Path
    paths: Sequence[tuple[str, str]] = ()
    theme: str = ""
    ascii: bool = False


class EdgespecApp(App[None]):
    """Shows one ChatScreen."""

    CSS_PATH = Path(__file__).with_name("edgespec.tcss")
    TITLE = "edgespec"

    def __init__(self, start: Start, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.preferences: Preferences = preferences.read(start.preferences)
        self.has_gpu = start.has_gpu
        self.paths = start.paths
        self.glyphs = glyphs_for(start.ascii, os.environ.get("TERM", ""))
        self.bridge = Bridge(start.loader)
        self.clipboard_of_user = Clipboard(
            write=self._write_to_terminal, environment=os.environ, fallback=start.clipboard
        )
        self._start = start
        self.store = ChatStore(start.chats)
        conversation = Conversation(self.store, start.settings)
        self.chat_screen = ChatScreen(conversation, self.bridge, clock)

    async def on_mount(self) -> None:
        wanted = self._start.theme or self.preferences.theme
        if wanted in self.available_themes:
            self.theme = wanted
        self.theme_changed_signal.subscribe(self, lambda theme: self._keep_theme(theme.name))
        self.set_keymap(dict(self.preferences.keys))
        self.set_class(self.glyphs is not UNICODE, "-ascii")
        self._show_stats()
        await self.push_screen(self.chat_screen)
        self.chat_screen.load(Wish())

    def prefer(self, **changes: Any) -> None:
        """Change how the screen looks, and remember it."""
        self.preferences = replace(self.preferences, **changes)
        preferences.write(self._start.preferences, self.preferences)
        if "theme" in changes:
            self.theme = changes["theme"]
        self._show_stats()

    def _keep_theme(self, name: str) -> None:
        if name != self.preferences.theme:
            self.preferences = replace(self.preferences, theme=name)
            preferences.write(self._start.preferences, self.preferences)

    def _show_stats(self) -> None:
        for layout in ("auto", "strip", "hidden"):
            self.set_class(self.preferences.stats == layout, f"-stats-{layout}")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: the same commands as everywhere."""
        for command in COMMANDS:
            if command.scope == "chat" and command.id != "view.focus":
                yield SystemCommand(command.title, command.help, self._runner(command.id))

    def _runner(self, command: str) -> Callable[[], Any]:
        return lambda: self.chat_screen.run(command)

    async def action_quit(self) -> None:
        self.bridge.stop()
        self.exit()

    def _write_to_terminal(self, text: str) -> None:
        if self._driver is not None:
            self._driver.write(text)
            self._driver.flush()


def run(start: Start) -> None:
    """Until the user leaves. Gives the terminal back also when it is told to end."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    app = EdgespecApp(start)
    try:
        with kept_clean(start.log):
            signal.signal(signal.SIGTERM, lambda number, frame: app.exit(return_code=143))
            app.run()
    finally:
        sys.setswitchinterval(before)
        app.store.close()
        if not app.bridge.close():
            # A model that is being loaded cannot be interrupted, and would be waited for.
            sys.stdout.flush()
            os._exit(app.return_code or 0)
    sys.exit(app.return_code or 0)
