"""Everything a user can do, once: keys, slash commands, the palette, the help and the footer all
come from this table. What is done stands in `handlers.py`, under the same ids."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal["chat", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """id: for key maps; keys: separated by commas, "" for none; slash: without the slash; takes:
    what may follow it. scope: "message" acts on the one that has the focus. label: for the footer,
    "" to leave it out there."""

    id: str
    title: str
    help: str
    keys: str = ""
    slash: str = ""
    takes: str = ""
    scope: Scope = "chat"
    label: str = ""


COMMANDS = (
    Command(
        id="app.help",
        title="Help",
        help="keys, commands, and where files lie",
        keys="f1",
        slash="help",
        label="Help",
    ),
    Command(
        id="answer.stop",
        title="Stop",
        help="stop the answer and keep what there is of it",
        keys="escape",
        slash="stop",
        label="Stop",
    ),
    Command(
        id="answer.retry",
        title="Answer again",
        help="another answer to the last question; the old one is kept beside it",
        keys="ctrl+r",
        slash="retry",
        label="Retry",
    ),
    Command(
        id="answer.edit",
        title="Edit the last question",
        help="ask it differently; the old one is kept beside it",
        slash="edit",
    ),
    Command(
        id="answer.copy",
        title="Copy the last answer",
        help="copy the last answer, or its code block number N",
        slash="copy",
        takes="N",
    ),
    Command(
        id="chat.new",
        title="New chat",
        help="begin a new chat",
        keys="ctrl+n",
        slash="new",
        label="New",
    ),
    Command(
        id="chat.open",
        title="Chats",
        help="open, search, rename and delete chats",
        keys="ctrl+o",
        slash="chats",
        label="Chats",
    ),
    Command(
        id="chat.rename",
        title="Rename this chat",
        help="give this chat another title",
        slash="rename",
        takes="TITLE",
    ),
    Command(
        id="chat.export",
        title="Export this chat",
        help="write this chat into the current directory, as md or json",
        slash="export",
        takes="md|json",
    ),
    Command(
        id="chat.settings",
        title="Settings",
        help="sampling, k, drafter, system prompt, context",
        keys="ctrl+g",
        slash="settings",
        label="Settings",
    ),
    Command(
        id="chat.system",
        title="System prompt",
        help="set the system prompt; without TEXT remove it",
        slash="system",
        takes="TEXT",
    ),
    Command(
        id="chat.set",
        title="Set one setting",
        help="such as /set temperature 0, /set k auto, /set drafter n-gram",
        slash="set",
        takes="NAME VALUE",
    ),
    Command(
        id="model.open",
        title="Model",
        help="choose target and draft model, or load the one named",
        keys="ctrl+t",
        slash="model",
        takes="NAME",
        label="Model",
    ),
    Command(
        id="view.stats",
        title="Show or hide the speed",
        help="panel, strip, or nothing",
        keys="f2",
        slash="stats",
        label="Stats",
    ),
    Command(
        id="view.tokens",
        title="Token view",
        help="which tokens were drafted, and by whom",
        keys="f3",
        slash="tokens",
        label="Tokens",
    ),
    Command(
        id="answer.compare",
        title="Compare with plain decoding",
        help="answer the same with the same seed and without drafts: how much faster, and equal?",
        keys="f4",
        slash="compare",
        label="Compare",
    ),
    Command(
        id="view.theme",
        title="Theme",
        help="light, dark, or the colours of the terminal",
        slash="theme",
        takes="NAME",
    ),
    Command(
        id="view.focus",
        title="Go to the messages and back",
        help="from the prompt to the messages and back",
        keys="tab,shift+tab",
    ),
    Command(id="app.quit", title="Quit", help="leave", keys="ctrl+q", slash="quit"),
    Command(id="message.copy", title="Copy", help="copy this message", keys="y", scope="message"),
    Command(
        id="message.code",
        title="Copy code",
        help="copy its next code block",
        keys="c",
        scope="message",
    ),
    Command(
        id="message.edit",
        title="Edit",
        help="ask this question differently",
        keys="e",
        scope="message",
    ),
    Command(
        id="message.retry",
        title="Answer again",
        help="another answer to this question",
        keys="r",
        scope="message",
    ),
    Command(
        id="message.fold",
        title="Unfold",
        help="show or hide what the model thought",
        keys="space",
        scope="message",
    ),
    Command(
        id="message.older",
        title="Older variant",
        help="the variant before",
        keys="left",
        scope="message",
    ),
    Command(
        id="message.newer",
        title="Newer variant",
        help="the variant after",
        keys="right",
        scope="message",
    ),
    Command(
        id="message.next", title="Next", help="the next message", keys="j,down", scope="message"
    ),
    Command(
        id="message.previous",
        title="Previous",
        help="the message before",
        keys="k,up",
        scope="message",
    ),
    Command(id="message.first", title="First", help="to the start", keys="g", scope="message"),
    Command(id="message.last", title="Last", help="to the end", keys="G,shift+g", scope="message"),
)

# What other programs call the same.
_ALIASES = {"exit": "quit", "bye": "quit", "reset": "new", "regenerate": "retry", "keys": "help"}


def bindings(scope: Scope) -> list[Binding]:
    """The keys of one scope; each runs the action `run` with the command's id."""
    return [
        Binding(
            command.keys,
            f"run('{command.id}')",
            command.label or command.title,
            show=bool(command.label),
            id=command.id,
        )
        for command in COMMANDS
        if command.keys and command.scope == scope
    ]


def slash(text: str) -> tuple[Command | None, str]:
    """The command of a line such as `/export md`, and what follows it."""
    name, _, rest = text.removeprefix("/").partition(" ")
    name = _ALIASES.get(name, name)
    found = next((command for command in COMMANDS if command.slash == name and name), None)
    return found, rest.strip()


def is_slash(text: str) -> bool:
    """Whether this looks like a command and not like a path or a comment in some code."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return first.startswith("/") and first[1:].isalpha() and "\n" not in text


def completions(text: str) -> list[Command]:
    """The commands that a line being typed could become."""
    name, space, _ = text.removeprefix("/").partition(" ")
    return [
        command
        for command in COMMANDS
        if command.slash and (command.slash == name if space else command.slash.startswith(name))
    ]


def nearest(text: str) -> str:
    """A hint for a command that does not exist."""
    name = text.removeprefix("/").split(maxsplit=1)[0]
    names = [command.slash for command in COMMANDS if command.slash] + list(_ALIASES)
    near = difflib.get_close_matches(name, names, 1)
    return f"There is no command /{name}." + (f" Did you mean /{near[0]}?" if near else "")


def help_rows() -> list[tuple[str, str, str]]:
    """(keys, slash command, what it does) of all."""
    return [
        (
            _shown(command.keys),
            f"/{command.slash} {command.takes}".rstrip() if command.slash else "",
            command.help,
        )
        for command in COMMANDS
    ]


def _shown(keys: str) -> str:
    names = {"escape": "esc", "shift+g": ""}
    shown = [names.get(key, key).replace("ctrl+", "^") for key in keys.split(",")]
    return " ".join(filter(None, shown))
