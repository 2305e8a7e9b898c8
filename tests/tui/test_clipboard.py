"""Every way text takes into the user's clipboard, and what is said of it."""

from __future__ import annotations

import base64
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgespec.tui.clipboard import Clipboard

LONG = "x" * 60_000  # more than 75 kB in base64


class Desktop:
    """A terminal, programs that are there, and what all of them got."""

    def __init__(self, fallback: Path, *programs: str, platform: str = "linux") -> None:
        self.fallback = fallback
        self.programs = programs
        self.platform = platform
        self.sent: list[str] = []
        self.commands: list[list[str]] = []
        self.options: list[dict[str, Any]] = []
        self.fails: dict[str, Exception | int] = {}

    def write(self, sequence: str) -> None:
        self.sent.append(sequence)

    def which(self, program: str) -> str | None:
        return f"/bin/{program}" if program in self.programs else None

    def run(self, command: list[str], **options: Any) -> SimpleNamespace:
        self.commands.append(command)
        self.options.append(options)
        failure = self.fails.get(command[0], 0)
        if isinstance(failure, Exception):
            raise failure
        return SimpleNamespace(returncode=failure)

    def clipboard(self, environment: Mapping[str, str]) -> Clipboard:
        return Clipboard(
            self.write,
            environment,
            self.run,
            self.which,
            fallback=self.fallback,
            platform=self.platform,
        )

    def copy(self, text: str, **environment: str) -> str:
        line = self.clipboard(environment).copy(text)
        assert "\n" not in line
        return line


@pytest.fixture
def fallback(tmp_path: Path) -> Path:
    return tmp_path / "state" / "copied.txt"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_terminal_is_asked_and_success_is_not_claimed(fallback: Path) -> None:
    desktop = Desktop(fallback)
    line = desktop.copy("Grüße 👩")
    assert desktop.sent == [f"\x1b]52;c;{encoded('Grüße 👩')}\x07"]
    assert line == (
        f"Asked the terminal to copy 7 characters; if pasting gives something else: {fallback}."
    )
    assert desktop.commands == []
    assert fallback.read_text(encoding="utf-8") == "Grüße 👩"


def test_inside_tmux_the_sequence_goes_both_ways(fallback: Path) -> None:
    desktop = Desktop(fallback)
    desktop.copy("hi", TMUX="/tmp/tmux-1000/default,1,0", TERM="screen-256color")
    plain = "\x1b]52;c;aGk=\x07"
    assert desktop.sent == [f"{plain}\x1bPtmux;\x1b{plain}\x1b\\"]


@pytest.mark.parametrize("length", [1, 100, 1000, 50_000])
def test_inside_screen_the_sequence_is_cut_into_short_strings(fallback: Path, length: int) -> None:
    desktop = Desktop(fallback)
    desktop.copy("x" * length, TERM="screen.xterm-256color")
    (sent,) = desktop.sent
    strings = re.findall("\x1bP(.*?)\x1b\\\\", sent, re.S)
    assert "".join(f"\x1bP{one}\x1b\\" for one in strings) == sent
    assert all(len(one) < 512 for one in strings)
    assert "".join(strings) == f"\x1b]52;c;{encoded('x' * length)}\x07"


def test_a_text_too_long_for_the_terminal_is_not_sent(fallback: Path) -> None:
    desktop = Desktop(fallback)
    assert desktop.copy(LONG) == (
        f"No clipboard takes 60000 characters here; the text is in {fallback}."
    )
    assert desktop.sent == []
    assert fallback.read_text(encoding="utf-8") == LONG
    desktop.copy("x" * 56_250)  # 75,000 in base64
    assert len(desktop.sent) == 1
    desktop.copy("x" * 56_251)
    assert len(desktop.sent) == 1


@pytest.mark.parametrize(
    ("environment", "programs", "platform", "command"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0"}, ["wl-copy", "xclip"], "linux", ["wl-copy"]),
        ({"DISPLAY": ":0"}, ["xclip", "xsel"], "linux", ["xclip", "-selection", "clipboard"]),
        ({"DISPLAY": ":0"}, ["wl-copy", "xsel"], "linux", ["xsel", "--clipboard", "--input"]),
        ({}, ["pbcopy"], "darwin", ["pbcopy"]),
    ],
)
def test_the_program_of_the_desktop_is_run_as_well(
    fallback: Path,
    environment: dict[str, str],
    programs: list[str],
    platform: str,
    command: list[str],
) -> None:
    desktop = Desktop(fallback, *programs, platform=platform)
    line = desktop.copy("Grüße", **environment)
    assert line == f"Copied 5 characters with {command[0]}; also in {fallback}."
    assert desktop.commands == [command]
    (options,) = desktop.options
    assert options["input"] == "Grüße".encode()
    assert 0 < options["timeout"] <= 5
    # A pipe would be kept open by programs that stay to serve the clipboard.
    assert options["stdout"] == options["stderr"] == subprocess.DEVNULL
    assert len(desktop.sent) == 1


def test_pbcopy_is_told_the_encoding(fallback: Path) -> None:
    desktop = Desktop(fallback, "pbcopy", platform="darwin")
    desktop.copy("Grüße", PATH="/bin")
    assert desktop.options[0]["env"] == {"PATH": "/bin", "LC_CTYPE": "UTF-8"}


@pytest.mark.parametrize(
    ("platform", "environment"), [("win32", {}), ("linux", {"WSL_DISTRO_NAME": "Debian"})]
)
def test_windows_is_reached_from_itself_and_from_wsl(
    fallback: Path, platform: str, environment: dict[str, str]
) -> None:
    desktop = Desktop(fallback, "clip.exe", "powershell.exe", platform=platform)
    assert "with clip;" in desktop.copy("Grüße 👩", **environment)
    assert desktop.options[0]["input"].decode("utf-16-le") == "Grüße 👩"
    desktop = Desktop(fallback, "powershell.exe", platform=platform)
    assert "with powershell;" in desktop.copy("Grüße", **environment)
    assert desktop.options[0]["input"].decode("utf-8") == "Grüße"


def test_programs_of_other_desktops_are_not_run(fallback: Path) -> None:
    desktop = Desktop(fallback, "wl-copy", "xclip", "xsel", "pbcopy", "clip.exe")
    assert desktop.copy("hi").startswith("Asked the terminal")
    assert desktop.commands == []


@pytest.mark.parametrize(
    "failure",
    [
        1,
        OSError("gone"),
        subprocess.TimeoutExpired("xclip", 2),
        ValueError("embedded null byte"),
        subprocess.SubprocessError(),
    ],
)
def test_a_program_that_fails_is_followed_by_the_next(
    fallback: Path, failure: Exception | int
) -> None:
    desktop = Desktop(fallback, "xclip", "xsel")
    desktop.fails = {"xclip": failure}
    assert "with xsel;" in desktop.copy("hi", DISPLAY=":0")
    desktop.fails = {"xclip": failure, "xsel": failure}
    assert desktop.copy("hi", DISPLAY=":0").startswith("Asked the terminal")


@pytest.mark.parametrize("variable", ["SSH_CONNECTION", "SSH_TTY"])
def test_over_ssh_no_program_makes_it_certain(fallback: Path, variable: str) -> None:
    desktop = Desktop(fallback, "pbcopy", platform="darwin")
    line = desktop.copy("hi", **{variable: "there"})
    assert line.startswith("Asked the terminal to copy 2 characters")
    assert str(fallback) in line


def test_a_long_text_goes_through_the_program(fallback: Path) -> None:
    desktop = Desktop(fallback, "xclip")
    assert desktop.copy(LONG, DISPLAY=":0").startswith("Copied 60000 characters with xclip")
    assert desktop.sent == []


def test_the_file_keeps_the_last_copy_for_its_owner_only(fallback: Path) -> None:
    desktop = Desktop(fallback)
    desktop.copy("the first, which is longer")
    desktop.copy("line\r\nnul \0 half \ud83d")
    assert fallback.read_bytes() == b"line\r\nnul \0 half ?"
    if sys.platform != "win32":
        assert stat.S_IMODE(fallback.stat().st_mode) == 0o600


def test_nothing_is_copied_from_nothing(fallback: Path) -> None:
    desktop = Desktop(fallback, "xclip")
    assert desktop.copy("", DISPLAY=":0") == "There is nothing to copy."
    assert (desktop.sent, desktop.commands) == ([], [])
    assert not fallback.exists()


def test_one_character_is_one(fallback: Path) -> None:
    assert "copy 1 character;" in Desktop(fallback).copy("x")


def test_a_file_that_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "copied.txt"
    desktop = Desktop(below, "xclip")
    assert desktop.copy("hi") == "Asked the terminal to copy 2 characters."
    assert desktop.copy("hi", DISPLAY=":0") == "Copied 2 characters with xclip."
    line = desktop.copy(LONG)
    assert line.startswith("Could not copy 60000 characters")
    assert str(below) in line


@pytest.mark.parametrize("error", [OSError("closed"), ValueError("closed"), RuntimeError("gone")])
def test_a_terminal_that_is_gone_raises_nothing(fallback: Path, error: Exception) -> None:
    desktop = Desktop(fallback)

    def fail(sequence: str) -> None:
        raise error

    clipboard = Clipboard(fail, {}, desktop.run, desktop.which, fallback=fallback, platform="linux")
    assert (
        clipboard.copy("hi") == f"No clipboard takes 2 characters here; the text is in {fallback}."
    )


def test_real_programs_get_the_text(fallback: Path, tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("needs a shell")
    # The program of the desktop is a script that writes what it gets into a file.
    script, got = tmp_path / "xclip", tmp_path / "got"
    script.write_text(f'#!/bin/sh\ncat > "{got}"\n', encoding="utf-8")
    script.chmod(0o700)

    def run(command: list[str], **options: Any) -> Any:
        return subprocess.run([str(tmp_path / command[0]), *command[1:]], **options)

    clipboard = Clipboard(
        lambda sequence: None, {"DISPLAY": ":0"}, run, lambda program: program, fallback=fallback
    )
    assert "with xclip" in clipboard.copy("Grüße\0")
    assert got.read_bytes() == "Grüße\0".encode()
