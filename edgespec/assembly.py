"""Opens the models of a pair, measures what has to be known of them, and puts an Engine on top."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgespec.catalog.fitting import Wish
from edgespec.catalog.hardware import physical_cores
from edgespec.decoding.calibration import DRAFT_WIDTHS, TARGET_WIDTHS, adjust
from edgespec.decoding.knowledge import Knowledge
from edgespec.decoding.scheduler import PREFILL_CHUNK, Scheduler
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.drafters.prediction import PredictionDrafter
from edgespec.engine import Engine, EngineInfo
from edgespec.errors import ModelLoadError, OptionError
from edgespec.llama import library
from edgespec.llama.context import MAX_WIDTH, Context
from edgespec.llama.exact import Numerics, choose_numerics
from edgespec.llama.model import Model
from edgespec.llama.vocabulary import check_compatible
from edgespec.load_options import DEFAULT_CONTEXT, LoadOptions
from edgespec.measuring import Measuring, Report
from edgespec.model_text import chat_template, fill_in
from edgespec.placing import Placement, place
from edgespec.policies import PREDICTION, Policies
from edgespec.prefixes import Prefixes
from edgespec.protocols import Drafter

_PLAIN_WIDTHS = frozenset({1})
# What the draft model reads of a long prompt should cost no more than so many plain tokens.
_READING = 1.2
_SHORTEST_WINDOW, _USUAL_WINDOW, _LONGEST_WINDOW = 32, 256, 1024


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
    knowledge: Knowledge | None  # None when k is a fixed number
    options: LoadOptions
    system_info: str  # llama.cpp's, of the kernels in use


class Assembly:
    """One loading. What it opens is on `stack`, in the order in which it must be freed."""

    def __init__(self, options: LoadOptions, report: Report, stack: contextlib.ExitStack) -> None:
        self.options = options
        self.report = report
        self.stack = stack
        self.threads = options.threads or physical_cores()
        self.placement = Placement(DEFAULT_CONTEXT, options.gpu_layers, draft=True)
        self.measuring = self._measuring()
        self.why_this_draft = ""  # told if it is in use at the end
        self.decisions: list[str] = []
        self.notes: list[str] = []

    def load(self, target_path: Path, draft_path: Path | None) -> LoadedPair:
        """Open everything. Raises what LoadedPair's makers are documented to raise."""
        draft_path = self._place(target_path, draft_path)
        numerics = choose_numerics(
            self.options.exact,
            lambda repack, mixed: self.measuring.widths(target_path, repack, mixed),
            may_mix=self._on_cpu and not self.placement.quantized_cache,
        )
        layers = self.placement.gpu_layers
        target = self._model(target_path, layers, numerics.repack, self.stack)
        context = self._context(
            target, self._context_size(target), numerics.mixed_cache, self.stack
        )
        wanted = self._wanted(draft_path, context, numerics)
        knowledge = None
        if wanted and self.options.num_draft_tokens == "auto":
            costs = self.measuring.costs(target, context, _usable(TARGET_WIDTHS, numerics.widths))
            knowledge = Knowledge(costs.live(), rebuild=costs.rebuild)
        drafters: dict[str, Drafter] = {}
        draft, draft_context = None, None
        if "model" in wanted and draft_path:
            draft, draft_context = self._draft_model(draft_path, target, context, knowledge)
            if draft is not None and draft_context is not None:
                drafters["model"] = ModelDrafter(
                    draft_context,
                    context.n_vocab,
                    window=self._window(knowledge),
                    longest=draft.n_ctx_train,
                )
                self.decisions += [self.why_this_draft] if self.why_this_draft else []
        if "n-gram" in wanted:
            drafters["n-gram"] = NgramDrafter()
        if drafters:
            drafters[PREDICTION] = PredictionDrafter()
        if knowledge is not None and self.options.remember:
            self.measuring.recall(knowledge, target, draft)
        policies = self._policies(drafters, knowledge, numerics)
        scheduler = Scheduler(context, drafters, policies.usual, time.perf_counter)
        prefixes = self._prefixes(target_path, context)
        if prefixes is not None:
            scheduler.slots.fill(prefixes.restore(context))
        freeing = contextlib.ExitStack()
        engine = Engine(
            model=context,
            tokenizer=target.vocabulary,
            scheduler=scheduler,
            template=chat_template(target),
            fim=fill_in(target),
            policies=policies,
            info=self._info(target, draft, _by_default(drafters), context, numerics),
            close=freeing.close,
        )
        # From here on everything is the engine's own.
        freeing.enter_context(self.stack.pop_all())
        if knowledge is not None and self.options.remember:
            freeing.callback(self.measuring.keep, knowledge, target, draft)
        if prefixes is not None:
            freeing.callback(lambda: prefixes.save(context, scheduler.slots.held))
        return LoadedPair(
            engine=engine,
            target=target,
            draft=draft,
            target_context=context,
            draft_context=draft_context,
            knowledge=knowledge,
            options=self.options,
            system_info=library.system_info(),
        )

    def _prefixes(self, target: Path, context: Context) -> Prefixes | None:
        directory = self.options.prompt_cache
        if directory is None or context.rewind_depth == 0:
            return None
        file = target.stat()
        parts = (target.resolve(), file.st_size, file.st_mtime_ns, context.kv_cache)
        return Prefixes(directory, " ".join(map(str, parts)) + library.version())

    def _policies(
        self, drafters: dict[str, Drafter], knowledge: Knowledge | None, numerics: Numerics
    ) -> Policies:
        return Policies(
            drafters=_by_default(drafters),
            drafter=self.options.drafter if self.options.drafter in drafters else "auto",
            k=self.options.num_draft_tokens if drafters else 0,
            knowledge=knowledge,
            widths=numerics.widths,
        )

    def _place(self, target_path: Path, draft_path: Path | None) -> Path | None:
        """Decide what goes where; returns the draft model's path if there is room for it."""
        options = self.options
        plain = options.num_draft_tokens == 0 or options.drafter in ("none", "n-gram")
        wish = Wish(
            n_ctx=options.n_ctx or options.usual_ctx,
            n_ctx_fixed=options.n_ctx is not None,
            rows=self._rows,
            gpu_layers=options.gpu_layers,
            kv_type=options.kv_type,
        )
        draft = None if plain else draft_path
        self.placement = place(target_path, draft, wish, force=options.force)
        self.decisions += self.placement.notes
        if draft is not None and not self.placement.draft:
            if options.drafter == "model":
                raise ModelLoadError(
                    f"{self.placement.notes[0]} Take a smaller one, or leave --drafter model out."
                )
            draft_path = None
        self.measuring = self._measuring()
        return draft_path

    def _measuring(self) -> Measuring:
        return Measuring(
            threads=self.threads,
            gpu_layers=self.placement.gpu_layers,
            quantized_cache=self.placement.quantized_cache,
            report=self.report,
        )

    @property
    def _rows(self) -> int:
        """All drafts and a piece of a prompt share one pass, however many sequences run."""
        return max(512, PREFILL_CHUNK + self.options.max_sequences * MAX_WIDTH)

    def _model(
        self, path: Path, gpu_layers: int | None, repack: bool, stack: contextlib.ExitStack
    ) -> Model:
        model = Model(
            path,
            gpu_layers=gpu_layers,
            repack=repack,
            progress=lambda done: self.report(f"loading {path.name}", done),
        )
        stack.callback(model.close)
        return model

    def _context(
        self, model: Model, n_ctx: int, mixed_cache: bool, stack: contextlib.ExitStack
    ) -> Context:
        context = Context(
            model,
            n_ctx=n_ctx,
            max_sequences=self.options.max_sequences,
            threads=self.threads,
            max_rows=self._rows,
            mixed_cache=mixed_cache,
            quantized_cache=self.placement.quantized_cache,
        )
        stack.callback(context.close)
        return context

    def _context_size(self, target: Model) -> int:
        trained = target.n_ctx_train
        wanted = self.options.n_ctx or min(self.placement.n_ctx, trained)
        if wanted > trained:
            self.decisions.append(
                f"A context of {wanted} tokens is beyond the {trained} the model was trained "
                "for: late text may be poor."
            )
        return wanted

    def _wanted(
        self, draft_path: Path | None, context: Context, numerics: Numerics
    ) -> tuple[str, ...]:
        """The drafters to load."""
        asked = self.options.drafter
        if asked == "model" and draft_path is None:
            raise OptionError("The drafter is to be a model, but there is none: add --draft PATH.")
        if self.options.num_draft_tokens == 0 or asked == "none":
            return ()
        if context.rewind_depth == 0:
            self.notes.append("The target keeps a recurrent state: it runs plain.")
            return ()
        if numerics.widths == _PLAIN_WIDTHS:
            where = self.decisions if draft_path else self.notes
            where.append(
                "No draft can be verified bit for bit on this machine with this target: "
                "--exact on means plain decoding here."
            )
            return ()
        if asked != "auto":
            return (asked,)
        return ("model", "n-gram") if draft_path else ("n-gram",)

    def _draft_model(
        self, path: Path, target: Model, beside: Context, knowledge: Knowledge | None
    ) -> tuple[Model | None, Context | None]:
        """The draft model, unless it is known not to pay here and nobody insists."""
        with contextlib.ExitStack() as stack:
            model = self._model(path, self.options.gpu_layers, True, stack)
            check_compatible(target.vocabulary, model.vocabulary)
            context = self._context(model, beside.n_ctx, beside.mixed_cache, stack)
            if knowledge is not None:
                costs = self.measuring.costs(model, context, DRAFT_WIDTHS).live()
                pair = ((beside, knowledge.target), (context, costs))
                adjust(pair, max(target.vocabulary.bos, 0), time.perf_counter)
                before = Knowledge(knowledge.target, costs)
                if self.options.remember:
                    self.measuring.recall(before, target, model)
                if self._is_useless(before):
                    self.decisions.append(_why_not_kept(path.name, before))
                    return None, None
                knowledge.set_draft(costs)
            if context.rewind_depth == 0:
                self.notes.append(
                    f"{path.name} keeps a recurrent state: after every rejected draft it reads "
                    "the whole text again, which is slow."
                )
            self.stack.enter_context(stack.pop_all())
        return model, context

    def _is_useless(self, knowledge: Knowledge) -> bool:
        insisted = self.options.drafter == "model" or not self.options.remember
        return not insisted and not knowledge.draft_may_pay

    def _window(self, knowledge: Knowledge | None) -> int:
        """How much of a long prompt the draft model reads."""
        if knowledge is None or knowledge.draft is None:
            return _USUAL_WINDOW
        token_s = knowledge.draft.at(32, 0) / 32
        window = int(_READING * knowledge.target.at(1, 0) / token_s)
        return min(max(window, _SHORTEST_WINDOW), _LONGEST_WINDOW)

    @property
    def _on_cpu(self) -> bool:
        """The attention of GPUs takes no cache of two types, or is slow on it."""
        return self.options.gpu_layers == 0 or not library.supports_gpu()

    def _preferred(self, drafters: tuple[str, ...]) -> str:
        if self.options.num_draft_tokens == "auto" and len(drafters) > 1:
            return "auto"
        return drafters[0] if drafters else ""

    def _info(
        self,
        target: Model,
        draft: Model | None,
        drafters: tuple[str, ...],
        context: Context,
        numerics: Numerics,
    ) -> EngineInfo:
        if not library.repacking_is_safe():
            self.notes.append(
                "The AMX kernels of this llama.cpp are not used: some compilers break them."
            )
        k = self.options.num_draft_tokens if drafters else 0
        return EngineInfo(
            target=target.path.name,
            draft=draft.path.name if draft else "",
            drafter=self._preferred(drafters),
            drafters=drafters,
            num_draft_tokens=k,
            n_ctx=context.n_ctx,
            threads=self.threads,
            devices=tuple(device.description for device in library.devices()),
            exact_widths=numerics.widths,
            kv_cache=context.kv_cache,
            decisions=tuple(self.decisions),
            notes=(*self.decisions, *self.notes),
        )


def _why_not_kept(name: str, knowledge: Knowledge) -> str:
    assert knowledge.draft is not None
    token_ms, pass_ms = 1e3 * knowledge.draft.at(1, 0), 1e3 * knowledge.target.at(1, 0)
    tried = f", and asking it {knowledge.askings} times lost time" if knowledge.askings else ""
    return (
        f"{name} is not kept in memory, as it does not pay here: a token of it takes "
        f"{token_ms:.1f} ms, one of the target {pass_ms:.1f} ms{tried}. --drafter model keeps it."
    )


def _by_default(drafters: Mapping[str, Drafter]) -> tuple[str, ...]:
    """Those that draft without being given anything."""
    return tuple(name for name in drafters if name != PREDICTION)


def _usable(widths: Sequence[int], identical: frozenset[int] | None) -> list[int]:
    return [n for n in widths if identical is None or n in identical or n == 1]
