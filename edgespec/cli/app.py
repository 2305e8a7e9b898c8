"""The `edgespec` command: options common to all commands, errors, log file."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from typing import Annotated, Any

import typer

from edgespec import __version__
from edgespec.catalog.paths import log_file
from edgespec.cli import bench, chat, doctor, models, pair, run, serve
from edgespec.cli.interrupts import INTERRUPTED
from edgespec.errors import EdgespecError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run local language models faster, with the same output.",
    epilog="Most options can be set in the environment too: EDGESPEC_SEED=1 is --seed 1.",
)
app.command("run")(run.run)
app.command("chat")(chat.chat)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
models.app.command("pair")(pair.pair)
app.add_typer(models.app, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgespec {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks, and log in detail.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""
    _log_to_file(debug)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command: every expected failure is one line on stderr and an exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _tolerate_any_text()
    if not set(arguments) - {"--debug"} and chat.terminal_can_show_the_app():
        arguments.append("chat")  # `edgespec` alone; where nobody could chat, the help
    try:
        # Typer ends quietly by itself when whoever reads our output leaves.
        code = app(arguments, prog_name="edgespec", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if "--debug" in arguments:
            raise
        code = _explain(error)
    sys.exit(code)


def _explain(error: Exception) -> int:
    """Tell the user; returns the exit code."""
    if isinstance(error, EdgespecError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, typer.Abort):
        return _complain("Nothing was done.", 1)
    if hasattr(error, "format_message"):  # of Typer, whose class for these differs by version
        return _complain_of_usage(error)
    logging.getLogger("edgespec").error("unexpected error", exc_info=error)
    if isinstance(error, OSError):
        _discard_output()
        where = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}. Details are in {log_file()}.", 1)
    return _complain(
        f"Unexpected {type(error).__name__}: {error}. This is a bug in edgespec; details are "
        f"in {log_file()}, or run again as edgespec --debug ...",
        1,
    )


def _complain_of_usage(error: Any) -> int:
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = context.command_path if context else "edgespec"
    message = error.format_message().rstrip(".")
    if parameter and os.environ.get(str(parameter.envvar)):
        message += f" (or see {parameter.envvar} in the environment)"
    return _complain(f"{message}. See {command} --help.", error.exit_code)


def _complain(message: str, code: int) -> int:
    typer.echo("edgespec: " + " ".join(message.split()), err=True)
    return code


def _tolerate_any_text() -> None:
    """A terminal may lack characters that a model writes, and piped text may not be UTF-8."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stdout is None:  # started with it closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _discard_output() -> None:
    """The disk may be full: what is left to write must not fail once more at exit."""
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)
    except (OSError, ValueError):
        return


def _log_to_file(debug: bool) -> None:
    """llama.cpp's messages go there too; a log that cannot be written is done without, also
    when the disk fills up later."""
    logging.raiseExceptions = False
    logger = logging.getLogger("edgespec")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = RotatingFileHandler(
            log_file(), maxBytes=2_000_000, backupCount=2, encoding="utf-8"
        )
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for old in logger.handlers:
        old.close()
    logger.handlers = [handler]
