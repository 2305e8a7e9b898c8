"""Command-line options that several commands share, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from edgespec.cli.interrupts import ctrl_c_leaves, ctrl_c_raises
from edgespec.errors import OptionError
from edgespec.types import SamplingParams

if TYPE_CHECKING:
    from edgespec.catalog.resolve import Fetch
    from edgespec.engine import Engine
    from edgespec.loading import LoadedPair
    from edgespec.measuring import Report

_DEFAULTS = SamplingParams()
_ALL_LAYERS = 9999


def option(name: str, *more: str, **settings: Any) -> Any:
    """An option that can also be set in the environment: --top-k as EDGESPEC_TOP_K."""
    variable = "EDGESPEC_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(name, *more, envvar=variable, show_envvar=False, **settings)


def _loading(name: str, *more: str, **settings: Any) -> Any:
    return option(name, *more, rich_help_panel="Model and drafts", **settings)


def _sampling(name: str, help: str) -> Any:
    return option(name, help=help, rich_help_panel="Sampling")


def _unless_chosen_by(other: str) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """What the environment says gives way when the command line says it by the `other` option."""

    def choose(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        chosen = _typed(context, other) or _typed(context, "model")
        return None if chosen and not _typed(context, str(param.name)) else value

    return choose


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


MaxTokens = Annotated[
    int,
    option("--max-tokens", "-n", min=0, help="Tokens of an answer at most; 0: no limit."),
]
# Small models may repeat themselves until the context is full.
DEFAULT_MAX_TOKENS = 1024
System = Annotated[str | None, typer.Option(metavar="TEXT", help="A system prompt.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What to load, and how."""

    pair: Annotated[
        str | None,
        _loading(
            "--pair",
            callback=_unless_chosen_by("target"),
            help="A pair or model of models.toml; default: the pair named default.",
        ),
    ] = None
    target: Annotated[
        str | None,
        _loading(
            "--target",
            callback=_unless_chosen_by("pair"),
            help="The target: a GGUF file, or a model of models.toml.",
        ),
    ] = None
    draft: Annotated[
        str | None,
        _loading(
            "--draft",
            help="The draft model: a GGUF file, or a model of models.toml; auto: with --target, "
            "the best on this machine; none.",
        ),
    ] = None
    ctx: Annotated[
        int | None,
        _loading("--ctx", min=1, help="Tokens the context holds."),
    ] = None
    threads: Annotated[
        int | None,
        _loading("--threads", min=1, help="CPU threads; default: physical cores."),
    ] = None
    gpu_layers: Annotated[
        str,
        _loading(
            "--gpu-layers",
            metavar="auto|all|N",
            help="Layers on the GPU; auto: as many as fit.",
        ),
    ] = "auto"
    exact: Annotated[
        str,
        _loading(
            "--exact",
            help="on: verify only in passes measured to be bit-identical to plain decoding; "
            "auto: where that costs nothing; off: in any.",
        ),
    ] = "auto"
    kv_type: Annotated[
        str,
        _loading(
            "--kv-type",
            metavar="auto|f16|q8_0",
            help="The KV cache: q8_0 takes half the memory of f16 and rounds more.",
        ),
    ] = "auto"
    force: Annotated[bool, _loading("--force", help="Load even what will not fit into memory.")] = (
        False
    )

    def __post_init__(self) -> None:
        """A wrong option fails before stdin is read or anything is downloaded."""
        from edgespec.loading import LoadOptions

        if self.pair is not None and self.target is not None:
            raise OptionError("Give either --pair or --target, not both.")
        LoadOptions(**self._how())

    def naming(self, model: str | None) -> Self:
        """The same with a model named by an argument. Raises OptionError for two names."""
        from edgespec.catalog.registry import load_registry

        if model is None:
            return self
        if self.pair is not None or self.target is not None:
            raise OptionError(f"Name either {model!r} or --pair/--target, not both.")
        if model in load_registry().pairs:
            return replace(self, pair=model)
        return replace(self, target=model)

    @contextmanager
    def loaded(self, **more: Any) -> Iterator[LoadedPair]:
        """Load with progress bars, pulling what is missing; closed at the end.

        more: LoadOptions that are not the user's to choose.
        """
        from edgespec.cli.progress import fetch, loading_bar

        with ctrl_c_leaves():
            with loading_bar() as report:
                pair = self.load(fetch, report, **more)
            try:
                with ctrl_c_raises():
                    yield pair
            finally:
                pair.engine.close()

    def load(self, fetch: Fetch | None, report: Report, **more: Any) -> LoadedPair:
        """Load what was asked for; arguments and errors as of `load_pair`."""
        from edgespec.loading import AUTO, load_pair

        return load_pair(
            self.pair,
            target=self.target,
            draft=self.draft or (AUTO if self.target is not None else None),
            fetch=fetch,
            report=report,
            **self._how(),
            **more,
        )

    def _how(self) -> dict[str, Any]:
        return {
            "n_ctx": self.ctx,
            "threads": self.threads,
            "gpu_layers": _layers(self.gpu_layers),
            "exact": self.exact,
            "kv_type": self.kv_type,
            "force": self.force,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading(Models):
    """The same, and who drafts how much."""

    drafter: Annotated[
        str,
        _loading(
            "--drafter",
            help="Who drafts: model, n-gram or none; auto takes the draft model if there is one.",
        ),
    ] = "auto"
    num_draft_tokens: Annotated[
        str,
        _loading(
            "--num-draft-tokens",
            "-k",
            metavar="auto|N",
            help="k, the tokens to draft per step: auto or a number; 0 is plain decoding.",
        ),
    ] = "auto"

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """As `loaded`, when the engine is all that is wanted."""
        with self.loaded() as pair:
            yield pair.engine

    def _how(self) -> dict[str, Any]:
        # Not super(): a dataclass with slots is not the class whose methods these are.
        return Models._how(self) | {
            "drafter": self.drafter,
            "num_draft_tokens": _draft_tokens(self.num_draft_tokens),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; the fields are those of SamplingParams."""

    temperature: Annotated[float, _sampling("--temperature", "0 always takes the best token.")] = (
        _DEFAULTS.temperature
    )
    top_k: Annotated[int, _sampling("--top-k", "Keep the k best tokens; 0: all.")] = _DEFAULTS.top_k
    top_p: Annotated[
        float, _sampling("--top-p", "Keep the best tokens up to this mass; 1: all.")
    ] = _DEFAULTS.top_p
    min_p: Annotated[
        float,
        _sampling("--min-p", "Keep tokens at least so probable, relative to the best; 0: all."),
    ] = _DEFAULTS.min_p
    typical_p: Annotated[
        float, _sampling("--typical-p", "Keep locally typical tokens; 1: all.")
    ] = _DEFAULTS.typical_p
    repeat_penalty: Annotated[
        float, _sampling("--repeat-penalty", "Above 1: avoid recent tokens.")
    ] = _DEFAULTS.repeat_penalty
    presence_penalty: Annotated[
        float, _sampling("--presence-penalty", "Subtracted for recent tokens.")
    ] = _DEFAULTS.presence_penalty
    frequency_penalty: Annotated[
        float,
        _sampling("--frequency-penalty", "Subtracted per occurrence among recent tokens."),
    ] = _DEFAULTS.frequency_penalty
    penalty_last_n: Annotated[
        int, _sampling("--penalty-last-n", "How many tokens count as recent.")
    ] = _DEFAULTS.penalty_last_n
    seed: Annotated[
        int | None,
        _sampling("--seed", "Same seed, same answer; default: drawn."),
    ] = None

    def params(self) -> SamplingParams:
        """Raises OptionError for values outside their range."""
        return SamplingParams(**asdict(self))


def _layers(value: str) -> int | None:
    """None where that is left to the memory there is."""
    if value == "auto":
        return None
    if value == "all":
        return _ALL_LAYERS
    if not value.isascii() or not value.isdigit():
        raise OptionError(f"--gpu-layers must be auto, all or a number, not {value!r}.")
    return min(int(value), _ALL_LAYERS)


def _draft_tokens(value: str) -> int | str:
    if value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise OptionError(f"-k must be auto or a number, not {value!r}.") from None
