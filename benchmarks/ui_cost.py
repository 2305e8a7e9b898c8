"""What the app costs: how much slower the engine is beside it, and how busy a long chat keeps it.

    python -m benchmarks.ui_cost --target TARGET.gguf --draft DRAFT.gguf

Engine: the same question with the same seed, in turns without the app and with it on a terminal
(a pseudo-terminal of 120x36 whose output is thrown away); median of the rounds. Budget: 10 %.
Processor: a chat of 200 messages is opened, scrolled through and written on by a model that takes
20 ms a pass and no processor; the share of a core that the process takes. Budget: 30 %.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgespec import Engine, load
from edgespec.protocols import Logits, Row
from edgespec.tui.app import EdgespecApp, Start
from edgespec.tui.bridge import Report, Wish
from edgespec.tui.settings import ChatSettings
from edgespec.tui.terminal import kept_clean
from tests.fake_engine import GatedModel, Loaded
from tests.fakes import FakeTokenizer, Table

QUESTION = "Explain how a bicycle stays upright, with a list of the forces and a table."
_SIZE = (36, 120)
_MARKDOWN = """## Part {i}

Some **bold** text about the thing, with `code` and a list:

- one point that goes on for a while, so that the line is broken at the width of the screen
- another one

```python
def part_{i}(x: int) -> int:
    return x + {i}
```

And a last paragraph that says what was said before, only in other words and somewhat longer.

"""


class Kept:
    """A loader of one engine that is there already and stays."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def fetch(self, wish: Wish, report: Report) -> None:
        pass

    def load(self, wish: Wish, report: Report) -> Engine:
        return self._engine


class Driven(EdgespecApp):
    """Does by itself what a user would do, then ends."""

    def __init__(self, start: Start, act: Callable[[Driven], bool]) -> None:
        super().__init__(start)
        self._act = act

    def on_ready(self) -> None:
        self.set_interval(0.2, self._go_on)

    def _go_on(self) -> None:
        if self.chat_screen.is_mounted and self._act(self):
            self.exit()


def _start(directory: Path, engine: Engine, settings: ChatSettings) -> Start:
    return Start(
        loader=Kept(engine),
        settings=settings,
        has_gpu=lambda: False,
        chats=directory / "chats.db",
        preferences=directory / "tui.json",
        log=directory / "log",
        clipboard=directory / "clipboard",
    )


def _run(app: Driven, log: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        with kept_clean(log):
            app.run()
    finally:
        sys.setswitchinterval(before)
    if app.return_code:
        raise SystemExit("the app ended with an error")


# The engine beside the app.


def engine_beside_the_app(engine: Engine, settings: ChatSettings, rounds: int) -> dict[str, Any]:
    """Tokens per second without and with the app, in turns."""
    without: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)

        def alone() -> None:
            answer = engine.generate(
                messages=[{"role": "user", "content": QUESTION}],
                params=settings.params(),
                max_tokens=settings.max_tokens,
            )
            without.append(answer.stats.tokens_per_second or 0.0)

        def in_the_app() -> None:
            app = Driven(_start(directory, engine, settings), _ask_once())
            _run(app, directory / "log")
            beside.append(app.chat_screen.conversation.messages[-1].stats["rate"])
            app.store.close()

        for turn in range(rounds + 1):
            # Each goes first as often as the other: the machine gets faster and slower.
            for measure in (alone, in_the_app) if turn % 2 else (in_the_app, alone):
                measure()
    del without[0], beside[0]  # these warmed up
    ratios = [b / a for a, b in zip(without, beside, strict=True)]
    return {"without": without, "beside": beside, "loss": 1.0 - statistics.median(ratios)}


def _ask_once() -> Callable[[Driven], bool]:
    asked = False

    def act(app: Driven) -> bool:
        nonlocal asked
        screen = app.chat_screen
        if not asked and screen.info is not None:
            asked = True
            screen.box.prompt.put(QUESTION)
            screen.box.prompt.post_message(screen.box.prompt.Submitted(QUESTION))
            return False
        done = len(screen.conversation.messages) == 2 and not screen.answering.busy
        return asked and done

    return act


# A long chat.


class Slow(GatedModel):
    """Takes 20 ms a pass, and no processor."""

    def decode(self, rows: Sequence[Row]) -> Logits:
        time.sleep(0.02)
        return super().decode(rows)


def a_long_chat(messages: int) -> dict[str, float]:
    """Shares of a core while it is scrolled through and while an answer comes."""
    text = "".join(_MARKDOWN.format(i=i) for i in range(12))
    made = Loaded(_always(text), k=3, n_ctx=6000, max_sequences=1, model=Slow)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = ChatSettings(temperature=0.0, max_tokens=1200)
        start = _start(directory, made.engine, settings)
        shares: dict[str, float] = {}
        app = Driven(start, _scroll_and_ask(messages, shares))
        _run(app, directory / "log")
        app.store.close()
    made.engine.close()
    return shares


def _always(text: str) -> Table:
    """Answers every question with this text, at no cost of the processor."""
    answer, question = text.encode(), b"assistant\n"
    begins = 0
    rows = np.full((FakeTokenizer.size, FakeTokenizer.size), -100.0, np.float32)
    np.fill_diagonal(rows, 100.0)

    def logits(tokens: Sequence[int]) -> Logits:
        nonlocal begins
        if list(tokens[-len(question) :]) == list(question):
            begins = len(tokens)
        at = len(tokens) - begins
        row: Logits = rows[answer[at] if at < len(answer) else FakeTokenizer.END]
        return row

    return logits


def _scroll_and_ask(messages: int, shares: dict[str, float]) -> Callable[[Driven], bool]:
    stage = "load"
    at = (0.0, 0.0)
    pages = 0

    def measured(name: str) -> None:
        nonlocal at
        wall, used = time.perf_counter(), time.process_time()
        if name:
            shares[name] = (used - at[1]) / (wall - at[0])
        at = (wall, used)

    def act(app: Driven) -> bool:
        nonlocal stage, pages
        screen = app.chat_screen
        if stage == "load" and screen.info is not None:
            chat = app.store.create({})
            parent = None
            for turn in range(messages // 2):
                parent = app.store.add(chat.id, parent, "user", f"Question {turn}?").id
                parent = app.store.add(chat.id, parent, "assistant", "").id
                app.store.write(parent, _MARKDOWN.format(i=turn) * 3, finish_reason="stop")
            screen.conversation.open(chat.id)
            screen.call_later(screen.show_chat)
            stage = "opening"
        elif stage == "opening" and screen.transcript.messages:
            measured("")
            stage = "scrolling"
        elif stage == "scrolling":
            screen.action_scroll(-1 if pages < 30 else 1)
            pages += 1
            if pages == 60:
                measured("scrolling, five pages a second")
                screen.box.prompt.post_message(screen.box.prompt.Submitted("And now?"))
                stage = "asked"
        elif stage == "asked" and screen.answering.busy:
            measured("")
            stage = "streaming"
        elif stage == "streaming" and not screen.answering.busy:
            measured("streaming")
            return True
        return False

    return act


# A terminal for it.


def on_a_terminal(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run `work` in a child process that sits at a terminal; returns its result."""
    with tempfile.TemporaryDirectory() as name:
        result = Path(name) / "result.json"
        child, terminal = pty.fork()
        if child == 0:
            code = 1
            try:
                result.write_text(json.dumps(work()), encoding="utf-8")
                code = 0
            except BaseException as why:  # noqa: BLE001  the parent reads it
                (Path(name) / "error").write_text(f"{why!r}", encoding="utf-8")
            finally:
                os._exit(code)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE, 0, 0))
        tail = b""
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            tail = (tail + data)[-2000:]
        os.waitpid(child, 0)
        if not result.exists():
            told = Path(name) / "error"
            seen = tail.decode(errors="replace")
            reason = told.read_text(encoding="utf-8") if told.exists() else ""
            raise SystemExit(f"The app failed: {reason}\n{seen}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def main() -> None:
    """Measure and print both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target")
    parser.add_argument("--draft")
    parser.add_argument("-n", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--messages", type=int, default=200)
    asked = parser.parse_args()
    if asked.target:
        settings = ChatSettings(temperature=0.0, max_tokens=asked.n, seed=1)

        def engine_part() -> dict[str, Any]:
            with load(target=asked.target, draft=asked.draft) as engine:
                return engine_beside_the_app(engine, settings, asked.rounds)

        found = on_a_terminal(engine_part)
        print("engine alone:  ", " ".join(f"{x:.1f}" for x in found["without"]), "tok/s")
        print("beside the app:", " ".join(f"{x:.1f}" for x in found["beside"]), "tok/s")
        print(f"loss of speed:  {found['loss']:.1%} (median of the rounds; budget 10 %)")
    for what, share in on_a_terminal(lambda: a_long_chat(asked.messages)).items():
        print(f"{asked.messages} messages, {what}: {share:.0%} of a core (budget 30 %)")


if __name__ == "__main__":
    main()
