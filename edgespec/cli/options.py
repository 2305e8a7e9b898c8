"""Command-line options that several commands share, and what they amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgespec.errors import OptionError
from edgespec.types import Completion, SamplingParams

if TYPE_CHECKING:
    from edgespec.engine import Engine

Pair = Annotated[
    str | None,
    typer.Option(help="A pair or model of models.toml; default: the pair named default."),
]
Target = Annotated[
    str | None, typer.Option(help="The target: a GGUF file, or a model of models.toml.")
]
DraftModel = Annotated[
    str | None,
    typer.Option("--draft", help="The draft model: a GGUF file, or a model of models.toml."),
]
Drafter = Annotated[
    str,
    typer.Option(
        help="Who drafts: model, n-gram or none; auto takes the draft model if there is one."
    ),
]
DraftTokens = Annotated[
    str,
    typer.Option(
        "-k",
        "--num-draft-tokens",
        help="Tokens to draft per step: auto or a number; 0 is plain decoding.",
    ),
]
Ctx = Annotated[int | None, typer.Option(help="Tokens the context holds.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; default: physical cores.")]
GpuLayers = Annotated[
    int | None, typer.Option(help="Layers on the GPU; default: all, where there is one.")
]
Exact = Annotated[
    str,
    typer.Option(
        help="on: verify only in passes measured to be bit-identical to plain decoding; "
        "auto: where that costs nothing; off: never measure."
    ),
]
Temperature = Annotated[float, typer.Option(help="0 always takes the best token.")]
TopK = Annotated[int, typer.Option(help="Keep the k best tokens; 0: all.")]
TopP = Annotated[float, typer.Option(help="Keep the best tokens up to this mass; 1: all.")]
MinP = Annotated[
    float, typer.Option(help="Keep tokens at least so probable, relative to the best; 0: all.")
]
TypicalP = Annotated[float, typer.Option(help="Keep locally typical tokens; 1: all.")]
RepeatPenalty = Annotated[float, typer.Option(help="Above 1: avoid recent tokens.")]
PresencePenalty = Annotated[float, typer.Option(help="Subtracted for recent tokens.")]
FrequencyPenalty = Annotated[
    float, typer.Option(help="Subtracted per occurrence among recent tokens.")
]
PenaltyLastN = Annotated[int, typer.Option(help="How many tokens count as recent.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same answer; default: drawn.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", "-n", help="Length of an answer; default: no limit.")
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", help="End the answer before this text; repeatable.")
]

DEFAULTS = SamplingParams()


def load_options(
    *,
    drafter: str,
    num_draft_tokens: str,
    ctx: int | None,
    threads: int | None,
    gpu_layers: int | None,
    exact: str,
) -> dict[str, Any]:
    """What `edgespec.load` takes. Raises OptionError for a k that is no number."""
    if num_draft_tokens != "auto":
        try:
            k: int | str = int(num_draft_tokens)
        except ValueError:
            raise OptionError(f"-k must be auto or a number, not {num_draft_tokens!r}.") from None
    else:
        k = "auto"
    return {
        "drafter": drafter,
        "num_draft_tokens": k,
        "n_ctx": ctx,
        "threads": threads,
        "gpu_layers": gpu_layers,
        "exact": exact,
    }


def load(
    pair: str | None, target: str | None, draft: str | None, options: dict[str, Any]
) -> Engine:
    """Load with progress bars, pulling what is missing."""
    from edgespec.cli.progress import fetch, loading_bar
    from edgespec.loading import LoadOptions
    from edgespec.loading import load as load_engine

    LoadOptions(**options)  # a wrong option fails before any download
    with loading_bar() as report:
        return load_engine(pair, target=target, draft=draft, fetch=fetch, report=report, **options)


def summary(completion: Completion) -> str:
    """One line on how an answer came about."""
    stats = completion.stats
    speed = stats.tokens_per_second
    parts = [f"{completion.usage.completion_tokens} tokens"]
    parts.append(f"{speed:.1f} tok/s" if speed else "speed unknown")
    if stats.acceptance_rate is None:
        parts.append("plain")
    else:
        parts.append(f"drafts by {', '.join(stats.by_drafter)}")
        parts.append(f"acceptance {stats.acceptance_rate:.2f}")
        parts.append(f"mean acceptance length {stats.mean_acceptance_length or 0:.2f}")
    parts.append(f"seed {completion.seed}")
    parts.append("same output as plain" if completion.claim == "identical" else completion.claim)
    if completion.finish_reason in ("length", "context"):
        why = {"length": "cut at --max-tokens", "context": "the context is full"}
        parts.append(why[completion.finish_reason])
    return " | ".join(parts)
