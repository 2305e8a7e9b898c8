"""llama.cpp's own loop, as bare as Python allows: what edgespec's overhead is measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import llama_cpp
import numpy as np

from edgespec.errors import BackendError
from edgespec.llama.context import Context
from edgespec.llama.vocabulary import Vocabulary


class NativeAnswer(NamedTuple):
    """Tokens, how many of the prompt were in memory, and seconds to the first and last token."""

    tokens: tuple[int, ...]
    cached: int
    first_s: float
    total_s: float


class NativeLoop:
    """Greedy decoding: llama_decode on one token, the largest logit, and nothing else.

    Uses sequence 0 of `context`, through none of edgespec's own code. `chunk` is how many tokens
    of a prompt are decoded at once.
    """

    def __init__(
        self, context: Context, vocabulary: Vocabulary, *, chunk: int, clock: Callable[[], float]
    ) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._chunk = chunk
        self._clock = clock
        self._held: list[int] = []

    def forget(self) -> None:
        """Begin the next prompt from nothing."""
        self._held = []

    def generate(self, prompt: Sequence[int], max_tokens: int) -> NativeAnswer:
        """Answer `prompt`; what it shares with the prompt and answer before is not read again."""
        began = self._clock()
        handle = self._context.handle
        pairs = zip(self._held, prompt[:-1], strict=False)
        cached = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        memory = llama_cpp.llama_get_memory(handle)
        llama_cpp.llama_memory_seq_rm(memory, 0, cached, -1)
        self._read(handle, prompt[cached:])
        n_vocab = self._context.n_vocab
        tokens = [_best(handle, n_vocab)]
        first = self._clock()
        one = (llama_cpp.llama_token * 1)()
        batch = llama_cpp.llama_batch_get_one(one, 1)
        while len(tokens) < max_tokens and not self._vocabulary.ends_generation(tokens[-1]):
            one[0] = tokens[-1]
            _decode(handle, batch)
            tokens.append(_best(handle, n_vocab))
        self._held = [*prompt, *tokens[:-1]]
        return NativeAnswer(tuple(tokens), cached, first - began, self._clock() - began)

    def _read(self, handle: object, tokens: Sequence[int]) -> None:
        for start in range(0, len(tokens), self._chunk):
            piece = tokens[start : start + self._chunk]
            array = (llama_cpp.llama_token * len(piece))(*piece)
            _decode(handle, llama_cpp.llama_batch_get_one(array, len(piece)))


def _decode(handle: object, batch: llama_cpp.llama_batch) -> None:
    code = llama_cpp.llama_decode(handle, batch)
    if code != 0:
        raise BackendError(f"llama.cpp's own loop failed: llama_decode returned {code}.")


def _best(handle: object, n_vocab: int) -> int:
    pointer = llama_cpp.llama_get_logits_ith(handle, -1)
    return int(np.ctypeslib.as_array(pointer, (n_vocab,)).argmax())
