"""The chat app as a process at a terminal: it draws, answers, ends, and gives the terminal back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import COMMAND, PATIENCE_S, QUICK
from tests.tiny_gguf import write_tiny_gguf

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
CTRL_Q = b"\x11"


class Terminal:
    """A process at a pseudo-terminal of 100x30, and all that it wrote there."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.side, other = pty.openpty()
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(other)
        self.other = other
        self.seen = b""
        self.process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""} | environment,
        )

    def read(self, seconds: float) -> None:
        if select.select([self.side], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.side, 65536)

    def until(self, wanted: bytes) -> None:
        """Raises AssertionError when it does not come."""
        end = time.monotonic() + PATIENCE_S
        while wanted not in self.seen:
            assert time.monotonic() < end, self.seen[-2000:]
            self.read(0.1)

    def type(self, keys: bytes) -> None:
        os.write(self.side, keys)

    def end(self) -> int:
        """Wait for it; returns the exit code."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen[-2000:]
            self.read(0.05)
        self.read(0.05)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.side)
        os.close(self.other)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


def app(terminals: list[Terminal], *arguments: str, **environment: str) -> Terminal:
    terminals.append(Terminal(*COMMAND, *arguments, **environment))
    return terminals[-1]


def test_a_chat_from_the_first_key_to_the_last(terminals: list[Terminal], tiny: Path) -> None:
    terminal = app(terminals, "chat", str(tiny), *QUICK, "-n", "8")
    terminal.until(ALTERNATE)
    terminal.until(b"Ask something")
    terminal.type(b"abc\r")
    terminal.until(b"Assistant")
    terminal.until(b"8 tok")
    terminal.type(CTRL_Q)
    assert terminal.end() == 0
    assert BACK in terminal.seen
    assert termios.tcgetattr(terminal.other) == terminal.before
    assert b"llama" not in terminal.seen
    assert b"Traceback" not in terminal.seen


def test_ending_by_a_signal_gives_the_terminal_back(terminals: list[Terminal], tiny: Path) -> None:
    terminal = app(terminals, "chat", str(tiny), *QUICK)
    terminal.until(b"Ask something")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 143
    assert BACK in terminal.seen
    assert termios.tcgetattr(terminal.other) == terminal.before


def test_quitting_while_a_model_is_loaded(terminals: list[Terminal]) -> None:
    script = (
        "import time\n"
        "from edgespec.cli import chat_app, app\n"
        "chat_app.PairLoader.fetch = lambda self, wish, report: None\n"
        "chat_app.PairLoader.load = lambda self, wish, report: time.sleep(3600)\n"
        "app.main(['chat'])\n"
    )
    terminals.append(Terminal(sys.executable, "-P", "-c", script))
    terminal = terminals[-1]
    terminal.until(b"Ask something")
    terminal.type(CTRL_Q)
    assert terminal.end() == 0
    assert BACK in terminal.seen
    assert termios.tcgetattr(terminal.other) == terminal.before


def test_a_missing_model_is_told_in_the_app(terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = app(terminals, "chat", str(tmp_path / "missing.gguf"))
    terminal.until(b"There is no file")
    terminal.type(CTRL_Q)
    assert terminal.end() == 0


def test_the_command_alone_opens_the_app(terminals: list[Terminal], tiny: Path) -> None:
    terminal = app(terminals, EDGESPEC_TARGET=str(tiny), EDGESPEC_EXACT="off")
    terminal.until(b"Ask something")
    terminal.type(CTRL_Q)
    assert terminal.end() == 0


def test_a_dumb_terminal_gets_the_chat_line_by_line(terminals: list[Terminal], tiny: Path) -> None:
    terminal = app(terminals, "chat", str(tiny), *QUICK, TERM="dumb")
    terminal.until(b"/help")
    assert ALTERNATE not in terminal.seen
    terminal.type(b"/quit\r")
    assert terminal.end() == 0


def test_options_that_make_no_sense_end_before_the_app(
    terminals: list[Terminal], tiny: Path
) -> None:
    terminal = app(terminals, "chat", str(tiny), "--temperature", "-1")
    assert terminal.end() == 2
    assert b"temperature must be 0" in terminal.seen
    assert ALTERNATE not in terminal.seen


def test_what_libraries_write_does_not_reach_the_screen(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from edgespec.tui.terminal import kept_clean\n"
        f"with kept_clean(Path({str(log)!r})):\n"
        "    os.write(2, b'NOISE OF C')\n"
        "    print('drawn by the app', file=sys.__stderr__, flush=True)\n"
        "os.write(2, b'written afterwards')\n"
    )
    terminals.append(Terminal(sys.executable, "-P", "-c", script))
    assert terminals[-1].end() == 0
    assert b"NOISE" not in terminals[-1].seen
    assert b"drawn by the app" in terminals[-1].seen
    assert b"written afterwards" in terminals[-1].seen
    assert log.read_text(encoding="utf-8") == "NOISE OF C"
