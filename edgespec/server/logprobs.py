"""Log-probabilities in the shapes of OpenAI's two APIs."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from edgespec.engine import Engine
from edgespec.types import Step, TokenLogprob

_LEAST = -1e4
"""JSON has no infinity."""


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
    return {"id": token, "token": text, "logprob": max(value, _LEAST), "bytes": list(piece)}


_Row = tuple[int, int, float | None, dict[str, float] | None]


class TextLogprobs:
    """Those of one answer in the shape of the completions API, taken part by part.

    Every token has its place in the lists, those without text too. prompt, tokens: what is echoed
    before the answer.
    """

    def __init__(self, engine: Engine, prompt: str = "", tokens: Sequence[int] = ()) -> None:
        self._engine = engine
        self._prompt = prompt
        self._first = list(tokens[:1])  # nothing comes before it, so it has no probability
        self._at = 0  # where the next token of the prompt is
        self._length = len(prompt)  # of the prompt and the answer so far
        self._decoders = [_decoder(), _decoder()]

    def take(self, steps: Sequence[Step]) -> dict[str, list[Any]]:
        """The entries that these steps add."""
        rows: list[_Row] = [(self._in_prompt(token), token, None, None) for token in self._first]
        self._first = []
        for step in steps:
            for one in step.prompt_logprobs:
                rows.append((self._in_prompt(one.token), *self._entry(one)))
            for one in step.logprobs:
                rows.append((self._in_answer(one.token), *self._entry(one)))
        return {
            "tokens": [self._name(token) for _, token, _, _ in rows],
            "token_logprobs": [value for _, _, value, _ in rows],
            "top_logprobs": [top for _, _, _, top in rows],
            "text_offset": [offset for offset, _, _, _ in rows],
        }

    def _entry(self, one: TokenLogprob) -> tuple[int, float, dict[str, float]]:
        top: dict[str, float] = {}
        for token, value in (*one.top, (one.token, one.logprob)):
            top.setdefault(self._name(token), max(value, _LEAST))
        return one.token, max(one.logprob, _LEAST), top

    def _name(self, token: int) -> str:
        piece = self._engine.piece(token, special=True)
        try:
            return piece.decode()
        except UnicodeDecodeError:  # half a character, written as OpenAI does
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    def _in_prompt(self, token: int) -> int:
        """Where a token begins. What a tokenizer adds, as BOS, takes no room."""
        at = self._at
        text = self._decoders[0].decode(self._engine.piece(token, special=True))
        for form in (text, text.removeprefix(" ")):
            if self._prompt.startswith(form, at):
                self._at += len(form)
                break
        return at

    def _in_answer(self, token: int) -> int:
        at = self._length
        self._length += len(self._decoders[1].decode(self._engine.piece(token)))
        return at


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
