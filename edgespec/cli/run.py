"""`edgespec run PROMPT`: one answer. stdin joins the prompt, text goes to stdout."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgespec.cli import options as opt
from edgespec.cli.answer import follow, report
from edgespec.cli.explanation import explanation_lines
from edgespec.cli.groups import grouped
from edgespec.cli.interrupts import INTERRUPTED, ctrl_c_cancels
from edgespec.errors import OptionError
from edgespec.types import Completion

if TYPE_CHECKING:
    from edgespec.engine import Engine
    from edgespec.explaining import Explanation
    from edgespec.loading import LoadedPair

_PATIENCE_S = 5.0
_LARGEST_STDIN = 64 * 2**20

Prompt = Annotated[
    str | None,
    typer.Argument(metavar="PROMPT", help="What to ask; may come from stdin."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End the answer before this text; repeatable."),
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Continue the prompt as it is, without chat template.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object with answer, statistics and set-up.")
]

Explain = Annotated[
    bool,
    typer.Option(
        "--explain", help="Say on stderr why -k auto drafted as it did: costs, chances, lengths."
    ),
]


@grouped
def run(
    loading: opt.Loading,
    sampling: opt.Sampling,
    prompt: Prompt = None,
    max_tokens: opt.MaxTokens = opt.DEFAULT_MAX_TOKENS,
    system: opt.System = None,
    stop: Stop = None,
    raw: Raw = False,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Answer one prompt: the text goes to stdout, one line of statistics to stderr.

    Piped text is read to its end and put after PROMPT. To keep stdin out of it, for instance
    in a loop that reads lines: edgespec run PROMPT < /dev/null
    """
    params = sampling.params()
    question = _question(prompt)
    if raw and system:
        raise OptionError("--raw has no place for --system: leave one of them out.")
    request: dict[str, Any] = {
        "max_tokens": max_tokens or None,
        "stop": stop or (),
        "params": params,
    }
    if raw:
        request["prompt"] = question
    else:
        request["messages"] = _messages(question, system)
    if explain and loading.num_draft_tokens != "auto":
        raise OptionError("--explain explains what -k auto chooses, which is not in use here.")
    with loading.loaded() as pair, ctrl_c_cancels() as ctrl_c:
        engine = pair.engine
        for decision in () if as_json else engine.info.decisions:
            typer.echo(decision, err=True)
        completion = follow(ctrl_c.watch(engine.submit(**request)), show=not as_json)
        explained = _explained(pair, request, completion) if explain else None
        if as_json:
            more = {"explanation": asdict(explained)} if explained else {}
            typer.echo(json.dumps(_record(engine, completion) | more))
        else:
            report(completion, engine.info.drafter)
            if explained:
                typer.echo("\n".join(explanation_lines(explained)), err=True)
        if ctrl_c.pressed:
            raise typer.Exit(INTERRUPTED)


def _explained(
    pair: LoadedPair, request: dict[str, Any], completion: Completion
) -> Explanation | None:
    from edgespec.explaining import explain

    if pair.knowledge is None:
        typer.echo("Nothing to explain: nobody can draft here.", err=True)
        return None
    prompt = pair.engine.tokenize(request.get("prompt"), request.get("messages"))
    return explain(pair.knowledge, pair.engine.info.exact_widths, completion.steps, prompt)


def _question(prompt: str | None) -> str:
    piped = "" if sys.stdin is None or sys.stdin.isatty() else _read_stdin()
    question = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if not question:
        raise OptionError('There is no prompt: edgespec run "What to ask", or pipe text in.')
    return question


def _read_stdin() -> str:
    try:
        with _word_after(_PATIENCE_S):
            data = sys.stdin.buffer.read(_LARGEST_STDIN + 1)
    except OSError:
        return ""
    if len(data) > _LARGEST_STDIN:
        raise OptionError(
            f"stdin holds more than {_LARGEST_STDIN // 2**20} MiB, which no context does: "
            "pipe less into edgespec run."
        )
    return data.decode("utf-8-sig", errors="replace")


@contextmanager
def _word_after(seconds: float) -> Iterator[None]:
    """A pipe may be slow, so it is waited for; one that nobody ever closes should not puzzle."""
    notice = "Still reading stdin, which is put after the prompt; leave it out with < /dev/null"
    timer = threading.Timer(seconds, typer.echo, [notice], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _messages(question: str, system: str | None) -> list[dict[str, str]]:
    start = [{"role": "system", "content": system}] if system else []
    return [*start, {"role": "user", "content": question}]


def _record(engine: Engine, completion: Completion) -> dict[str, Any]:
    from edgespec.decoding import stats

    info = asdict(engine.info)
    widths = engine.info.exact_widths
    info["exact_widths"] = sorted(widths) if widths is not None else None
    return {
        "text": completion.text,
        "tokens": list(completion.tokens),
        "finish_reason": completion.finish_reason,
        "usage": asdict(completion.usage),
        "seed": completion.seed,
        "claim": completion.claim,
        "time_to_first_token_s": completion.time_to_first_token_s,
        "total_s": completion.total_s,
        "stats": stats.to_dict(completion.stats),
        "engine": info,
    }
