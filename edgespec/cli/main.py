"""The `edgespec` command: options common to all commands, errors, log file."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from typing import Annotated

import typer

from edgespec import __version__
from edgespec.catalog.paths import log_file
from edgespec.cli import chat, models, run
from edgespec.errors import EdgespecError

INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run local language models faster, with the same output.",
)
app.command("run")(run.run)
app.command("chat")(chat.chat)
app.add_typer(models.app, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgespec {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks, and log in detail.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""
    _log_to_file(debug)


def main() -> None:
    """Entry point: every expected failure is one line on stderr and an exit code."""
    debug = "--debug" in sys.argv
    try:
        app()
    except EdgespecError as error:
        if debug:
            raise
        _complain(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        if debug:
            raise
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output left; there is nobody to tell.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        logging.getLogger("edgespec").exception("unexpected error")
        _complain(
            f"Unexpected {type(error).__name__}: {error}. This is a bug in edgespec; details are "
            f"in {log_file()}, or run again as edgespec --debug ..."
        )
        sys.exit(1)


def _complain(message: str) -> None:
    typer.echo("edgespec: " + " ".join(message.split()), err=True)


def _log_to_file(debug: bool) -> None:
    """llama.cpp's messages go there too; a log that cannot be written is done without."""
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
    logger.handlers = [handler]
