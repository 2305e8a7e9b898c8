"""The tokenizer described in a GGUF file, as far as fitting together goes. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgespec.catalog.gguf_header import Header, read_header
from edgespec.errors import CatalogError

_TOKENS = "tokenizer.ggml.tokens"
# llama.cpp: llama_vocab::impl::load. Kind, and ids of BOS and EOS where the file does not say.
_KINDS = {
    "none": ("none", -1, -1),
    "no_vocab": ("none", -1, -1),
    "llama": ("SPM", 1, 2),
    "gpt2": ("BPE", 11, 11),
    "bert": ("WPM", 101, -1),
    "t5": ("UGM", -1, 1),
    "rwkv": ("RWKV", -1, -1),
    "plamo2": ("PLaMo-2", 1, 2),
}
_PRE_WITH_BOS = {
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    "tekken",
}


class FileVocabulary:
    """A `compatibility.Vocabulary`. Raises CatalogError for a file without a tokenizer."""

    def __init__(self, header: Header) -> None:
        tokens = header.metadata.get(_TOKENS)
        if not isinstance(tokens, list) or not all(isinstance(one, bytes) for one in tokens):
            raise CatalogError(
                f"{header.path} has no tokenizer, so texts mean nothing to it: take another file."
            )
        self._tokens: list[bytes] = tokens
        self.size = len(tokens)
        model, pre = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
        self.type, bos, eos = _KINDS.get(model, (model or "unknown", -1, -1))
        self.bos = _id(header, "bos", bos)
        self.eos = _id(header, "eos", eos)
        usual = self.type in ("SPM", "WPM") or pre in _PRE_WITH_BOS
        self.adds_bos = bool(header.metadata.get("tokenizer.ggml.add_bos_token", usual))
        self.adds_eos = bool(header.metadata.get("tokenizer.ggml.add_eos_token", False))

    def name(self, token: int) -> str:
        """The text of a token, as the file has it."""
        if 0 <= token < self.size:
            return self._tokens[token].decode("utf-8", errors="replace")
        return f"token {token}"

    def texts(self, start: int, stop: int) -> Sequence[bytes]:
        """The texts of the tokens start..stop-1."""
        return self._tokens[start:stop]


def read_vocabulary(path: Path) -> FileVocabulary:
    """Raises DamagedFileError, and CatalogError for a file that cannot be read or has none."""
    return FileVocabulary(read_header(path, _TOKENS))


def _id(header: Header, name: str, usual: int) -> int:
    value = header.metadata.get(f"tokenizer.ggml.{name}_token_id", usual)
    return value if isinstance(value, int) else usual
