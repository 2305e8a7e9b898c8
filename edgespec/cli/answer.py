"""Shows one answer as it comes, and how it came about."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from edgespec.types import Completion

if TYPE_CHECKING:
    from edgespec.generation import Generation


def follow(generation: Generation, *, show: bool = True) -> Completion:
    """Print the answer as it comes and return it. Raises what went wrong while it was made."""
    completion = None
    shown = ""
    try:
        for chunk in generation.chunks():
            if show and chunk.text:
                shown = chunk.text
                sys.stdout.write(shown)
                sys.stdout.flush()
            completion = chunk.completion
    finally:
        if shown and not shown.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
    assert completion is not None, "the last chunk carries the completion"
    return completion


def report(completion: Completion, drafter: str) -> None:
    """One line on stderr on how an answer came about; `drafter` could have drafted, "" nobody."""
    typer.echo(summary(completion, drafter), err=True)


def summary(completion: Completion, drafter: str) -> str:
    """That line."""
    stats = completion.stats
    speed = stats.tokens_per_second
    count = completion.usage.completion_tokens
    parts = [f"{count} token{'s' * (count != 1)}"]
    parts.append(f"{speed:.1f} tok/s" if speed else "speed unknown")
    if stats.acceptance_rate is None:
        parts.append(f"no drafts by {drafter}" if drafter else "plain")
    else:
        parts.append(f"drafts by {', '.join(stats.by_drafter)}")
        parts.append(f"acceptance {stats.acceptance_rate:.2f}")
        parts.append(f"{stats.mean_acceptance_length or 0:.2f} tokens/step")
    parts.append(f"seed {completion.seed}")
    parts.append("same output as plain" if completion.claim == "identical" else completion.claim)
    if completion.finish_reason != "stop":
        parts.append(_WHY[completion.finish_reason])
    return " | ".join(parts)


_WHY = {
    "length": "cut at --max-tokens",
    "context": "cut: the context is full",
    "cancelled": "cut by Ctrl-C",
}
