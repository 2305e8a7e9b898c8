"""Log-probabilities in the shapes of OpenAI's two APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgespec.engine import Engine
from edgespec.types import Step


def chat_logprobs(engine: Engine, steps: Sequence[Step]) -> dict[str, Any]:
    """Of the emitted tokens that have text, as the chat API has them."""
    found = [one for step in steps for one in step.logprobs]
    return {
        "content": [
            {
                **_entry(engine, one.token, one.logprob),
                "top_logprobs": [_entry(engine, token, value) for token, value in one.top],
            }
            for one in found
            if engine.piece(one.token)
        ],
        "refusal": None,
    }


def _entry(engine: Engine, token: int, value: float) -> dict[str, Any]:
    piece = engine.piece(token)
    # Half a character is written as its bytes alone would be read.
    text = piece.decode("utf-8", errors="replace")
    return {"id": token, "token": text, "logprob": max(value, -1e4), "bytes": list(piece)}
