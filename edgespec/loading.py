"""The composition root: names or paths in, a running Engine out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgespec.assembly import Assembly, LoadedPair
from edgespec.catalog.pairing import find_draft
from edgespec.catalog.resolve import Fetch, resolve_model, resolve_pair
from edgespec.engine import Engine
from edgespec.errors import EngineClosedError, OptionError
from edgespec.llama import library
from edgespec.llama.embedding import Embedder, pooling
from edgespec.llama.native import NativeLoop
from edgespec.load_options import DEFAULT_CONTEXT, LoadOptions
from edgespec.measuring import Report

AUTO, NONE = "auto", "none"
"""Not names of draft models, but which of them to take."""

__all__ = [
    "AUTO",
    "DEFAULT_CONTEXT",
    "NONE",
    "LoadOptions",
    "LoadedPair",
    "embedder",
    "load",
    "load_pair",
    "native_loop",
]


def load(
    pair: str | None = None,
    *,
    target: str | Path | None = None,
    draft: str | Path | None = None,
    fetch: Fetch | None = None,
    report: Report | None = None,
    **options: Any,
) -> Engine:
    """Load a pair of models.toml, or a target with or without a draft, and start an Engine.

    Arguments and errors as of `load_pair`.
    """
    return load_pair(pair, target=target, draft=draft, fetch=fetch, report=report, **options).engine


def load_pair(
    pair: str | None = None,
    *,
    target: str | Path | None = None,
    draft: str | Path | None = None,
    fetch: Fetch | None = None,
    report: Report | None = None,
    **options: Any,
) -> LoadedPair:
    """What `load` does, with the parts left visible.

    pair: a pair's or model's name; the pair "default" when neither it nor target is given.
    target, draft: a path to a GGUF, or a name of models.toml; draft "auto" is the best for this
    target that lies on this machine, "none" is none, not even the pair's. fetch: called with a
    model that is not on this machine; without it such a model is an error. options: see
    LoadOptions.
    Raises OptionError, CatalogError, ModelLoadError, IncompatibleDraftError, BackendError.
    """
    known = LoadOptions.__dataclass_fields__
    wrong = [name for name in options if name not in known]
    if wrong:
        raise OptionError(f"There is no option {', '.join(wrong)}: known are {', '.join(known)}.")
    chosen = LoadOptions(**options)
    named = None if draft in (AUTO, NONE) else draft
    if named and chosen.drafter in ("n-gram", "none"):
        raise OptionError(f"The draft model {named} is of no use with --drafter {chosen.drafter}.")
    if target is None:
        target_path, draft_path = resolve_pair(pair or "default", fetch)
    elif pair is not None:
        raise OptionError("Give either a pair or a target, not both.")
    else:
        target_path, draft_path = resolve_model(target, fetch), None
    if named:
        draft_path = resolve_model(named, fetch)
    elif draft == NONE:
        draft_path = None
    with contextlib.ExitStack() as stack:
        assembly = Assembly(chosen, report or (lambda what, done: None), stack)
        if draft == AUTO and draft_path is None and _may_draft(chosen):
            assembly.report("looking for a draft model", 0.0)
            draft_path, why = find_draft(target_path, gpu=library.supports_gpu())
            assembly.why_this_draft = why
            assembly.report("looking for a draft model", 1.0)
        loaded = assembly.load(target_path, draft_path)
        stack.pop_all()
    return loaded


def _may_draft(options: LoadOptions) -> bool:
    return options.num_draft_tokens != 0 and options.drafter in ("auto", "model")


@contextlib.contextmanager
def native_loop(pair: LoadedPair) -> Iterator[NativeLoop]:
    """llama.cpp's own loop on the target of a pair; to be used by `engine.exclusively` only."""
    info = pair.engine.info
    native = NativeLoop(
        pair.target, n_ctx=info.n_ctx, threads=info.threads, clock=time.perf_counter
    )
    try:
        yield native
    finally:
        native.stop()
        pair.engine.exclusively(native.close)


@contextlib.contextmanager
def embedder(pair: LoadedPair) -> Iterator[Embedder | str]:
    """What makes embeddings with the target of a pair, or why nothing does.

    To be used by `engine.between` only.
    """
    if not pooling(pair.target):
        yield f"{pair.target.path.name} does not say how it makes embeddings; load another model."
        return
    info = pair.engine.info
    found = Embedder(pair.target, n_ctx=info.n_ctx, threads=info.threads)
    try:
        yield found
    finally:
        with contextlib.suppress(EngineClosedError):
            pair.engine.between(found.close).result()
