"""Runs the `edgespec` command: as a process of its own, in this process, or in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgespec.cli import app

# -P: what is installed, not the edgespec/ of the checkout, which lacks tui/.
COMMAND = (sys.executable, "-P", "-m", "edgespec")
PATIENCE_S = 60.0
# No measuring, and no threads that wait for each other on a busy machine.
QUICK = ("--exact", "off", "--threads", "1")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def complaint(self, code: int) -> str:
        """The single line of a failure with this exit code."""
        assert self.code == code, self
        assert self.out == ""
        assert self.err.startswith("edgespec: "), self.err
        assert self.err.count("\n") == 1
        assert self.err.endswith("\n")
        return self.err

    def statistics(self) -> str:
        """The single line of a success, besides what is told of measuring that takes long."""
        assert self.code == 0, self
        lines = self.err.splitlines(keepends=True)
        lines = [line for line in lines if not line.endswith("once for this machine ...\n")]
        assert len(lines) == 1, self.err
        assert " | seed " in lines[0]
        return lines[0]


def start(
    *arguments: str | bytes, stdin: int | None = subprocess.DEVNULL, **environment: str
) -> subprocess.Popen[bytes]:
    """A process of its own, for what is about signals, pipes and encodings."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )


def outcome(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Outcome:
    """Its end. Bytes that are no UTF-8 fail the test."""
    out, err = process.communicate(stdin, PATIENCE_S)
    return Outcome(process.returncode, out.decode(), err.decode())


def run_here(capfd: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """In this process, which saves a second; what llama.cpp itself would print is seen too."""
    with pytest.raises(SystemExit) as exit:
        app.main(arguments)
    out, err = capfd.readouterr()
    code = exit.value.code or 0
    assert isinstance(code, int)
    return Outcome(code, out, err)


def on(path: Path, *arguments: str) -> tuple[str, ...]:
    """Arguments that run a prompt on a tiny model."""
    return ("run", "abc", "--target", str(path), *QUICK, "-n", "5", "--seed", "1", *arguments)
