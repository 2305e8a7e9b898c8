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
    "hybriddna": ("BPE", 11, 11),
    "whitespace": ("BPE", 11, 11),
    "gemma4": ("BPE", -1, -1),
    "bert": ("WPM", 101, -1),
    "t5": ("UGM", -1, 1),
    "rwkv": ("RWKV", -1, -1),
    "plamo2": ("PLaMo-2", 1, 2),
}
# How BPE texts are cut up ("pre") also decides about BOS: added unless the file says otherwise,
# added whatever it says, or not one that is known.
_PRE_WITH_BOS = {
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken", "chameleon"),
}
_PRE_ALWAYS_BOS = {"gemma4", "granite-embed-multi-311m"}
_PRE_WITHOUT_BOS = {"chatglm-bpe", "glm4", "glm5"}


class FileVocabulary:
    """A `compatibility.Vocabulary`. Raises CatalogError for a file without a tokenizer."""

    def __init__(self, header: Header) -> None:
        tokens = header.metadata.get(_TOKENS)
        if not isinstance(tokens, list) or not all(isinstance(one, bytes) for one in tokens):
            raise CatalogError(
                f"{header.path} has no tokenizer, so texts mean nothing to it: take another file."
            )
        if b"" in tokens:
            # llama.cpp's name for them, with which a loaded vocabulary comes.
            tokens = [one or b"[EMPTY_%d]" % at for at, one in enumerate(tokens)]
        self._tokens: list[bytes] = tokens
        self.size = len(tokens)
        model = header.text("tokenizer.ggml.model")
        self.type, bos, eos = _KINDS.get(model, (model or "unknown", -1, -1))
        pre = header.text("tokenizer.ggml.pre") if self.type == "BPE" else ""
        if model == "gemma4":
            pre = model
        self.bos = _id(header, "bos", -1 if pre in _PRE_WITHOUT_BOS else bos, self.size)
        self.eos = _id(header, "eos", eos, self.size)
        usual = self.type in ("SPM", "WPM") or pre in _PRE_WITH_BOS
        adds_bos = header.metadata.get("tokenizer.ggml.add_bos_token", usual)
        self.adds_bos = bool(adds_bos) or pre in _PRE_ALWAYS_BOS
        usual = self.type == "UGM"
        self.adds_eos = bool(header.metadata.get("tokenizer.ggml.add_eos_token", usual))

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


def _id(header: Header, name: str, usual: int, size: int) -> int:
    """The id of a special token. One that the vocabulary does not have counts as not given."""
    value = header.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if isinstance(value, int) and 0 <= value < size:
        return value
    return usual if usual < size else -1
