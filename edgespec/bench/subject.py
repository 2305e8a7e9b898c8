"""What is benchmarked: a loaded pair, its parts for measuring, and facts about it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgespec.bench.records import ModelFile
from edgespec.engine import Engine
from edgespec.loading import LoadedPair, native_loop
from edgespec.protocols import Tokenizer, TokenModel

_PIECE = 2**20


class NativeAnswer(Protocol):
    """See `llama.native.NativeAnswer`."""

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def cached(self) -> int: ...
    @property
    def first_s(self) -> float: ...
    @property
    def total_s(self) -> float: ...


class Native(Protocol):
    """llama.cpp's own loop; see `llama.native.NativeLoop`."""

    def generate(self, prompt: Sequence[int], max_tokens: int) -> NativeAnswer: ...

    def forget(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Models may only be touched inside `engine.exclusively`."""

    engine: Engine
    tokenizer: Tokenizer
    target: TokenModel
    draft: TokenModel | None
    native: Native
    target_file: ModelFile
    draft_file: ModelFile | None
    repacked: bool
    gpu_layers: int | None
    exact: str
    system_info: str  # llama.cpp's, of the kernels in use


@contextmanager
def subject_of(pair: LoadedPair) -> Iterator[Subject]:
    """The subject a loaded pair makes; while it is in use, the engine must not be closed."""
    with native_loop(pair) as native:
        yield _subject(pair, native)


def _subject(pair: LoadedPair, native: Native) -> Subject:
    return Subject(
        engine=pair.engine,
        tokenizer=pair.target.vocabulary,
        target=pair.target_context,
        draft=pair.draft_context,
        native=native,
        target_file=_model_file(pair.target),
        draft_file=_model_file(pair.draft) if pair.draft else None,
        repacked=pair.target.repack,
        gpu_layers=pair.options.gpu_layers,
        exact=pair.options.exact,
        system_info=pair.system_info,
    )


class _Model(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def description(self) -> str: ...
    @property
    def n_params(self) -> int: ...
    @property
    def n_ctx_train(self) -> int: ...
    @property
    def vocabulary(self) -> Tokenizer: ...


def _model_file(model: _Model) -> ModelFile:
    return ModelFile(
        # A record is UTF-8; file names need not be.
        name=os.fsencode(model.path.name).decode("utf-8", errors="replace"),
        size_bytes=model.path.stat().st_size,
        sha256=_fingerprint(model.path),
        description=model.description,
        parameters=model.n_params,
        n_ctx_train=model.n_ctx_train,
        vocabulary=model.vocabulary.size,
    )


def _fingerprint(path: Path) -> str:
    """Reading all of a large file would take longer than benchmarking it."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_PIECE))
        file.seek(max(0, size - _PIECE))
        digest.update(file.read(_PIECE))
    return digest.hexdigest()
