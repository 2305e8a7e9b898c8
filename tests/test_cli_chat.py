"""`edgespec chat --plain`: commands, what is remembered, and Ctrl-C at every moment."""

from __future__ import annotations

import io
import itertools
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from edgespec import Completion, Engine, load
from edgespec.cli import answer, chat, interrupts
from edgespec.cli.chat import Conversation
from edgespec.errors import BackendError
from edgespec.generation import Generation
from tests.command import COMMAND, PATIENCE_S, QUICK, Outcome, outcome, run_here, start
from tests.tiny_gguf import write_tiny_gguf

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[Engine]:
    with load(target=tiny, threads=1, exact="off", n_ctx=200) as engine:
        yield engine


def conversation(engine: Engine, **request: Any) -> Conversation:
    return Conversation(engine, {"max_tokens": 4} | request, "")


@pytest.fixture
def completions(monkeypatch: pytest.MonkeyPatch) -> list[Completion]:
    """Every answer that was given."""
    given: list[Completion] = []
    monkeypatch.setattr(chat, "report", lambda completion, drafter: given.append(completion))
    return given


@pytest.fixture
def script(tiny: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """A whole chat from lines that are piped in."""

    def run(*lines: str, options: tuple[str, ...] = ("-n", "3", "--seed", "1")) -> Outcome:
        data = "".join(f"{line}\n" for line in lines).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return run_here(capfd, "chat", "--plain", "--target", str(tiny), *QUICK, *options)

    return run


def test_a_script_of_lines(script: Callable[..., Outcome]) -> None:
    result = script("abc", "", "abc", "/stats", "/help", "/quit", "never read")
    assert result.code == 0
    answers = result.out.splitlines()
    assert len(answers) == 2
    lines = result.err.splitlines()
    assert lines[0].startswith("tiny.gguf | drafts by n-gram, as it pays | ")
    assert sum(" | seed 1 | " in line for line in lines) == 2
    assert any(line.startswith("6 tokens in 4 steps, ") for line in lines)
    assert any(line.startswith("/reset ") for line in lines)


def test_the_end_of_input_ends_it(script: Callable[..., Outcome]) -> None:
    result = script()
    assert (result.code, result.out) == (0, "")


def test_commands_that_do_not_exist(script: Callable[..., Outcome]) -> None:
    result = script("/rest", "/", "/stats")
    assert result.out == ""
    assert "There is no command /rest. Did you mean '/reset'? /help lists all." in result.err
    assert "There is no command /. /help lists all." in result.err
    assert "Nothing generated yet." in result.err


def test_reset_and_system(engine: Engine, completions: list[Completion]) -> None:
    talk = conversation(engine)
    for line in ("abc", "/reset", "abc", "/system x", "abc", "/system", "abc"):
        assert talk._handle(line)
    first, again, with_system, without = (c.usage.prompt_tokens for c in completions)
    assert first == again == without < with_system


def test_the_system_option(script: Callable[..., Outcome]) -> None:
    options = ("-n", "1", "--ctx", "64", "--system", "many words " * 20)
    result = script("abc", options=options)
    assert "but the context holds 64" in result.err


def test_every_turn_reuses_what_came_before(engine: Engine, completions: list[Completion]) -> None:
    talk = conversation(engine)
    for _ in range(3):
        talk._ask("abc")
    assert [message["role"] for message in talk._messages] == ["user", "assistant"] * 3
    for before, after in itertools.pairwise(completions):
        # All but the last token of the answer was in memory, up to where text and tokens part.
        assert after.usage.cached_tokens >= before.usage.prompt_tokens - 1


def test_a_full_context_keeps_the_conversation(
    engine: Engine, completions: list[Completion], capfd: Capture
) -> None:
    talk = conversation(engine)
    talk._ask("abc")
    kept = list(talk._messages)
    talk._ask("far too much " * 40)
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "but the context holds 200" in error
    assert error.endswith("/reset.\n")
    assert talk._messages == kept
    talk._ask("abc")
    assert len(completions) == 2
    assert len(talk._messages) == 4


def test_a_failure_keeps_the_conversation(
    engine: Engine, completions: list[Completion], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = conversation(engine)
    talk._ask("abc")

    def fail(rows: object) -> None:
        raise BackendError("llama.cpp failed: out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr(engine._model, "decode", fail)
        talk._ask("abc")
    assert capfd.readouterr().err == "llama.cpp failed: out of memory.\n"
    assert len(talk._messages) == 2
    talk._ask("abc")
    assert len(talk._messages) == 4


class Terminal(io.StringIO):
    """A stdin with somebody in front of it."""

    def isatty(self) -> bool:
        return True


class Presser(io.StringIO):
    """A stdout that presses Ctrl-C in the middle of each of the first `times` writes."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def write(self, text: str) -> int:
        if self.times:
            self.times -= 1
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_ctrl_c_twice_in_a_row_leaves(
    engine: Engine, completions: list[Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["\x03", "abc\n", "\x03", "abc\n", "\x03", "\x03", "abc\n"])

    def readline(self: Terminal) -> str:
        line = next(typed)
        if line == "\x03":
            raise KeyboardInterrupt
        return line

    monkeypatch.setattr(Terminal, "readline", readline)
    monkeypatch.setattr(sys, "stdin", Terminal())
    conversation(engine).run()
    assert len(completions) == 2
    assert next(typed) == "abc\n"


def test_ctrl_c_before_there_is_something_to_cancel(engine: Engine) -> None:
    with interrupts.ctrl_c_cancels() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        generation = ctrl_c.watch(engine.submit("abc"))
        assert answer.follow(generation, show=False).finish_reason == "cancelled"


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_the_answer_and_keeps_it(
    engine: Engine, completions: list[Completion], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    stdout = Presser(times)
    monkeypatch.setattr(sys, "stdout", stdout)
    talk = conversation(engine, max_tokens=None, seed=1)
    talk._ask("abc")
    [partial] = completions
    assert partial.finish_reason == "cancelled"
    assert partial.text
    assert stdout.getvalue() == partial.text + "\n"
    assert talk._messages[1] == {"role": "assistant", "content": partial.text}
    talk._request = {"max_tokens": 2}
    talk._ask("abc")
    assert completions[1].usage.cached_tokens > 0
    assert len(talk._messages) == 4


def test_ctrl_c_ends_a_script(
    engine: Engine, completions: list[Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc\nabc\n"))
    monkeypatch.setattr(sys, "stdout", Presser(1))
    with pytest.raises(KeyboardInterrupt):
        conversation(engine, max_tokens=None, seed=1).run()
    assert [completion.finish_reason for completion in completions] == ["cancelled"]


_WATCHED = {module.__file__ for module in (chat, answer, interrupts)} | {
    sys.modules[Generation.__module__].__file__
}


def ctrl_c_at(moment: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that presses Ctrl-C when so many lines of this code have run."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in _WATCHED:
            return None
        if event == "line":
            lines += 1
            if lines == moment:
                signal.raise_signal(signal.SIGINT)
        return trace

    return trace


def test_ctrl_c_at_every_line(
    engine: Engine, completions: list[Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it hits: the answer is kept whole or as far as it came, and nothing runs on."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stdin", Terminal())
    handler, before = signal.getsignal(signal.SIGINT), sys.gettrace()
    reasons = set()
    for moment in range(1, 200):
        talk = conversation(engine, max_tokens=3, seed=1)
        completions.clear()
        sys.settrace(ctrl_c_at(moment))
        try:
            talk._ask("abc")
        except KeyboardInterrupt:
            reasons.add("raised")
        finally:
            sys.settrace(before)
        assert signal.getsignal(signal.SIGINT) is handler
        assert [m["content"] for m in talk._messages[1:]] == [c.text for c in completions if c.text]
        reasons |= {completion.finish_reason for completion in completions}
        assert engine.generate("abc", max_tokens=1).finish_reason == "length"
        assert not engine._generations
    assert reasons >= {"raised", "cancelled", "length"}


def read_until(terminal: int, text: str) -> str:
    """What the terminal shows until `text` comes."""
    seen = b""
    deadline = time.monotonic() + PATIENCE_S
    while text.encode() not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(terminal, 1000)
    return seen.decode()


def press(terminal: int, key: str) -> None:
    """Not at once: Python's readline misses a signal between its prompt and its waiting."""
    time.sleep(0.5)
    os.write(terminal, key.encode())


@pytest.mark.parametrize("leave", ["\x03\x03", "\x04"], ids=["Ctrl-C twice", "Ctrl-D"])
def test_in_a_terminal(tiny: Path, leave: str) -> None:
    terminal, side = pty.openpty()
    arguments = ("chat", "--plain", "--target", str(tiny), *QUICK, "-n", "3")
    environment = os.environ | {"TERM": "dumb"}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=side,
        stdout=side,
        stderr=side,
        env=environment,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(side)
    try:
        assert "tiny.gguf" in read_until(terminal, "> ")
        os.write(terminal, b"abc\n")
        assert "3 tokens" in read_until(terminal, "--max-tokens\r\n> ")
        for key in leave[:-1]:
            press(terminal, key)
            assert "to leave." in read_until(terminal, "leave.\r\n> ")
        press(terminal, leave[-1])
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _own_terminal() -> None:
    """Make the terminal the process's own, so that its Ctrl-C sends the signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_as_a_process_with_bytes_that_are_not_utf8(tiny: Path) -> None:
    arguments = ("chat", "--plain", "--target", str(tiny), *QUICK, "-n", "2")
    result = outcome(start(*arguments, stdin=subprocess.PIPE), b"caf\xe9\n/quit\n")
    assert result.code == 0
    assert result.out
    assert "2 tokens | " in result.err
