"""`edgespec run PROMPT`: one answer. stdin joins the prompt, text goes to stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgespec.cli import options as opt
from edgespec.errors import OptionError
from edgespec.types import Chunk, Completion, SamplingParams

if TYPE_CHECKING:
    from edgespec.engine import Engine

Prompt = Annotated[str | None, typer.Argument(help="What to ask. Piped text is put after it.")]
System = Annotated[str | None, typer.Option(help="A system prompt.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Continue the prompt as it is, without chat template.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object with answer, statistics and set-up.")
]


def run(
    prompt: Prompt = None,
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
    stop: opt.Stop = None,
    system: System = None,
    raw: Raw = False,
    ctx: opt.Ctx = None,
    threads: opt.Threads = None,
    gpu_layers: opt.GpuLayers = None,
    exact: opt.Exact = "auto",
    as_json: AsJson = False,
) -> None:
    """Answer one prompt."""
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
    if max_tokens is not None and max_tokens < 1:
        raise OptionError(f"--max-tokens must be at least 1, not {max_tokens}.")
    question = _question(prompt)
    load_options = opt.load_options(
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        ctx=ctx,
        threads=threads,
        gpu_layers=gpu_layers,
        exact=exact,
    )
    with opt.load(pair, target, draft, load_options) as engine:
        request: dict[str, Any] = {"max_tokens": max_tokens, "stop": stop or (), "params": params}
        if raw:
            request["prompt"] = question
        else:
            request["messages"] = _messages(question, system)
        chunk = _answer(engine, request, show=not as_json)
        if chunk.completion is None:
            return
        if as_json:
            typer.echo(json.dumps(_record(engine, chunk.completion), ensure_ascii=False))
        else:
            typer.echo(opt.summary(chunk.completion), err=True)


def _answer(engine: Engine, request: dict[str, Any], *, show: bool) -> Chunk:
    chunk = Chunk(text="")
    try:
        for chunk in engine.stream(**request):
            if show and chunk.text:
                sys.stdout.write(chunk.text)
                sys.stdout.flush()
    finally:
        if show:
            sys.stdout.write("\n")
            sys.stdout.flush()
    return chunk


def _question(prompt: str | None) -> str:
    piped = "" if sys.stdin is None or sys.stdin.isatty() else _read_stdin()
    question = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if not question:
        raise OptionError('There is no prompt: edgespec run "What to ask", or pipe text in.')
    return question


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


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
