"""How the screen looks, help, and leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgespec.tui.commands import help_rows
from edgespec.tui.dialogs.help import HelpDialog

if TYPE_CHECKING:
    from edgespec.tui.screen import ChatScreen

_STATS_LAYOUTS = ("auto", "strip", "hidden")


async def stats(screen: ChatScreen, argument: str) -> None:
    now = screen.edgespec.preferences.stats
    following = _STATS_LAYOUTS[(_STATS_LAYOUTS.index(now) + 1) % len(_STATS_LAYOUTS)]
    screen.edgespec.prefer(stats=argument if argument in _STATS_LAYOUTS else following)


async def tokens(screen: ChatScreen, argument: str) -> None:
    screen.as_tokens = not screen.as_tokens
    await screen.transcript.show_tokens(screen.as_tokens)


async def theme(screen: ChatScreen, argument: str) -> None:
    themes = screen.app.available_themes
    if not argument:
        screen.app.search_themes()
    elif argument in themes:
        screen.edgespec.prefer(theme=argument)
    else:
        screen.notify(f"Themes: {', '.join(sorted(themes))}.", severity="warning")


async def focus(screen: ChatScreen, argument: str) -> None:
    if screen.box.prompt.has_focus:
        screen.transcript.focus_message(-1)
    else:
        screen.box.prompt.focus()


async def help(screen: ChatScreen, argument: str) -> None:
    screen.app.push_screen(HelpDialog(help_rows(), screen.edgespec.paths))


async def quit(screen: ChatScreen, argument: str) -> None:
    await screen.app.action_quit()
