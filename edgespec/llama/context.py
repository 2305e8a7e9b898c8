"""A model's working memory: several sequences, one pass at a time."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from edgespec.errors import (
    BackendError,
    CannotRewindError,
    DecodeAbortedError,
    ModelLoadError,
    NoRoomError,
)
from edgespec.llama import library
from edgespec.llama.model import Model
from edgespec.protocols import Logits, Row
from edgespec.types import MAX_DRAFT_TOKENS

# Logits of at most so many rows are wanted of one sequence in one pass.
MAX_WIDTH = MAX_DRAFT_TOKENS + 1
# llama.cpp counts the cells of a context in 32 bits; a larger number would wrap unnoticed.
_MOST_CELLS = 2**31 - 1

# ggml.h: enum ggml_type
_GGML_TYPE_F16, _GGML_TYPE_Q8_0, _GGML_TYPE_BF16 = 1, 8, 30

_DECODE_ABORTED = 2
_DECODE_NO_ROOM = 1


class Context:
    """Implements `protocols.TokenModel` on a llama_context. Not thread-safe.

    n_ctx: tokens that fit, all sequences together. threads: used for passes of every width
    alike, since verification counts as batch processing in llama.cpp. mixed_cache: keep the V
    half of the KV cache in BF16 beside an F16 K half. llama.cpp's CPU attention splits a pass of
    one token among threads from 512 cells on, and then sums in another order than wider passes,
    but only where both halves have one type (ggml-cpu/ops.cpp: use_split_kv_path).
    quantized_cache: keep both halves in Q8_0 instead, which takes about half the memory and
    rounds more.
    Raises ModelLoadError when the memory cannot be had.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        max_sequences: int = 1,
        threads: int,
        max_rows: int = 512,
        mixed_cache: bool = False,
        quantized_cache: bool = False,
    ) -> None:
        self.n_vocab = model.vocabulary.size
        self.n_ctx = n_ctx
        self.max_sequences = max_sequences
        # llama.cpp allows no pass beyond the whole context, and asserts that.
        self.max_rows = min(max_rows, n_ctx)
        self._max_wanted = min(self.max_rows, MAX_WIDTH * max_sequences)
        # Snapshots of recurrent state are not used yet: such models run plain.
        self.rewind_depth: float = 0 if model.is_recurrent else math.inf
        self._abort = _AbortFlag()
        self.mixed_cache = mixed_cache and not quantized_cache
        self.quantized_cache = quantized_cache
        self._window = model.sliding_window
        self._batch = _Batch(self.max_rows)
        self._handle: Any = self._open(model, threads)
        self._memory_handle: Any = llama_cpp.llama_get_memory(self._handle)
        self._views: dict[tuple[int, int], Logits] = {}

    @property
    def handle(self) -> Any:
        """The llama_context pointer. Raises BackendError after close()."""
        if self._handle is None:
            raise BackendError("The context was used after it was closed.")
        return self._handle

    @property
    def _memory(self) -> Any:
        # As `handle`, once more: this is read for every row of every pass.
        if self._memory_handle is None:
            raise BackendError("The context was used after it was closed.")
        return self._memory_handle

    @property
    def kv_cache(self) -> str:
        """Types of its K and V halves."""
        if self.quantized_cache:
            return "Q8_0/Q8_0"
        return "F16/BF16" if self.mixed_cache else "F16/F16"

    def _open(self, model: Model, threads: int) -> Any:
        params = llama_cpp.llama_context_default_params()
        if self.n_ctx > _MOST_CELLS:
            raise ModelLoadError(
                f"No context of {self.n_ctx} tokens for {model.path.name}: llama.cpp counts to "
                f"{_MOST_CELLS}. Try a smaller --ctx."
            )
        params.n_ctx = self.n_ctx
        params.n_batch = self.max_rows
        params.n_ubatch = self.max_rows
        params.n_seq_max = self.max_sequences
        params.n_outputs_max = self._max_wanted
        params.n_threads = threads
        params.n_threads_batch = threads
        params.kv_unified = True
        if self.mixed_cache:
            params.type_k = _GGML_TYPE_F16
            params.type_v = _GGML_TYPE_BF16
        if self.quantized_cache:
            params.type_k = params.type_v = _GGML_TYPE_Q8_0
        params.swa_full = True  # a windowed cache could not be rewound
        params.no_perf = True
        params.abort_callback = self._abort.callback
        params.abort_callback_data = self._abort.data
        library.forget_complaints()
        handle = llama_cpp.llama_init_from_model(model.handle, params)
        if not handle:
            reason = library.last_complaint() or "llama.cpp gave no reason"
            raise ModelLoadError(
                f"No context of {params.n_ctx} tokens for {model.path.name}: {reason}. "
                "Try a smaller --ctx."
            )
        return handle

    def decode(self, rows: Sequence[Row]) -> Logits:
        """See `TokenModel.decode`."""
        if not rows or len(rows) > self.max_rows:
            raise ValueError(f"a pass takes 1 to {self.max_rows} rows, not {len(rows)}")
        handle = self.handle
        self._check_continuity(rows)
        wanted = self._batch.fill(rows)
        if wanted > self._max_wanted:
            # llama.cpp would abort the process.
            raise ValueError(f"a pass gives logits of {self._max_wanted} rows, not {wanted}")
        library.forget_complaints()
        code = llama_cpp.llama_decode(handle, self._batch.struct)
        if code == _DECODE_ABORTED:
            raise DecodeAbortedError("The pass was interrupted.")
        if code != 0:
            if code == _DECODE_NO_ROOM:
                raise NoRoomError("The context has no free cells left; load with a larger --ctx.")
            reason = library.last_complaint() or f"llama_decode returned {code}"
            raise BackendError(f"llama.cpp failed: {reason}. See the log file; restart edgespec.")
        llama_cpp.llama_synchronize(handle)
        return self._logits(handle, wanted)

    def _check_continuity(self, rows: Sequence[Row]) -> None:
        """llama.cpp takes repeated positions, and lets an empty sequence begin anywhere."""
        nexts: dict[int, int] = {}
        for sequence, position, _, _ in rows:
            held = nexts.get(sequence)
            if held is None:
                held = self.length(sequence)
            if position != held:
                raise BackendError(
                    f"Sequence {sequence} holds {held} tokens: a row for position {position} does "
                    "not continue it. This is a bug in edgespec; please report it."
                )
            nexts[sequence] = held + 1

    def _logits(self, handle: Any, count: int) -> Logits:
        if count == 0:
            return np.empty((0, self.n_vocab), np.float32)
        pointer = llama_cpp.llama_get_logits(handle)
        address = ctypes.addressof(pointer.contents)
        view = self._views.get((address, count))
        if view is None:
            # Making a view costs more than all else here; the address changes only when
            # llama.cpp enlarges its output buffer.
            shape = (count, self.n_vocab)
            view = self._views[address, count] = np.ctypeslib.as_array(pointer, shape)
        return view

    def rewind(self, sequence: int, length: int) -> None:
        """See `TokenModel.rewind`."""
        held = self.length(sequence)
        self._check_prefix(sequence, length, held)
        if length == held > 0:
            return
        if length and held - length > self.rewind_depth:
            raise CannotRewindError("A recurrent model cannot drop its last tokens.")
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise CannotRewindError(f"llama.cpp cannot cut sequence {sequence} to {length} tokens.")

    def _check_prefix(self, sequence: int, length: int, held: int) -> None:
        """Whether memory still has all that the first `length` tokens need."""
        if not 0 <= length <= held:
            raise CannotRewindError(
                f"Sequence {sequence} holds {held} tokens and cannot be cut to {length}."
            )
        if not self._window or length in (0, held):
            return
        # Even a full-size window cache gives away cells behind the window when it looks for room.
        first = int(llama_cpp.llama_memory_seq_pos_min(self._memory, sequence))
        if first > max(0, length - self._window + 1):
            raise CannotRewindError(
                f"Sequence {sequence} cannot be cut to {length} tokens: its sliding window of "
                f"{self._window} tokens has moved on."
            )

    def length(self, sequence: int) -> int:
        """How many tokens the sequence holds."""
        if not 0 <= sequence < self.max_sequences:
            raise ValueError(f"there is no sequence {sequence}, only {self.max_sequences}")
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `TokenModel.copy_prefix`."""
        held = self.length(source)
        if source == destination:
            self.rewind(source, length)
            return
        self._check_prefix(source, length, held)
        if 0 < length < held and self.rewind_depth == 0:
            raise CannotRewindError("A recurrent model's state can only be copied whole.")
        self.drop(destination)
        if not length:
            return
        llama_cpp.llama_memory_seq_cp(self._memory, source, destination, 0, length)

    def save(self, sequence: int, tokens: Sequence[int], path: Path) -> None:
        """Write the sequence, which holds these tokens, to a file. Raises BackendError."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        name = os.fsencode(path)
        written = llama_cpp.llama_state_seq_save_file(
            self.handle, name, sequence, array, len(tokens)
        )
        if not written:
            raise BackendError(f"{path.name} could not be written: is the disk full?")

    def restore(self, sequence: int, path: Path) -> list[int]:
        """Read an empty sequence from a file that `save` wrote; returns its tokens.

        Raises BackendError when it does not fit; the sequence is empty then. The file must be
        trusted: llama.cpp checks little.
        """
        array = (llama_cpp.llama_token * self.n_ctx)()
        count = ctypes.c_size_t()
        library.forget_complaints()
        read = llama_cpp.llama_state_seq_load_file(
            self.handle, os.fsencode(path), sequence, array, self.n_ctx, ctypes.byref(count)
        )
        tokens = list(array[: count.value])
        if not read or self.length(sequence) != len(tokens):
            self.drop(sequence)
            reason = library.last_complaint() or "it is of another memory"
            raise BackendError(f"{path.name} could not be read: {reason}")
        return tokens

    def drop(self, sequence: int) -> None:
        """See `TokenModel.drop`."""
        self.length(sequence)  # -1 would mean all of them
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def abort(self) -> None:
        """Make the running pass, or the next, raise DecodeAbortedError. From any thread.

        Works on the CPU and Metal; elsewhere the pass ends by itself. `allow` undoes it.
        """
        self._abort.set()

    def allow(self) -> None:
        """Let passes run again after `abort`."""
        self._abort.clear()

    def close(self) -> None:
        """Free the memory. Idempotent; must come before the model's close."""
        if self._handle is not None:
            llama_cpp.llama_free(self._handle)
            self._handle = self._memory_handle = None
            self._views.clear()


class _AbortFlag:
    """An abort callback that runs without Python.

    llama.cpp asks after every node of its graph. A Python callback would need the GIL a
    thousand times a pass; C's strlen on a buffer answers 0 until a character is put in it.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL("msvcrt") if hasattr(ctypes, "WinDLL") else ctypes.CDLL(None)
        self._buffer = ctypes.create_string_buffer(2)
        self._strlen = libc.strlen
        self.callback = ctypes.cast(self._strlen, llama_cpp.ggml_abort_callback)
        self.data = ctypes.cast(self._buffer, ctypes.c_void_p)

    def set(self) -> None:
        self._buffer[0] = b"x"

    def clear(self) -> None:
        self._buffer[0] = b"\0"


class _Batch:
    """A llama_batch over memory of its own."""

    def __init__(self, capacity: int) -> None:
        self._tokens = (llama_cpp.llama_token * capacity)()
        self._positions = (llama_cpp.llama_pos * capacity)()
        self._sequences = (llama_cpp.llama_seq_id * capacity)()
        self._wanted: ctypes.Array[Any] = (ctypes.c_int8 * capacity)()
        self._counts = (ctypes.c_int32 * capacity)(*[1] * capacity)
        first, size = ctypes.addressof(self._sequences), ctypes.sizeof(llama_cpp.llama_seq_id)
        self._pointers = (ctypes.c_void_p * capacity)(*[first + i * size for i in range(capacity)])
        self.struct = llama_cpp.llama_batch()
        for field, array in (
            ("token", self._tokens),
            ("pos", self._positions),
            ("n_seq_id", self._counts),
            ("seq_id", self._pointers),
            ("logits", self._wanted),
        ):
            setattr(self.struct, field, ctypes.cast(array, type(getattr(self.struct, field))))

    def fill(self, rows: Sequence[Row]) -> int:
        """Put `rows` in; returns how many of them want logits."""
        count = len(rows)
        # A decoding pass has few rows: numpy would cost more for one than this for ten.
        wanted = [int(row.want_logits) for row in rows]
        self._sequences[:count] = [row.sequence for row in rows]
        self._positions[:count] = [row.position for row in rows]
        self._tokens[:count] = [row.token for row in rows]
        self._wanted[:count] = wanted
        self.struct.n_tokens = count
        return sum(wanted)
