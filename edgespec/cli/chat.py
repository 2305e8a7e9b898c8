"""`edgespec chat`: a conversation in the terminal, line by line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgespec.cli import options as opt
from edgespec.decoding import stats
from edgespec.errors import ContextFullError, EdgespecError, OptionError
from edgespec.types import Completion, SamplingParams, Stats

if TYPE_CHECKING:
    from edgespec.engine import Engine

HELP = """\
/reset          forget the conversation
/system TEXT    set the system prompt and start anew; without TEXT remove it
/stats          speed and acceptance so far
/help           this list
/quit           leave (also Ctrl-D, or Ctrl-C twice)
Ctrl-C stops an answer and keeps what there is of it."""

Plain = Annotated[bool, typer.Option("--plain", help="Line by line instead of full screen.")]
System = Annotated[str, typer.Option(help="A system prompt.")]


def chat(
    plain: Plain = False,
    pair: opt.Pair = None,
    target: opt.Target = None,
    draft: opt.DraftModel = None,
    drafter: opt.Drafter = "auto",
    num_draft_tokens: opt.DraftTokens = "auto",
    max_tokens: opt.MaxTokens = None,
    temperature: opt.Temperature = opt.DEFAULTS.temperature,
    top_k: opt.TopK = opt.DEFAULTS.top_k,
    top_p: opt.TopP = opt.DEFAULTS.top_p,
    min_p: opt.MinP = opt.DEFAULTS.min_p,
    typical_p: opt.TypicalP = opt.DEFAULTS.typical_p,
    repeat_penalty: opt.RepeatPenalty = opt.DEFAULTS.repeat_penalty,
    presence_penalty: opt.PresencePenalty = opt.DEFAULTS.presence_penalty,
    frequency_penalty: opt.FrequencyPenalty = opt.DEFAULTS.frequency_penalty,
    penalty_last_n: opt.PenaltyLastN = opt.DEFAULTS.penalty_last_n,
    seed: opt.Seed = None,
    system: System = "",
    ctx: opt.Ctx = None,
    threads: opt.Threads = None,
    gpu_layers: opt.GpuLayers = None,
    exact: opt.Exact = "auto",
) -> None:
    """Talk with a model."""
    if not plain:
        raise OptionError("The full-screen chat is not there yet: edgespec chat --plain")
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        repeat_penalty=repeat_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        penalty_last_n=penalty_last_n,
        seed=seed,
    )
    load_options = opt.load_options(
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        ctx=ctx,
        threads=threads,
        gpu_layers=gpu_layers,
        exact=exact,
    )
    with opt.load(pair, target, draft, load_options) as engine:
        Conversation(engine, {"params": params, "max_tokens": max_tokens}, system).run()


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
            "/help": lambda _: typer.echo(HELP),
        }

    def run(self) -> None:
        """Until the user leaves."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  line editing and history for input()
        self._greet()
        interrupted = False
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "")
            except EOFError:
                break
            except KeyboardInterrupt:
                typer.echo("", err=True)
                if interrupted:
                    break
                typer.echo("Ctrl-C again, or /quit, to leave.", err=True)
                interrupted = True
                continue
            interrupted = False
            if not self._handle(line.strip()):
                break

    def _greet(self) -> None:
        info = self._engine.info
        drafts = f"drafts by {info.drafter}, k={info.num_draft_tokens}" if info.drafter else "plain"
        name = f"{info.target} with {info.draft}" if info.draft else info.target
        devices = ", ".join(info.devices)
        typer.echo(f"{name} | {drafts} | {devices} | /help", err=True)
        for note in info.notes:
            typer.echo(note, err=True)

    def _handle(self, line: str) -> bool:
        """False to leave."""
        if line in ("/quit", "/exit"):
            return False
        if line.startswith("/"):
            name, _, rest = line.partition(" ")
            command = self._commands.get(name)
            if command:
                command(rest.strip())
            else:
                typer.echo(f"There is no command {name}: /help lists them.", err=True)
        elif line:
            self._ask(line)
        return True

    def _ask(self, text: str) -> None:
        question = {"role": "user", "content": text}
        system = [{"role": "system", "content": self._system}] if self._system else []
        try:
            completion = self._answer([*system, *self._messages, question])
        except ContextFullError as error:
            typer.echo(f"{error} Or /reset.", err=True)
            return
        except EdgespecError as error:
            typer.echo(str(error), err=True)
            return
        self._messages += [question, {"role": "assistant", "content": completion.text}]
        self._total = stats.merge(self._total, completion.stats)
        typer.echo(opt.summary(completion), err=True)

    def _answer(self, messages: list[dict[str, str]]) -> Completion:
        generation = self._engine.submit(messages=messages, **self._request)
        chunks = generation.chunks()
        completion = None
        while completion is None:
            try:
                for chunk in chunks:
                    sys.stdout.write(chunk.text)
                    sys.stdout.flush()
                    completion = chunk.completion
            except KeyboardInterrupt:
                # Leaving the iterator cancelled it; what is left is the end of the answer.
                generation.cancel()
                chunks = generation.chunks()
        sys.stdout.write("\n")
        sys.stdout.flush()
        return completion

    def _reset(self, _: str) -> None:
        self._messages = []
        typer.echo("Forgotten.", err=True)

    def _set_system(self, text: str) -> None:
        self._system = text
        self._messages = []
        typer.echo("System prompt set." if text else "No system prompt.", err=True)

    def _show_stats(self, _: str) -> None:
        total = self._total
        if not total.steps:
            typer.echo("Nothing generated yet.", err=True)
            return
        typer.echo(
            f"{total.emitted} tokens in {total.steps} steps, "
            f"{total.tokens_per_second or 0:.1f} tok/s; "
            f"draft {total.draft_s:.2f} s, verify {total.verify_s:.2f} s, "
            f"sampling {total.sample_s:.2f} s, rest {total.other_s:.2f} s",
            err=True,
        )
        for name, (drafted, accepted) in total.by_drafter.items():
            share = accepted / drafted
            typer.echo(f"{name}: {accepted} of {drafted} drafted accepted ({share:.2f})", err=True)
