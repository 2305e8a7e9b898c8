"""Command-line options that several commands share, and what they amount to."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from edgespec.errors import OptionError
from edgespec.types import SamplingParams

if TYPE_CHECKING:
    from edgespec.engine import Engine

_DEFAULTS = SamplingParams()
# llama.cpp takes 32-bit sizes, and dies of more threads than its own limit.
_MOST_TOKENS, _MOST_THREADS = 2**31 - 1, 512


def option(name: str, *more: str, help: str, **settings: Any) -> Any:
    """An option that can also be set in the environment: --top-k as EDGESPEC_TOP_K."""
    variable = "EDGESPEC_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(
        name,
        *more,
        help=help,
        envvar=variable,
        show_envvar=False,
        metavar=_metavar(name),
        **settings,
    )


def _metavar(name: str) -> str:
    return name.removeprefix("--").rsplit("-", 1)[-1].upper()


def text(value: str | None) -> str | None:
    """Arguments may hold bytes that are not UTF-8, which no tokenizer takes."""
    return None if value is None else os.fsencode(value).decode("utf-8", "replace")


def _unless_chosen_by(other: str) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """What the environment says gives way when the command line says it by the `other` option."""

    def choose(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        return None if _typed(context, other) and not _typed(context, str(param.name)) else value

    return choose


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


MaxTokens = Annotated[
    int | None,
    option("--max-tokens", "-n", min=1, help="Length of an answer; default: no limit."),
]
System = Annotated[str | None, typer.Option(metavar="TEXT", callback=text, help="A system prompt.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What to load, and how."""

    pair: Annotated[
        str | None,
        option(
            "--pair",
            callback=_unless_chosen_by("target"),
            help="A pair or model of models.toml; default: the pair named default.",
        ),
    ] = None
    target: Annotated[
        str | None,
        option(
            "--target",
            callback=_unless_chosen_by("pair"),
            help="The target: a GGUF file, or a model of models.toml.",
        ),
    ] = None
    draft: Annotated[
        str | None,
        option("--draft", help="The draft model: a GGUF file, or a model of models.toml."),
    ] = None
    drafter: Annotated[
        str,
        option(
            "--drafter",
            help="Who drafts: model, n-gram or none; auto takes the draft model if there is one.",
        ),
    ] = "auto"
    num_draft_tokens: Annotated[
        str,
        option(
            "--num-draft-tokens",
            "-k",
            help="k, the tokens to draft per step: auto or a number; 0 is plain decoding.",
        ),
    ] = "auto"
    ctx: Annotated[
        int | None,
        option("--ctx", min=1, max=_MOST_TOKENS, help="Tokens the context holds."),
    ] = None
    threads: Annotated[
        int | None,
        option("--threads", min=1, max=_MOST_THREADS, help="CPU threads; default: physical cores."),
    ] = None
    gpu_layers: Annotated[
        int | None,
        option("--gpu-layers", min=0, help="Layers on the GPU; default: all, where there is one."),
    ] = None
    exact: Annotated[
        str,
        option(
            "--exact",
            help="on: verify only in passes measured to be bit-identical to plain decoding; "
            "auto: where that costs nothing; off: never measure.",
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        """A wrong option fails before stdin is read or anything is downloaded."""
        from edgespec.loading import LoadOptions

        if self.pair is not None and self.target is not None:
            raise OptionError("Give either --pair or --target, not both.")
        LoadOptions(**self._how())

    def engine(self) -> Engine:
        """Load with progress bars, pulling what is missing."""
        from edgespec.cli.progress import fetch, loading_bar
        from edgespec.loading import load

        with loading_bar() as report:
            return load(
                self.pair,
                target=self.target,
                draft=self.draft,
                fetch=fetch,
                report=report,
                **self._how(),
            )

    def _how(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "num_draft_tokens": _draft_tokens(self.num_draft_tokens),
            "n_ctx": self.ctx,
            "threads": self.threads,
            "gpu_layers": self.gpu_layers,
            "exact": self.exact,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; the fields are those of SamplingParams."""

    temperature: Annotated[
        float, option("--temperature", help="0 always takes the best token.")
    ] = _DEFAULTS.temperature
    top_k: Annotated[int, option("--top-k", help="Keep the k best tokens; 0: all.")] = (
        _DEFAULTS.top_k
    )
    top_p: Annotated[
        float, option("--top-p", help="Keep the best tokens up to this mass; 1: all.")
    ] = _DEFAULTS.top_p
    min_p: Annotated[
        float,
        option("--min-p", help="Keep tokens at least so probable, relative to the best; 0: all."),
    ] = _DEFAULTS.min_p
    typical_p: Annotated[
        float, option("--typical-p", help="Keep locally typical tokens; 1: all.")
    ] = _DEFAULTS.typical_p
    repeat_penalty: Annotated[
        float, option("--repeat-penalty", help="Above 1: avoid recent tokens.")
    ] = _DEFAULTS.repeat_penalty
    presence_penalty: Annotated[
        float, option("--presence-penalty", help="Subtracted for recent tokens.")
    ] = _DEFAULTS.presence_penalty
    frequency_penalty: Annotated[
        float,
        option("--frequency-penalty", help="Subtracted per occurrence among recent tokens."),
    ] = _DEFAULTS.frequency_penalty
    penalty_last_n: Annotated[
        int, option("--penalty-last-n", help="How many tokens count as recent.")
    ] = _DEFAULTS.penalty_last_n
    seed: Annotated[
        int | None,
        option("--seed", min=0, max=2**64 - 1, help="Same seed, same answer; default: drawn."),
    ] = None

    def params(self) -> SamplingParams:
        """Raises OptionError for values outside their range."""
        return SamplingParams(**asdict(self))


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Lets a command take groups of options: Typer is shown the fields of its dataclasses."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            parameters += _parameters(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**values: Any) -> None:
        for name, group in groups.items():
            own = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**own)
        command(**values)

    call.__doc__ = command.__doc__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__dict__["__signature__"] = inspect.Signature(parameters)
    return call


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _draft_tokens(value: str) -> int | str:
    if value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise OptionError(f"-k must be auto or a number, not {value!r}.") from None
