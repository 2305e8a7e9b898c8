"""How the server is set up."""

from __future__ import annotations

from dataclasses import dataclass

from edgespec.server.limits import MAX_BODY

MOST_CHOICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What does not depend on the model.

    model: the name it is served under. parallel: long answers at the same time. queue: requests
    that may wait. short_lane: whether the engine has one sequence more than `parallel`, which only
    short requests (completions in an editor) may use. strict_model: refuse other model names.
    max_tokens: of an answer whose request sets no limit; None: as many as the context holds.
    heartbeat: seconds of silence on a stream before a comment is sent. created: when the server
    was started, in seconds since 1970.
    """

    model: str
    parallel: int = 4
    queue: int = 64
    short_lane: bool = True
    strict_model: bool = False
    max_tokens: int | None = None
    heartbeat: float = 10.0
    created: int = 0
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    max_body: int = MAX_BODY
    ollama: bool = False
