"""How a pair can be loaded, and whether that makes sense."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgespec.catalog.fitting import KV_TYPES, KvType
from edgespec.errors import OptionError
from edgespec.llama.context import MAX_WIDTH
from edgespec.llama.exact import Exact
from edgespec.policies import DraftTokens

DrafterName = Literal["auto", "model", "n-gram", "none"]

DEFAULT_CONTEXT = 4096
# llama.cpp takes 32-bit sizes and at most so many sequences, and dies of too many threads.
_AT_MOST = {"n_ctx": 2**31 - 1, "threads": 512, "max_sequences": 256}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a pair; None and "auto" leave the choice to edgespec.

    num_draft_tokens: k; 0 for plain decoding, for which a draft model is not loaded; "auto"
    for what pays at every step, by measurement. drafter: "model" also keeps a draft model that
    does not pay.
    n_ctx: tokens that memory holds, all sequences together; usual_ctx: where that is left to
    edgespec, no more than these. threads: default physical cores.
    gpu_layers: default all that fit on a GPU there is. kv_type: of the KV cache; "auto" takes
    f16, and q8_0 where the context would not fit otherwise. force: load even what will not fit
    into memory.
    exact: "on" uses only pass widths measured to be bit-identical to plain decoding, "auto"
    does so where it costs nothing. max_sequences: answers generated at the same time.
    prompt_cache: a directory that keeps long prompts over restarts.
    remember: use what earlier runs learned of the pair, and keep what is learned; without it a
    draft model is kept even if it does not pay.
    """

    num_draft_tokens: DraftTokens = "auto"
    drafter: DrafterName = "auto"
    n_ctx: int | None = None
    usual_ctx: int = DEFAULT_CONTEXT
    threads: int | None = None
    gpu_layers: int | None = None
    exact: Exact = "auto"
    max_sequences: int = 1
    kv_type: KvType = "auto"
    force: bool = False
    remember: bool = True
    prompt_cache: Path | None = None

    def __post_init__(self) -> None:
        k = self.num_draft_tokens
        if k != "auto" and not (isinstance(k, int) and 0 <= k < MAX_WIDTH):
            raise OptionError(f"-k must be auto or between 0 and {MAX_WIDTH - 1}, not {k}.")
        if self.drafter not in ("auto", "model", "n-gram", "none"):
            raise OptionError(
                f"There is no drafter {self.drafter!r}: choose auto, model, n-gram or none."
            )
        if self.drafter == "none" and k not in ("auto", 0):
            raise OptionError(f"-k {k} needs someone to draft: leave --drafter none out.")
        if self.kv_type not in KV_TYPES:
            known = ", ".join(KV_TYPES)
            raise OptionError(f"kv_type must be one of {known}, not {self.kv_type!r}.")
        if self.exact not in ("auto", "on", "off"):
            raise OptionError(f"exact must be auto, on or off, not {self.exact!r}.")
        for name, most in _AT_MOST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and 1 <= value <= most):
                raise OptionError(f"{name} must be between 1 and {most}, not {value!r}.")
