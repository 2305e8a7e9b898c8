"""What an answer cost, in the words of OpenAI's API and of llama.cpp's server."""

from __future__ import annotations

from functools import reduce
from typing import Any

from edgespec.engine import Engine
from edgespec.policies import PREDICTION
from edgespec.text.thoughts import CLOSE
from edgespec.types import Completion, Stats

_FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}


def finish_reason(completion: Completion) -> str:
    """OpenAI's word for why the answer is over."""
    return _FINISH[completion.finish_reason]


def usage(completions: list[Completion], *, reasoning_tokens: int = 0) -> dict[str, Any]:
    """Of the choices for one prompt. Rejected tokens of a prediction are not counted as part of
    the answer."""
    first = completions[0].usage
    answer = sum(one.usage.completion_tokens for one in completions)
    predicted = [one.stats.by_drafter.get(PREDICTION, (0, 0)) for one in completions]
    accepted = sum(stood for _, stood in predicted)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": answer,
        "total_tokens": first.prompt_tokens + answer,
        "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(drafted for drafted, _ in predicted) - accepted,
        },
    }


def usage_of_prompts(prompts: list[list[Completion]]) -> dict[str, Any]:
    """Of the choices for each of several prompts, added up."""
    return reduce(_added, map(usage, prompts))


def without_prediction(found: dict[str, Any]) -> dict[str, Any]:
    """A usage for a request that predicted nothing itself."""
    none = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    details = {**found["completion_tokens_details"], **none}
    return {**found, "completion_tokens_details": details}


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _added(value, other[key]) if isinstance(value, dict) else value + other[key]
        for key, value in one.items()
    }


def thought_tokens(engine: Engine, completion: Completion) -> int:
    """How many tokens of an answer that begins with a thought belong to it, its end included.

    Raises EngineClosedError.
    """
    close, end = CLOSE.encode(), b""
    for number, token in enumerate(completion.tokens, 1):
        end += engine.piece(token)
        if close in end:
            return number
        end = end[1 - len(close) :]
    return len(completion.tokens)


def timings(completion: Completion) -> dict[str, Any]:
    """As llama.cpp's server has them, and what edgespec knows beyond that."""
    stats = completion.stats
    predicted = completion.usage.completion_tokens
    found: dict[str, Any] = {
        "cache_n": completion.usage.cached_tokens,
        **_speed("prompt", stats.prefilled, stats.prefill_s),
        **_speed("predicted", predicted, stats.decode_s),
    }
    if stats.drafted:
        found |= {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return found | {"edgespec": _details(completion, stats)}


def _speed(what: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        f"{what}_n": tokens,
        f"{what}_ms": 1e3 * seconds,
        f"{what}_per_token_ms": 1e3 * seconds / max(tokens, 1),
        f"{what}_per_second": tokens / seconds if seconds > 0 else 0.0,
    }


def _details(completion: Completion, stats: Stats) -> dict[str, Any]:
    return {
        "claim": completion.claim,
        "seed": completion.seed,
        "steps": stats.steps,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "by_drafter": {
            name: {"drafted": drafted, "accepted": accepted}
            for name, (drafted, accepted) in stats.by_drafter.items()
        },
        "time_to_first_token_ms": 1e3 * completion.time_to_first_token_s,
    }
