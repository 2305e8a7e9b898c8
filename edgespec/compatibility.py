"""Whether a draft model's token ids mean the same as the target's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# llama.cpp: common/speculative.cpp, SPEC_VOCAB_*
_LARGEST_SIZE_DIFFERENCE = 128
_FIRST_COMPARED = 5


class Vocabulary(Protocol):
    """Of a loaded model, or of a file. type: the tokenizer's kind, in words."""

    @property
    def type(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def adds_bos(self) -> bool: ...
    @property
    def adds_eos(self) -> bool: ...
    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...

    def name(self, token: int) -> str:
        """How to show a token."""

    def texts(self, start: int, stop: int) -> Sequence[bytes]:
        """How the tokens start..stop-1 are written in the vocabulary."""


def mismatch(target: Vocabulary, draft: Vocabulary) -> str:
    """The first reason why they do not fit, "" when they do.

    The rules are llama.cpp's (`common_speculative_are_compatible`).
    """
    if target.type != draft.type:
        return f"their tokenizers are of different types ({target.type} and {draft.type})"
    if target.adds_bos != draft.adds_bos or (target.adds_bos and target.bos != draft.bos):
        return f"they begin texts differently ({_special(target, True)}, {_special(draft, True)})"
    if target.adds_eos != draft.adds_eos or (target.adds_eos and target.eos != draft.eos):
        return f"they end texts differently ({_special(target, False)}, {_special(draft, False)})"
    if abs(target.size - draft.size) > _LARGEST_SIZE_DIFFERENCE:
        return f"their vocabularies have {target.size} and {draft.size} tokens"
    stop = min(target.size, draft.size)
    wanted, found = target.texts(_FIRST_COMPARED, stop), draft.texts(_FIRST_COMPARED, stop)
    if wanted == found:
        return ""
    at = next(i for i, pair in enumerate(zip(wanted, found, strict=True)) if pair[0] != pair[1])
    token = at + _FIRST_COMPARED
    return f"token {token} is {target.name(token)!r} in one and {draft.name(token)!r} in the other"


def _special(vocabulary: Vocabulary, begin: bool) -> str:
    adds = vocabulary.adds_bos if begin else vocabulary.adds_eos
    token = vocabulary.bos if begin else vocabulary.eos
    return f"with {vocabulary.name(token)!r}" if adds else "without a token"
