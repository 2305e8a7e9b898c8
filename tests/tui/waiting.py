"""Async tests without a plugin, and waiting for what a screen will show."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import pytest
from textual.pilot import Pilot

from tests.tui.looking import text

_PATIENCE = 8.0  # seconds after which a test fails instead of hanging

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        asyncio.run(test(*arguments, **options))

    return run


async def wait_until(pilot: Pilot[Any], predicate: Callable[[], bool], what: str = "it") -> None:
    """Let the app work until `predicate` holds; fails when that never happens."""
    end = time.monotonic() + _PATIENCE
    while not predicate():
        if time.monotonic() > end:
            pytest.fail(f"waited in vain for {what}; on the screen:\n{text(pilot.app)}")
        await pilot.pause()
