"""The tokenizer inside a model, and whether two of them are the same."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import llama_cpp
import numpy as np

from edgespec.compatibility import mismatch
from edgespec.errors import BackendError, IncompatibleDraftError

# llama.h: enum llama_vocab_type
_TYPES = {0: "none", 1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLaMo-2"}


class Vocabulary:
    """Token ids and their text. Raises BackendError once the model it comes from is closed."""

    def __init__(self, handle: Any) -> None:
        self._pointer = handle
        self.size = int(llama_cpp.llama_vocab_n_tokens(handle))
        kind = int(llama_cpp.llama_vocab_type(handle))
        self.type = _TYPES.get(kind, str(kind))
        self.bos = int(llama_cpp.llama_vocab_bos(handle))
        self.eos = int(llama_cpp.llama_vocab_eos(handle))
        self.adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(handle))
        self.adds_eos = bool(llama_cpp.llama_vocab_get_add_eos(handle))
        self._ends: dict[int, bool] = {}
        self._pieces: dict[int, bytes] = {}

    @cached_property
    def longest_piece(self) -> int:
        """Bytes of the longest token as it is written in the vocabulary, which is not shorter
        than what it stands for."""
        return max(map(len, self.texts(0, self.size)), default=1)

    def close(self) -> None:
        """The model is about to be freed, and the vocabulary with it."""
        self._pointer = None

    @property
    def _handle(self) -> Any:
        if self._pointer is None:
            raise BackendError("The tokenizer was used after its model was closed.")
        return self._pointer

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`.

        add_special: add BOS/EOS as the model asks. parse_special: read control tokens such as
        <|im_end|> in the text as such; never for text a user typed.
        """
        data = text.encode("utf-8", errors="replace")
        size = len(data) + 8
        tokens = np.empty(size, np.int32)
        count = self._tokenize(data, tokens, add_special, parse_special)
        if count < 0:
            tokens = np.empty(-count, np.int32)
            count = self._tokenize(data, tokens, add_special, parse_special)
        if count < 0:
            raise BackendError(f"The text of {len(data)} bytes could not be tokenized.")
        return [int(token) for token in tokens[:count]]

    def _tokenize(self, data: bytes, tokens: Any, special: bool, parse: bool) -> int:
        pointer = tokens.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token))
        return int(
            llama_cpp.llama_tokenize(
                self._handle, data, len(data), pointer, len(tokens), special, parse
            )
        )

    def piece(self, token: int) -> bytes:
        """The bytes `token` adds to a text; b"" for control tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._piece(token, special=False)
        return piece

    def name(self, token: int) -> str:
        """How the token is written in the vocabulary, control tokens included."""
        if not 0 <= token < self.size:
            return f"<{token}>"
        text: bytes = llama_cpp.llama_vocab_get_text(self._handle, token)
        return text.decode("utf-8", errors="replace")

    def _piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = llama_cpp.llama_token_to_piece(self._handle, token, buffer, size, 0, special)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def ends_generation(self, token: int) -> bool:
        """Whether the model says with `token` that it is done."""
        ends = self._ends.get(token)
        if ends is None:
            ends = bool(llama_cpp.llama_vocab_is_eog(self._handle, token))
            self._ends[token] = ends
        return ends

    def texts(self, start: int, stop: int) -> list[bytes]:
        """How the tokens start..stop-1 are written in the vocabulary."""
        get = llama_cpp.llama_vocab_get_text
        return [get(self._handle, token) for token in range(start, stop)]


def check_compatible(target: Vocabulary, draft: Vocabulary) -> None:
    """Raise IncompatibleDraftError, naming the first mismatch, unless ids mean the same in both."""
    reason = mismatch(target, draft)
    if reason:
        raise IncompatibleDraftError(
            f"The draft model does not fit the target: {reason}. "
            "Take a draft model of the same family, or leave --draft out."
        )
