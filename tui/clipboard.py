"""Text into the user's clipboard, over every way there is.

The terminal is asked by OSC 52, which works over SSH but is never acknowledged; a program of the
desktop is run where there is one; and a file keeps the last copy in any case.
"""

from __future__ import annotations

import base64
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

# Terminals drop longer ones, some of them with all that follows.
_OSC_LIMIT = 75_000
# Of one device control string in screen.
_SCREEN_CHUNK = 256
_TIMEOUT_S = 2.0
_POWERSHELL = (
    "[Console]::InputEncoding = [Text.Encoding]::UTF8; "
    "Set-Clipboard -Value ([Console]::In.ReadToEnd())"
)


class Clipboard:
    """write: puts control sequences on the terminal. fallback: the file of the last copy."""

    def __init__(
        self,
        write: Callable[[str], None],
        environment: Mapping[str, str],
        run: Callable[..., Any] = subprocess.run,
        which: Callable[[str], str | None] = shutil.which,
        *,
        fallback: Path,
        platform: str = sys.platform,
    ) -> None:
        self._write = write
        self._environment = environment
        self._run = run
        self._which = which
        self._fallback = fallback
        self._platform = platform

    def copy(self, text: str) -> str:
        """Copy `text`; returns one line on how. Never raises."""
        if not text:
            return "There is nothing to copy."
        kept = self._keep(text)
        sent = self._send(text)
        tool = self._hand_over(text)
        what = f"{len(text)} character{'' if len(text) == 1 else 's'}"
        also = f"; also in {self._fallback}" if kept else ""
        if tool and not self._is_remote():
            return f"Copied {what} with {tool}{also}."
        if sent or tool:
            if kept:
                also = f"; if pasting gives something else: {self._fallback}"
            return f"Asked the terminal to copy {what}{also}."
        if kept:
            return f"No clipboard takes {what} here; the text is in {self._fallback}."
        return (
            f"Could not copy {what}: there is no clipboard here, and {self._fallback} cannot be "
            "written; select the text with the mouse."
        )

    def _keep(self, text: str) -> bool:
        try:
            self._fallback.parent.mkdir(parents=True, exist_ok=True)
            self._fallback.touch(mode=0o600)
            self._fallback.write_bytes(_utf8(text))
        except (OSError, ValueError) as error:
            log.warning("cannot keep a copy in %s: %s", self._fallback, error)
            return False
        return True

    def _send(self, text: str) -> bool:
        encoded = base64.b64encode(_utf8(text)).decode("ascii")
        if len(encoded) > _OSC_LIMIT:
            return False
        try:
            self._write(_wrapped(encoded, self._environment))
        except Exception as error:  # noqa: BLE001 - a driver may be closed in ways of its own
            log.warning("the terminal takes nothing: %s", error)
            return False
        return True

    def _hand_over(self, text: str) -> str:
        """The name of the program that took the text, "" if none did."""
        for command, content in self._tools(text):
            if self._which(command[0]) and self._ran(command, content):
                return command[0].removesuffix(".exe")
        return ""

    def _tools(self, text: str) -> Iterator[tuple[list[str], bytes]]:
        if self._environment.get("WAYLAND_DISPLAY"):
            yield ["wl-copy"], _utf8(text)
        if self._environment.get("DISPLAY"):
            yield ["xclip", "-selection", "clipboard"], _utf8(text)
            yield ["xsel", "--clipboard", "--input"], _utf8(text)
        if self._platform == "darwin":
            yield ["pbcopy"], _utf8(text)
        if self._platform == "win32" or self._environment.get("WSL_DISTRO_NAME"):
            # Taken for the code page of the console unless it is UTF-16.
            yield ["clip.exe"], text.encode("utf-16-le", "replace")
            yield ["powershell.exe", "-NoProfile", "-Command", _POWERSHELL], _utf8(text)

    def _ran(self, command: list[str], content: bytes) -> bool:
        # Programs that serve the clipboard stay behind and would keep a pipe open.
        nowhere = subprocess.DEVNULL
        environment = {**self._environment, "LC_CTYPE": "UTF-8"} if command == ["pbcopy"] else None
        try:
            done = self._run(
                command,
                input=content,
                stdout=nowhere,
                stderr=nowhere,
                timeout=_TIMEOUT_S,
                env=environment,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.warning("%s took nothing: %s", command[0], error)
            return False
        if done.returncode:
            log.warning("%s ended with status %s", command[0], done.returncode)
        return not done.returncode

    def _is_remote(self) -> bool:
        """Whether the programs found here serve another screen than the user's."""
        return any(self._environment.get(name) for name in ("SSH_CONNECTION", "SSH_TTY"))


def _wrapped(encoded: str, environment: Mapping[str, str]) -> str:
    """The sequence of OSC 52, and how to get it through tmux or screen."""
    plain = f"\x1b]52;c;{encoded}\x07"
    if environment.get("TMUX"):
        # tmux takes the plain one with `set-clipboard on`, the other with `allow-passthrough on`.
        inside = plain.replace("\x1b", "\x1b\x1b")
        return f"{plain}\x1bPtmux;{inside}\x1b\\"
    if environment.get("TERM", "").startswith("screen"):
        # Cut into pieces: screen takes short strings only and puts them together again.
        pieces = (plain[at : at + _SCREEN_CHUNK] for at in range(0, len(plain), _SCREEN_CHUNK))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return plain


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
