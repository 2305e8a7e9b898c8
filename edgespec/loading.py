"""The composition root: names or paths in, a running Engine out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from edgespec.catalog import measurements
from edgespec.catalog.hardware import physical_cores
from edgespec.catalog.resolve import Fetch, resolve_model, resolve_pair
from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import PREFILL_CHUNK, Scheduler
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine, EngineInfo
from edgespec.errors import OptionError, TemplateError
from edgespec.llama import library
from edgespec.llama.context import MAX_WIDTH, Context
from edgespec.llama.exact import Exact, Numerics, choose_numerics
from edgespec.llama.model import Model
from edgespec.llama.native import NativeLoop
from edgespec.llama.vocabulary import check_compatible
from edgespec.llama.widths import PROMPT_PIECE, WidthProbe, probe_widths
from edgespec.protocols import Drafter
from edgespec.text.template import ChatTemplate, require_template

DrafterName = Literal["auto", "model", "n-gram", "none"]
Report = Callable[[str, float], None]
"""Called with what is being done and how much of it is (0..1)."""

DEFAULT_CONTEXT = 4096
DEFAULT_DRAFT_TOKENS = 3
# At a fixed k, shorter matches cost more time than they save on a CPU.
_NGRAM_MATCH = 6
_PLAIN_WIDTHS = frozenset({1})
# llama.cpp takes 32-bit sizes and at most so many sequences, and dies of too many threads.
_AT_MOST = {"n_ctx": 2**31 - 1, "threads": 512, "max_sequences": 256}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a pair; None and "auto" leave the choice to edgespec.

    num_draft_tokens: k; 0 for plain decoding, for which a draft model is not loaded.
    n_ctx: tokens a sequence can hold. threads: default physical cores. gpu_layers: default all
    that fit on a GPU there is.
    exact: "on" uses only pass widths measured to be bit-identical to plain decoding, "auto"
    does so where it costs nothing. max_sequences: answers generated at the same time.
    """

    num_draft_tokens: int | Literal["auto"] = "auto"
    drafter: DrafterName = "auto"
    n_ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    exact: Exact = "auto"
    max_sequences: int = 1

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
        if self.exact not in ("auto", "on", "off"):
            raise OptionError(f"exact must be auto, on or off, not {self.exact!r}.")
        for name, most in _AT_MOST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and 1 <= value <= most):
                raise OptionError(f"{name} must be between 1 and {most}, not {value!r}.")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPair:
    """A running Engine and what lies under it, for those who measure.

    Only work run by `engine.exclusively` may use the contexts; closing the engine closes all.
    """

    engine: Engine
    target: Model
    draft: Model | None
    target_context: Context
    draft_context: Context | None
    options: LoadOptions
    system_info: str  # llama.cpp's, of the kernels in use


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
    target, draft: a path to a GGUF, or a name of models.toml. fetch: called with a model that
    is not on this machine; without it such a model is an error. options: see LoadOptions.
    Raises OptionError, CatalogError, ModelLoadError, IncompatibleDraftError, BackendError.
    """
    known = LoadOptions.__dataclass_fields__
    wrong = [name for name in options if name not in known]
    if wrong:
        raise OptionError(f"There is no option {', '.join(wrong)}: known are {', '.join(known)}.")
    chosen = LoadOptions(**options)
    if draft and chosen.drafter in ("n-gram", "none"):
        raise OptionError(f"The draft model {draft} is of no use with --drafter {chosen.drafter}.")
    if target is None:
        target_path, draft_path = resolve_pair(pair or "default", fetch)
    elif pair is not None:
        raise OptionError("Give either a pair or a target, not both.")
    else:
        target_path, draft_path = resolve_model(target, fetch), None
    if draft:
        draft_path = resolve_model(draft, fetch)
    with contextlib.ExitStack() as stack:
        loaded = _Loader(chosen, report or (lambda what, done: None), stack).load(
            target_path, draft_path
        )
        stack.pop_all()
    return loaded


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


class _Loader:
    """One loading. What it opens is on `stack`, in the order in which it must be freed."""

    def __init__(self, options: LoadOptions, report: Report, stack: contextlib.ExitStack) -> None:
        self.options = options
        self.report = report
        self.stack = stack
        self.threads = options.threads or physical_cores()
        self.notes: list[str] = []

    def load(self, target_path: Path, draft_path: Path | None) -> LoadedPair:
        numerics = choose_numerics(
            self.options.exact,
            lambda repack, mixed: self._probe(target_path, repack, mixed),
            may_mix=self._on_cpu,
        )
        target = self._model(target_path, numerics.repack)
        n_ctx = self._context_size(target)
        name = self._drafter(draft_path)
        drafters: dict[str, Drafter] = {}
        context = self._context(target, n_ctx, numerics.mixed_cache)
        if context.rewind_depth == 0 and name:
            self.notes.append(f"{target_path.name} keeps a recurrent state: it runs plain.")
            name = ""
        draft, draft_context = None, None
        if name == "model" and draft_path:
            draft, draft_context = self._draft_model(
                draft_path, target, n_ctx, numerics.mixed_cache
            )
            drafters[name] = ModelDrafter(draft_context, target.vocabulary.size)
        if name and self.options.drafter != "model":
            drafters["n-gram"] = NgramDrafter(min_match=_NGRAM_MATCH)
        k = self._draft_tokens(name)
        widths = numerics.widths
        scheduler = Scheduler(context, drafters, Fixed(k, name, widths), time.perf_counter)
        freeing = contextlib.ExitStack()
        engine = Engine(
            model=context,
            tokenizer=target.vocabulary,
            scheduler=scheduler,
            template=_template(target),
            info=self._info(target, draft, name, tuple(drafters), k, n_ctx, numerics),
            close=freeing.close,
        )
        freeing.enter_context(self.stack.pop_all())
        return LoadedPair(
            engine=engine,
            target=target,
            draft=draft,
            target_context=context,
            draft_context=draft_context,
            options=self.options,
            system_info=library.system_info(),
        )

    def _model(self, path: Path, repack: bool) -> Model:
        model = Model(
            path,
            gpu_layers=self.options.gpu_layers,
            repack=repack,
            progress=lambda done: self.report(f"loading {path.name}", done),
        )
        self.stack.callback(model.close)
        return model

    def _context(self, model: Model, n_ctx: int, mixed_cache: bool) -> Context:
        context = Context(
            model,
            n_ctx=n_ctx,
            max_sequences=self.options.max_sequences,
            threads=self.threads,
            # All drafts and a piece of a prompt share one pass, however many sequences run.
            max_rows=max(512, PREFILL_CHUNK + self.options.max_sequences * MAX_WIDTH),
            mixed_cache=mixed_cache,
        )
        self.stack.callback(context.close)
        return context

    def _context_size(self, target: Model) -> int:
        trained = target.n_ctx_train
        wanted = self.options.n_ctx or min(DEFAULT_CONTEXT, trained)
        if wanted > trained:
            self.notes.append(
                f"A context of {wanted} tokens is beyond the {trained} the model was trained "
                "for: late text may be poor."
            )
        return wanted

    def _drafter(self, draft_path: Path | None) -> str:
        wanted = self.options.drafter
        if wanted == "model" and draft_path is None:
            raise OptionError("The drafter is to be a model, but there is none: add --draft PATH.")
        if self.options.num_draft_tokens == 0 or wanted == "none":
            return ""
        if wanted == "auto":
            return "model" if draft_path else "n-gram"
        return wanted

    def _draft_tokens(self, drafter: str) -> int:
        if not drafter:
            return 0
        k = self.options.num_draft_tokens
        return DEFAULT_DRAFT_TOKENS if k == "auto" else k

    def _draft_model(
        self, path: Path, target: Model, n_ctx: int, mixed_cache: bool
    ) -> tuple[Model, Context]:
        model = self._model(path, repack=True)
        check_compatible(target.vocabulary, model.vocabulary)
        context = self._context(model, min(n_ctx, max(model.n_ctx_train, 1)), mixed_cache)
        if context.rewind_depth == 0:
            self.notes.append(
                f"{path.name} keeps a recurrent state: after every rejected draft it reads the "
                "whole text again, which is slow."
            )
        if context.n_ctx < n_ctx:
            self.notes.append(f"{path.name} drafts only in the first {context.n_ctx} tokens.")
        return model, context

    @property
    def _on_cpu(self) -> bool:
        """The attention of GPUs takes no cache of two types, or is slow on it."""
        return self.options.gpu_layers == 0 or not library.supports_gpu()

    def _probe(self, path: Path, repack: bool, mixed: bool) -> WidthProbe:
        repack = repack and library.repacking_is_safe()
        key = {
            "measured": "pass widths at two depths",
            "file": measurements.fingerprint(path) if path.is_file() else str(path),
            "repack": repack,
            "mixed cache": mixed,
            "threads": self.threads,
            "gpu_layers": self.options.gpu_layers,
            "llama.cpp": library.version(),
            "machine": library.system_info(),
            "devices": [device.description for device in library.devices()],
        }
        kept = _probe_from(measurements.recall(key))
        if kept is not None:
            return kept
        self.report(f"measuring {path.name}", 0.0)
        model = Model(path, gpu_layers=self.options.gpu_layers, repack=repack)
        try:
            context = Context(model, n_ctx=512, threads=self.threads, mixed_cache=mixed)
            try:
                probe = probe_widths(context, model.vocabulary)
            finally:
                context.close()
        finally:
            model.close()
        self.report(f"measuring {path.name}", 1.0)
        measurements.keep(key, asdict(probe))
        return probe

    def _info(
        self,
        target: Model,
        draft: Model | None,
        drafter: str,
        drafters: tuple[str, ...],
        k: int,
        n_ctx: int,
        numerics: Numerics,
    ) -> EngineInfo:
        if not library.repacking_is_safe():
            self.notes.append(
                "The AMX kernels of this llama.cpp are not used: some compilers break them."
            )
        if numerics.widths == _PLAIN_WIDTHS and k:
            self.notes.append(
                "No draft can be verified bit for bit on this machine with this target: "
                "--exact on means plain decoding here."
            )
        return EngineInfo(
            target=target.path.name,
            draft=draft.path.name if draft else "",
            drafter=drafter,
            drafters=drafters,
            num_draft_tokens=k,
            n_ctx=n_ctx,
            threads=self.threads,
            devices=tuple(device.description for device in library.devices()),
            exact_widths=numerics.widths,
            kv_cache="F16/BF16" if numerics.mixed_cache else "F16/F16",
            notes=tuple(self.notes),
        )


def _probe_from(kept: dict[str, Any] | None) -> WidthProbe | None:
    """None when nothing was kept, or nothing usable."""
    if kept is None:
        return None
    try:
        differences, seconds = (
            {int(width): float(value) for width, value in kept[name].items()}
            for name in ("differences", "seconds")
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return WidthProbe(differences, seconds) if {1, PROMPT_PIECE} <= seconds.keys() else None


def _template(model: Model) -> ChatTemplate | TemplateError:
    """A broken or missing template only matters to those who chat."""
    vocabulary = model.vocabulary
    try:
        source = require_template(model.chat_template, model.path.name)
        return ChatTemplate(
            source,
            bos=vocabulary.name(vocabulary.bos) if vocabulary.bos >= 0 else "",
            eos=vocabulary.name(vocabulary.eos) if vocabulary.eos >= 0 else "",
        )
    except TemplateError as error:
        return error
