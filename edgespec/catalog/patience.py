"""How long to go on asking a server that does not answer as it should."""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import Message

from edgespec.errors import DownloadError

Sleep = Callable[[float], None]

TRIES = 5  # in vain, one after another
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same question may be answered a little later."""

_LONGEST_WAIT_S = 120.0


class PassingError(Exception):
    """A failure that may be over in a moment. wait_s: how long the server asked to wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Patience:
    """Waits between tries, longer every time, and gives up after a few in vain."""

    def __init__(self, what: str, sleep: Sleep) -> None:
        self._what, self._sleep = what, sleep
        self._failed = 0

    def renew(self) -> None:
        """The last try got further than any before."""
        self._failed = 0

    def wait(self, error: PassingError) -> None:
        """Wait before the next try. Raises DownloadError when there is to be none."""
        self._failed += 1
        wait_s = error.wait_s or 2.0 ** (self._failed - 1)
        reason = f"{error}, {TRIES} times in a row"
        if wait_s > _LONGEST_WAIT_S:
            reason = f"{error}, and the server asks to wait {wait_s:.0f} s"
        if self._failed >= TRIES or wait_s > _LONGEST_WAIT_S:
            raise DownloadError(
                f"Could not fetch {self._what}: {reason}. Check the network, then pull again; "
                "it goes on where it stopped."
            ) from error
        self._sleep(wait_s)


def asked_to_wait(headers: Mapping[str, str] | Message) -> float | None:
    """The seconds of a Retry-After header, which may also hold a date."""
    value = headers.get("Retry-After")
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        until = email.utils.parsedate_to_datetime(value)
        return max((until - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
