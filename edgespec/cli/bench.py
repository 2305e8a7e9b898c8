"""`edgespec bench`: does speculation pay on this machine, with this pair, for this text?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgespec.cli import options as opt
from edgespec.cli.explanation import explanation_lines
from edgespec.cli.groups import grouped
from edgespec.cli.interrupts import INTERRUPTED
from edgespec.errors import BenchError, OptionError

if TYPE_CHECKING:
    from edgespec.bench.journal import Journal
    from edgespec.bench.options import BenchOptions
    from edgespec.bench.records import Result
    from edgespec.bench.suite import Suite
    from edgespec.explaining import Explanation

DIFFERENT = 3  # the exit code of --strict

_RESULT = "result.json"
_CURVE_S, _QUICK_CURVE_S = 60.0, 12.0
_OUTPUTS = ("md", "json", "jsonl", "csv")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}

app = typer.Typer()


def _plan(name: str, *more: str, **settings: object) -> object:
    return typer.Option(name, *more, rich_help_panel="What to measure", **settings)  # type: ignore[arg-type]


SuiteName = Annotated[
    str | None,
    _plan("--suite", metavar="NAME|FILE", help="standard, quick, humaneval, or a JSONL file."),
]
Quick = Annotated[
    bool, _plan("--quick", help="The quick suite (12 prompts), one repetition: a few minutes.")
]
Categories = Annotated[
    list[str] | None,
    _plan("--category", metavar="NAME", help="Only prompts of this category; repeatable."),
]
Limit = Annotated[
    int | None, _plan("--limit", min=1, help="At most so many prompts of each category.")
]
Modes = Annotated[
    str | None,
    _plan(
        "--modes",
        metavar="LIST",
        help="What to compare, separated by commas: native (llama.cpp's own loop), off (plain), "
        "auto, a number for k, model:K, n-gram:K. Default: native,off,auto.",
    ),
]
Repetitions = Annotated[
    int | None, _plan("--repetitions", "-r", min=1, help="Default: 3; 1 with --quick.")
]
MaxTokens = Annotated[
    int | None, _plan("--max-tokens", "-n", min=2, help="Tokens of an answer at most; default 128.")
]
Temperature = Annotated[float, _plan("--temperature", help="0 always takes the best token.")]
Seed = Annotated[int, _plan("--seed", help="For a temperature above 0.")]
Budget = Annotated[
    str | None,
    _plan("--budget", metavar="TIME", help="Stop before more time is spent: 10m, 90s, 1h."),
]
Precision = Annotated[
    str | None,
    _plan("--precision", metavar="PERCENT", help="Stop when all intervals are so narrow: 2%."),
]
Cooldown = Annotated[
    float, _plan("--cooldown", metavar="SECONDS", help="Rest before every answer.")
]


def _value(name: str, metavar: str, help: str) -> object:
    return typer.Option(name, metavar=metavar, rich_help_panel="What it is worth", help=help)


Watts = Annotated[
    float | None, _value("--watts", "W", "What the machine draws while it works, if you know.")
]
PriceKwh = Annotated[
    float | None, _value("--price-kwh", "PRICE", "Of electricity, in your currency.")
]
HardwarePrice = Annotated[float | None, _value("--hardware-price", "PRICE", "Of the machine.")]
HardwareYears = Annotated[
    float | None, _value("--hardware-years", "YEARS", "How long the machine is used.")
]


def _result_option(name: str, *more: str, **settings: object) -> object:
    return typer.Option(name, *more, rich_help_panel="Result", **settings)  # type: ignore[arg-type]


Output = Annotated[
    str, _result_option("--output", "-o", metavar="md|json|jsonl|csv", help="Format on stdout.")
]
Save = Annotated[
    Path | None,
    _result_option(
        "--save",
        metavar="DIR",
        help="Write report.md, plots and data there. The same command again takes up an "
        "interrupted run.",
    ),
]
Restart = Annotated[
    bool, _result_option("--restart", help="Drop what an earlier run left in the directory.")
]
Strict = Annotated[
    bool, _result_option("--strict", help="Exit code 3 when any answer differs from plain.")
]
Explain = Annotated[
    bool,
    _result_option(
        "--explain", help="Say on stderr what the mode auto went by: costs, chances, probing."
    ),
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A result in JSON.")]


@app.callback(invoke_without_command=True)
@grouped
def bench(
    context: typer.Context,
    models: opt.Models,
    suite: SuiteName = None,
    quick: Quick = False,
    category: Categories = None,
    limit: Limit = None,
    modes: Modes = None,
    repetitions: Repetitions = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    budget: Budget = None,
    precision: Precision = None,
    cooldown: Cooldown = 0.0,
    watts: Watts = None,
    price_kwh: PriceKwh = None,
    hardware_price: HardwarePrice = None,
    hardware_years: HardwareYears = None,
    output: Output = "md",
    save: Save = None,
    restart: Restart = False,
    strict: Strict = False,
    explain: Explain = False,
) -> None:
    """Measure whether speculation pays on this machine, with this pair, for several kinds of text.

    Every prompt is answered in all modes back to back; speed-ups are paired and come with
    confidence intervals. Leave the machine alone meanwhile.
    """
    if context.invoked_subcommand:
        return
    from edgespec.bench.modes import DEFAULT_MODES
    from edgespec.bench.options import DEFAULT_REPETITIONS, BenchOptions

    if output not in _OUTPUTS:
        raise OptionError(f"There is no format {output!r}: choose {', '.join(_OUTPUTS)}.")
    if restart and not save:
        raise OptionError("--restart drops what is in the directory of --save: give that, too.")
    chosen = BenchOptions(
        modes=DEFAULT_MODES if modes is None else modes,
        repetitions=repetitions or (1 if quick else DEFAULT_REPETITIONS),
        **({"max_tokens": max_tokens} if max_tokens else {}),
        temperature=temperature,
        seed=seed,
        cooldown_s=cooldown,
        budget_s=_seconds(budget),
        precision=_share(precision),
        curve_s=_QUICK_CURVE_S if quick else _CURVE_S,
        watts=watts,
        price_kwh=price_kwh,
        hardware_price=hardware_price,
        hardware_years=hardware_years,
    )
    prompts = _suite(suite, quick, category or [], limit)
    with _alone():
        journal = _journal(save, restart) if save else None
        result, explained = _measure(models, prompts, chosen, journal)
    typer.echo(_formatted(result, output))
    if explain and explained and any(cell.mode == "auto" for cell in result.cells):
        typer.echo("\n".join([*explanation_lines(explained), *_regret(result)]), err=True)
    if save:
        _save(result, save)
        typer.echo(f"Saved in {save}: open {save / 'report.md'}", err=True)
    if journal and result.finished:
        journal.end()
    if result.stopped_by == "ctrl-c":
        raise typer.Exit(INTERRUPTED)
    if strict and any(cell.divergence for cell in result.cells):
        raise typer.Exit(DIFFERENT)


@app.command()
def show(file: File, output: Output = "md") -> None:
    """Show a saved result once more, without running anything."""
    from edgespec.bench.report.files import read_result

    if output not in _OUTPUTS:
        raise OptionError(f"There is no format {output!r}: choose {', '.join(_OUTPUTS)}.")
    typer.echo(_formatted(read_result(_result_in(file)), output))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="A result.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Another, of the same suite.")],
) -> None:
    """Compare two results, prompt by prompt: how much faster is B than A?"""
    from edgespec.bench.report.comparison import compare as compared
    from edgespec.bench.report.comparison import comparison_markdown
    from edgespec.bench.report.files import read_result

    a, b = read_result(_result_in(first)), read_result(_result_in(second))
    typer.echo(comparison_markdown(a, b, compared(a, b)))


@app.command()
def schema() -> None:
    """Print the JSON schema of results."""
    from edgespec.bench.report.files import schema as of_results

    typer.echo(json.dumps(of_results(), indent=1))


def _result_in(path: Path) -> Path:
    """A directory of --save stands for the result in it."""
    return path / _RESULT if path.is_dir() else path


def _suite(name: str | None, quick: bool, categories: list[str], limit: int | None) -> Suite:
    from edgespec.bench.suite import load_suite, select

    if quick and name:
        raise OptionError("Give either --suite or --quick, not both.")
    suite = load_suite(name or ("quick" if quick else "standard"))
    return select(suite, categories=categories, limit=limit)


def _measure(
    models: opt.Models, suite: Suite, options: BenchOptions, journal: Journal | None
) -> tuple[Result, Explanation | None]:
    from edgespec.bench.benchmark import run_benchmark
    from edgespec.bench.runner import conditions
    from edgespec.bench.subject import subject_of
    from edgespec.cli.progress import bench_bar
    from edgespec.explaining import explain as explain_policy

    start = conditions()  # loading is work, too
    try:
        with (
            models.loaded(remember=False) as pair,
            subject_of(pair) as subject,
            bench_bar() as progress,
        ):
            result = run_benchmark(
                subject,
                suite,
                options,
                command=["edgespec", *sys.argv[1:]],
                start=start,
                journal=journal,
                progress=progress,
            )
            known, widths = pair.knowledge, pair.engine.info.exact_widths
            return result, explain_policy(known, widths, (), ()) if known else None
    except KeyboardInterrupt:
        typer.echo("Stopped before the first prompt was done: nothing to report.", err=True)
        raise


def _regret(result: Result) -> Iterator[str]:
    """How far auto is from the best of the other modes, as measured, in trace time."""
    found = {
        summary.mode: summary.trace_speedup
        for summary in result.summaries
        if summary.category == "all" and summary.trace_speedup is not None
    }
    auto = found.pop("auto", None)
    if auto is not None and found:
        best = max(found, key=lambda mode: found[mode])
        yield (
            f"In trace time, auto ran at {auto / max(found[best], 1.0):.2f}x of the best other "
            f"choice ({best if found[best] > 1.0 else 'plain'})."
        )


@contextmanager
def _alone() -> Iterator[None]:
    """One benchmark at a time: two would spoil each other's figures, and share a journal."""
    from edgespec.catalog.lock import locked
    from edgespec.catalog.paths import cache_dir

    def busy() -> None:
        raise BenchError(
            "Another benchmark is running on this machine, and two would spoil each other's "
            "figures: wait for it, or stop it."
        )

    with ExitStack() as stack:
        with suppress(OSError):  # where no lock can be had, the user must know
            cache_dir().mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(cache_dir() / "bench.lock", busy))
        yield


def _journal(directory: Path, restart: bool) -> Journal:
    """Says before any run that it cannot be saved, or that something is there already."""
    from edgespec.bench.journal import Journal
    from edgespec.bench.report.files import check_directory

    check_directory(directory)
    journal = Journal(directory)
    if restart:
        journal.end()
    elif (directory / _RESULT).exists() and not journal.exists:
        raise OptionError(
            f"{directory} already holds a result: save elsewhere, or replace it with --restart."
        )
    return journal


def _formatted(result: Result, output: str) -> str:
    from edgespec.bench.report import files
    from edgespec.bench.report import markdown as report

    form = {
        "md": report.short,
        "json": files.to_json,
        "jsonl": files.to_jsonl,
        "csv": files.to_csv,
    }[output]
    return form(result).rstrip("\n")


def _save(result: Result, directory: Path) -> None:
    from edgespec.bench.plots.draw import plots
    from edgespec.bench.report import files
    from edgespec.bench.report import markdown as report

    drawn = plots(result)
    files.write(directory / _RESULT, files.to_json(result))
    files.write(directory / "cells.jsonl", files.to_jsonl(result))
    files.write(directory / "summary.csv", files.to_csv(result))
    for name, svg in drawn.items():
        files.write(directory / name, svg)
    files.write(directory / "report.md", report.markdown(result, plots={n: n for n in drawn}))


def _seconds(text: str | None) -> float | None:
    """Seconds of a time such as 90, 90s, 10m or 1.5h."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found:
        raise OptionError(f"--budget {text!r} is no time: write 90s, 10m or 1h.")
    return float(found[1]) * _UNITS[found[2]]


def _share(text: str | None) -> float | None:
    """The share that a percentage is."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if not found:
        raise OptionError(f"--precision {text!r} is no percentage: write 2%.")
    return float(found[1]) / 100
