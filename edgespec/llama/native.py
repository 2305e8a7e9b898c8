"""llama.cpp's own loop, as bare as Python allows: what edgespec's overhead is measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import llama_cpp
import numpy as np

from edgespec.errors import BackendError, ModelLoadError
from edgespec.llama.model import Model


class NativeAnswer(NamedTuple):
    """Tokens, how many of the prompt were in memory, and seconds to the first and last token."""

    tokens: tuple[int, ...]
    cached: int
    first_s: float
    total_s: float


class NativeLoop:
    """Greedy decoding: llama_decode on one token, the largest logit, and nothing else.

    On the weights of `model`, in a context of its own that is as llama.cpp makes it by default;
    made when it is first needed. Not thread-safe, but for `stop`.
    """

    def __init__(
        self, model: Model, *, n_ctx: int, threads: int, clock: Callable[[], float]
    ) -> None:
        self._model = model
        self._n_ctx = n_ctx
        self._threads = threads
        self._clock = clock
        self._handle: Any = None
        self._batch = 0
        self._held: list[int] = []
        self._stopped = False

    def forget(self) -> None:
        """Begin the next prompt from nothing."""
        self._held = []

    def stop(self) -> None:
        """End the answer that is being made. From any thread."""
        self._stopped = True

    def generate(self, prompt: Sequence[int], max_tokens: int) -> NativeAnswer:
        """Answer `prompt`; what it shares with the prompt and answer before is not read again.

        Raises ModelLoadError when there is no memory for the context, and BackendError.
        """
        handle = self._open()
        self._stopped = False
        vocabulary = self._model.vocabulary
        began = self._clock()
        pairs = zip(self._held, prompt[:-1], strict=False)
        cached = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(handle), 0, cached, -1)
        self._read(handle, prompt[cached:])
        tokens = [_best(handle, vocabulary.size)]
        first = self._clock()
        one = (llama_cpp.llama_token * 1)()
        batch = llama_cpp.llama_batch_get_one(one, 1)
        while (
            len(tokens) < max_tokens
            and not vocabulary.ends_generation(tokens[-1])
            and not self._stopped
        ):
            one[0] = tokens[-1]
            _decode(handle, batch)
            tokens.append(_best(handle, vocabulary.size))
        self._held = [*prompt, *tokens[:-1]]
        return NativeAnswer(tuple(tokens), cached, first - began, self._clock() - began)

    def close(self) -> None:
        """Free the context. Idempotent; must come before the model's close."""
        if self._handle is not None:
            llama_cpp.llama_free(self._handle)
            self._handle = None

    def _open(self) -> Any:
        if self._handle is None:
            params = llama_cpp.llama_context_default_params()
            params.n_ctx = self._n_ctx
            params.n_threads = params.n_threads_batch = self._threads
            self._batch = params.n_batch
            self._handle = llama_cpp.llama_init_from_model(self._model.handle, params)
            if not self._handle:
                raise ModelLoadError(
                    "There is no memory for the context of llama.cpp's own loop: leave native out "
                    "of --modes, or try a smaller --ctx."
                )
        return self._handle

    def _read(self, handle: Any, tokens: Sequence[int]) -> None:
        for start in range(0, len(tokens), self._batch):
            piece = tokens[start : start + self._batch]
            array = (llama_cpp.llama_token * len(piece))(*piece)
            _decode(handle, llama_cpp.llama_batch_get_one(array, len(piece)))


def _decode(handle: Any, batch: llama_cpp.llama_batch) -> None:
    code = llama_cpp.llama_decode(handle, batch)
    if code != 0:
        raise BackendError(f"llama.cpp's own loop failed: llama_decode returned {code}.")


def _best(handle: Any, n_vocab: int) -> int:
    pointer = llama_cpp.llama_get_logits_ith(handle, -1)
    return int(np.ctypeslib.as_array(pointer, (n_vocab,)).argmax())
