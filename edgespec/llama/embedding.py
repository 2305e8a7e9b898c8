"""Texts as vectors, for models that were made for it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from edgespec.errors import BackendError, ContextFullError, ModelLoadError
from edgespec.llama import library
from edgespec.llama.model import Model

_MEAN, _FIRST, _LAST = 1, 2, 3  # llama.h: enum llama_pooling_type

_MOST_TOKENS = 2048
# llama.cpp computes logits beside the vectors, for every row: more rows take gigabytes.
_ROWS = 256
_PROBE = 8
_CLOSE = 0.05  # of the length: kernels differ by less, what a token sees by more

Vector = NDArray[np.float32]


def pooling(model: Model) -> int:
    """How the model makes one vector of those of all tokens; 0 when it makes none."""
    architecture = model.metadata("general.architecture") or ""
    named = model.metadata(f"{architecture}.pooling_type") or "0"
    kind = int(named) if named.isdigit() else 0
    return kind if kind in (_MEAN, _FIRST, _LAST) else 0


class Embedder:
    """Vectors of length 1, made in a context of its own on the weights of `model`.

    The context is made when it is first needed. Not thread-safe. `model` must name how its
    vectors are pooled.
    """

    def __init__(self, model: Model, *, n_ctx: int, threads: int) -> None:
        self.size = int(llama_cpp.llama_model_n_embd_out(model.handle))
        self._model = model
        self._pooling = pooling(model)
        self._most = min(n_ctx, model.n_ctx_train, _MOST_TOKENS)
        self._rows = min(_ROWS, self._most)
        self._threads = threads
        self._handle: Any = None

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """The vector of a text.

        Raises ContextFullError for a text that is too long, ModelLoadError when there is no
        memory for the context, and BackendError.
        """
        self._open()
        if len(tokens) > self._most:
            raise ContextFullError(
                f"The text has {len(tokens)} tokens, but at most {self._most} become one vector.",
                len(tokens),
                self._most,
            )
        vector = self._pooled(tokens, self._rows)
        length = float(np.linalg.norm(vector))
        if not math.isfinite(length):
            raise BackendError("The vector of this text is not finite: the model may be damaged.")
        found: list[float] = (vector / length if length else vector).tolist()
        return found

    def close(self) -> None:
        """Free the context. Idempotent; must come before the model's close."""
        if self._handle is not None:
            llama_cpp.llama_free(self._handle)
            self._handle = None

    def _open(self) -> None:
        if self._handle is not None:
            return
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = self._most
        params.n_batch = params.n_ubatch = self._rows
        params.n_threads = params.n_threads_batch = self._threads
        params.embeddings = True
        params.no_perf = True
        library.forget_complaints()
        self._handle = llama_cpp.llama_init_from_model(self._model.handle, params) or None
        if self._handle is None:
            reason = library.last_complaint() or "llama.cpp gave no reason"
            raise ModelLoadError(f"There is no memory for embeddings: {reason}.")
        try:
            if not self._may_read_in_pieces():
                self._most = self._rows
        except BackendError:
            self.close()
            raise

    def _may_read_in_pieces(self) -> bool:
        """Whether a text that is read in pieces gives the same vector as in one pass.

        It does not where tokens see those that come after them.
        """
        probe = [token % self._model.vocabulary.size for token in range(_PROBE)]
        whole, pieces = self._pooled(probe, _PROBE), self._pooled(probe, _PROBE // 2)
        return bool(np.linalg.norm(whole - pieces) <= _CLOSE * np.linalg.norm(whole))

    def _pooled(self, tokens: Sequence[int], rows: int) -> Vector:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._handle), True)
        found = np.zeros(self.size, np.float32)
        for start in range(0, len(tokens), rows):
            piece = tokens[start : start + rows]
            vector = self._read(piece)
            if self._pooling == _MEAN:
                found += vector * (len(piece) / len(tokens))
            elif self._pooling == _LAST or start == 0:
                found = vector
        return found

    def _read(self, tokens: Sequence[int]) -> Vector:
        """One pass over a piece, and its pooled vector."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        wanted = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        batch = llama_cpp.llama_batch_get_one(array, len(tokens))
        batch.logits = ctypes.cast(wanted, type(batch.logits))
        library.forget_complaints()
        code = llama_cpp.llama_decode(self._handle, batch)
        pointer = llama_cpp.llama_get_embeddings_seq(self._handle, 0) if code == 0 else None
        if not pointer:
            reason = library.last_complaint() or f"llama_decode returned {code}"
            raise BackendError(f"llama.cpp failed: {reason}. See the log file; restart edgespec.")
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.array(np.ctypeslib.as_array(address, (self.size,)))
