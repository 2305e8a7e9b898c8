"""Waiting for what a test needs instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.looking import text

_PATIENCE = 30.0  # seconds after which a test fails instead of hanging


async def wait_until(pilot: Pilot[Any], predicate: Callable[[], bool], what: str = "it") -> None:
    """Let the app work until `predicate` holds; fails when that never happens."""
    end = time.monotonic() + _PATIENCE
    while not predicate():
        if time.monotonic() > end:
            pytest.fail(f"waited in vain for {what}; on the screen:\n{text(pilot.app)}")
        await pilot.pause()
