"""The entry point. Imports take a moment, and Ctrl-C then should not show where it hit."""

from __future__ import annotations

import sys

from edgespec.cli.interrupts import INTERRUPTED


def main() -> None:
    """The `edgespec` command and `python -m edgespec`."""
    try:
        from edgespec.cli import app

        app.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
