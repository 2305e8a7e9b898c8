"""`edgespec chat`: the app, or a conversation line by line."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgespec.catalog.tables import did_you_mean
from edgespec.cli import options as opt
from edgespec.cli.answer import follow, report
from edgespec.cli.groups import grouped
from edgespec.cli.interrupts import ctrl_c_cancels
from edgespec.decoding import stats
from edgespec.errors import ContextFullError, EdgespecError
from edgespec.types import Completion, Stats

if TYPE_CHECKING:
    from edgespec.engine import Engine

HELP = """\
/reset          forget the conversation
/system TEXT    set the system prompt and start anew; without TEXT remove it
/stats          speed and acceptance so far
/help           this list
/quit           leave (also Ctrl-D, or Ctrl-C twice)
Ctrl-C stops an answer and keeps what there is of it."""

Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Line by line, as for pipes and screen readers; by itself where the terminal cannot "
        "show more.",
    ),
]
Theme = Annotated[
    str, opt.option("--theme", metavar="NAME", help="Colours, such as textual-light, ansi-dark.")
]
Ascii = Annotated[bool, opt.option("--ascii", help="Draw with plain characters only.")]

ModelName = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="A GGUF file, or a pair or model of models.toml."),
]


@grouped
def chat(
    loading: opt.Loading,
    sampling: opt.Sampling,
    model: ModelName = None,
    plain: Plain = False,
    max_tokens: opt.MaxTokens = opt.DEFAULT_MAX_TOKENS,
    system: opt.System = None,
    theme: Theme = "",
    ascii: Ascii = False,
) -> None:
    """Talk with a model, and see why it is fast. Line by line (--plain), answers go to stdout, all
    else to stderr, and questions may come from a pipe."""
    if not plain and terminal_can_show_the_app():
        from edgespec.cli.chat_app import run_app

        run_app(loading.naming(model), sampling, max_tokens, system or "", theme, ascii)
        return
    request = {"params": sampling.params(), "max_tokens": max_tokens or None}
    with loading.naming(model).engine() as engine:
        Conversation(engine, request, system or "").run()


class Conversation:
    """Messages so far, and the loop that reads lines and prints answers."""

    def __init__(self, engine: Engine, request: dict[str, Any], system: str) -> None:
        self._engine = engine
        self._request = request
        self._system = system
        self._messages: list[dict[str, str]] = []
        self._total = Stats()
        self._commands: dict[str, Callable[[str], None]] = {
            "/reset": self._reset,
            "/system": self._set_system,
            "/stats": self._show_stats,
            "/help": lambda _: _tell(HELP),
        }

    def run(self) -> None:
        """Until the user leaves. Raises TemplateError for a model that cannot chat."""
        if not self._engine.has_template:
            self._engine.tokenize(None, [{"role": "user", "content": "Hello"}])  # says why
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  line editing and history for input()
        self._greet()
        warned = False
        while True:
            try:
                if not self._handle(_read_line()):
                    return
                warned = False
            except EOFError:
                return
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise  # whoever stops a script means all of it
                _tell("" if warned else "\nCtrl-C again, or /quit, to leave.")
                if warned:
                    return
                warned = True

    def _greet(self) -> None:
        info = self._engine.info
        k = info.num_draft_tokens
        who = f"drafts by {' and '.join(info.drafters) if k == 'auto' else info.drafter}"
        drafts = f"{who}, {'as it pays' if k == 'auto' else f'k={k}'}" if info.drafter else "plain"
        name = f"{info.target} with {info.draft}" if info.draft else info.target
        _tell(f"{name} | {drafts} | {', '.join(info.devices)} | /help")
        for note in info.notes:
            _tell(note)

    def _handle(self, line: str) -> bool:
        """False to leave."""
        name, _, rest = line.partition(" ")
        if name in ("/quit", "/exit", "/bye"):
            return False
        if name in self._commands:
            self._commands[name](rest.strip())
        elif name.startswith("/"):
            near = did_you_mean(name, [*self._commands, "/quit"])
            _tell(f"There is no command {name}.{near} /help lists all.")
        elif line:
            self._ask(line)
        return True

    def _ask(self, text: str) -> None:
        question = {"role": "user", "content": text}
        system = [{"role": "system", "content": self._system}] if self._system else []
        messages = [*system, *self._messages, question]
        try:
            with ctrl_c_cancels() as ctrl_c:
                generation = self._engine.submit(messages=messages, **self._request)
                self._keep(question, follow(ctrl_c.watch(generation)))
        except ContextFullError as error:
            _tell(f"{error} Or forget the conversation: /reset.")
        except EdgespecError as error:
            _tell(str(error))
        if ctrl_c.pressed and not sys.stdin.isatty():
            raise KeyboardInterrupt

    def _keep(self, question: dict[str, str], completion: Completion) -> None:
        if completion.text:  # nothing when it was stopped while the model was still reading
            self._messages += [question, {"role": "assistant", "content": completion.text}]
        self._total = stats.merge(self._total, completion.stats)
        report(completion, self._engine.info.drafter)

    def _reset(self, _: str) -> None:
        self._messages = []
        _tell("Forgotten.")

    def _set_system(self, text: str) -> None:
        self._system = text
        self._messages = []
        _tell("System prompt set." if text else "No system prompt.")

    def _show_stats(self, _: str) -> None:
        total = self._total
        if not total.emitted:
            _tell("Nothing generated yet.")
            return
        _tell(
            f"{total.emitted} tokens in {total.steps} steps, "
            f"{total.tokens_per_second or 0:.1f} tok/s; "
            f"draft {total.draft_s:.2f} s, verify {total.verify_s:.2f} s, "
            f"sampling {total.sample_s:.2f} s, rest {total.other_s:.2f} s"
        )
        for name, (drafted, accepted) in total.by_drafter.items():
            share = accepted / drafted
            _tell(f"{name}: {accepted} of {drafted} drafted accepted ({share:.2f})")


def terminal_can_show_the_app() -> bool:
    """Whether somebody sits at a terminal that can be drawn on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return False
    return os.name == "nt" or os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def _read_line() -> str:
    """The next line; a prompt only for people, and never among answers in a file.

    Raises EOFError at the end.
    """
    if sys.stdin is None:
        raise EOFError
    if not sys.stdin.isatty():
        return input().strip()
    if not sys.stdout.isatty():
        typer.echo("> ", nl=False, err=True)
        return input().strip()
    try:
        return input("> ").strip()
    except EOFError:
        _tell("")  # so that the shell's prompt does not follow ours
        raise
