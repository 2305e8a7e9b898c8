"""The engine on one side, the screen on the other.

The screen asks (`load`, `ask`, `stop`) and at its own pace takes what has happened (`take`).
Nothing here waits for the screen, and nothing of it makes the screen wait: what takes long runs
on one thread, and the engine has its own.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from edgespec.engine import Engine, EngineInfo
from edgespec.errors import ContextFullError, EdgespecError, OptionError
from edgespec.generation import Generation
from edgespec.tui.settings import ChatSettings
from edgespec.types import Chunk

log = logging.getLogger(__name__)

Messages = Sequence[Mapping[str, str]]
Report = Callable[[str, float], None]

_ROOM_FOR_ANSWER = 1024  # tokens, or a quarter of a small context


@dataclass(frozen=True, slots=True)
class Wish:
    """What to load. name: of a pair or model, or a file; "" for what the command line said.
    draft: "auto", "none", a name or a file; None for the pair's own. n_ctx: None for the usual."""

    name: str = ""
    draft: str | None = None
    n_ctx: int | None = None


class Loader(Protocol):
    """Brings models here and opens them. Both raise EdgespecError, and report what takes long."""

    def fetch(self, wish: Wish, report: Report) -> None:
        """See to it that the files are on this machine. `report` may raise, to give up."""

    def load(self, wish: Wish, report: Report) -> Engine: ...


@dataclass(frozen=True, slots=True)
class Question:
    """messages: the whole chat, the question last, without the system prompt. plain: without
    drafts. forgotten: so many of the oldest messages did not fit last time."""

    messages: Messages
    settings: ChatSettings
    plain: bool = False
    seed: int | None = None
    forgotten: int = 0


# What `take` returns, besides the engine's own Chunks.


@dataclass(frozen=True, slots=True)
class Progress:
    """Something that takes long; done: 0 to 1."""

    what: str
    done: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """wish: None if it is what was there before, after another could not be loaded."""

    info: EngineInfo
    wish: Wish | None
    has_template: bool


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """why: "" when the user gave up."""

    why: str


@dataclass(frozen=True, slots=True)
class Started:
    """forgotten: the oldest messages that the model does not see."""

    prompt_tokens: int
    forgotten: int
    plain_token_s: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no answer, or no more of it."""

    why: str


Event = Progress | Loaded | NotLoaded | Started | Failed | Chunk


class _GivenUpError(Exception):
    """The user does not want it any more."""


@dataclass(slots=True)
class Bridge:
    """See above. Every method is for the screen's thread, and returns at once."""

    loader: Loader
    engine: Engine | None = None
    _events: deque[Event] = field(default_factory=deque)
    _work: queue.SimpleQueue[Callable[[], None]] = field(default_factory=queue.SimpleQueue)
    _generation: Generation | None = None
    _stopped: bool = False
    _wish: Wish = Wish()
    loading: bool = False
    _thread: threading.Thread | None = None

    def load(self, wish: Wish) -> None:
        """Ends in Loaded or NotLoaded; the model that was there before stays if it can."""
        self._stopped = False
        self.loading = True
        self._do(lambda: self._load(wish))

    def ask(self, question: Question) -> None:
        """Starts after what is being loaded. Ends in a Chunk with a completion, or Failed."""
        self._stopped = False
        self._do(lambda: self._ask(question))

    def wish_with_context(self, n_ctx: int) -> Wish:
        """What is loaded, with another context."""
        return replace(self._wish, n_ctx=n_ctx)

    def stop(self) -> None:
        """End the answer soon, or the download of a model."""
        self._stopped = True
        if self._generation is not None:
            self._generation.cancel()

    def take(self) -> list[Event]:
        """What has happened since the last call, in order."""
        events: list[Event] = []
        while self._events:
            events.append(self._events.popleft())
        if self._generation is not None:
            events += self._chunks(self._generation)
        return events

    def close(self) -> bool:
        """Free the models; False while one is being loaded, which cannot be interrupted."""
        self.stop()
        if self.loading:
            return False
        if self.engine is not None:
            self.engine.close()
        return True

    # On the thread.

    def _do(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="edgespec-bridge", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:  # noqa: BLE001  as above
                self._events.append(Failed(_told(error)))

    def _load(self, wish: Wish) -> None:
        try:
            self.loader.fetch(wish, self._report_until_stopped)
            self._replace_engine(wish)
        except _GivenUpError:
            self._events.append(NotLoaded(""))
        except Exception as error:  # noqa: BLE001  the screen must hear of it, whatever it is
            self._events.append(NotLoaded(_told(error)))
        finally:
            self.loading = False

    def _replace_engine(self, wish: Wish) -> None:
        """Two models at once may be more than the memory holds: the old one goes first."""
        before = self.engine
        if before is not None:
            self.engine = None
            before.close()
        try:
            self._open(wish, wish)
        except Exception:
            if before is not None:
                self._report("going back to the model that was loaded", 0.0)
                self._open(self._wish, None)
            raise

    def _open(self, wish: Wish, told: Wish | None) -> None:
        self.engine = self.loader.load(wish, self._report)
        self._wish = wish
        self._events.append(Loaded(self.engine.info, told, self.engine.has_template))

    def _report(self, what: str, done: float) -> None:
        self._events.append(Progress(what, done))

    def _report_until_stopped(self, what: str, done: float) -> None:
        if self._stopped:
            raise _GivenUpError
        self._report(what, done)

    def _ask(self, question: Question) -> None:
        try:
            self._start(question)
        except ContextFullError as error:
            hint = "Shorten it, or set a larger context (ctrl+g)."
            self._events.append(Failed(f"{str(error).split(':')[0]}. {hint}"))
        except EdgespecError as error:
            self._events.append(Failed(str(error)))

    def _start(self, question: Question) -> None:
        engine = self.engine
        if engine is None:
            raise OptionError("No model is loaded: choose one with /model.")
        settings = question.settings
        system = [{"role": "system", "content": settings.system}] if settings.system else []
        forgotten = _forgotten(engine, system, question)
        messages = [*system, *question.messages[forgotten:]]
        generation = engine.submit(
            messages=messages,
            params=settings.params(),
            seed=settings.seed if question.seed is None else question.seed,
            max_tokens=settings.max_tokens or None,
            num_draft_tokens=0 if question.plain else settings.k,
            drafter="auto" if question.plain else settings.drafter,
        )
        tokens = len(generation.request.prompt)
        self._events.append(Started(tokens, forgotten, engine.plain_token_s(tokens)))
        self._generation = generation
        if self._stopped:
            generation.cancel()

    def _chunks(self, generation: Generation) -> Sequence[Event]:
        try:
            chunks = generation.ready()
        except Exception as error:  # noqa: BLE001  whatever the engine failed with
            self._generation = None
            return [Failed(_told(error))]
        if chunks and chunks[-1].completion is not None:
            self._generation = None
        return chunks


def _told(error: Exception) -> str:
    if isinstance(error, EdgespecError):
        return str(error)
    log.error("unexpected error", exc_info=error)
    return f"Unexpected {type(error).__name__}: {error}."


def _forgotten(engine: Engine, system: Messages, question: Question) -> int:
    """How many of the oldest messages must go, so that an answer has room.

    Whole turns, and more than needed at once: every cut makes the model read all again.
    """
    messages = question.messages
    n_ctx = engine.info.n_ctx
    room = n_ctx - min(_ROOM_FOR_ANSWER, n_ctx // 4)

    def fits(first: int, most: int) -> bool:
        try:
            return len(engine.tokenize(None, [*system, *messages[first:]])) <= most
        except ContextFullError:  # too much to be worth counting
            return False

    if fits(question.forgotten, room):
        return question.forgotten
    starts = [i for i in range(question.forgotten, len(messages)) if messages[i]["role"] == "user"]
    low, high = 0, len(starts) - 1  # the last question is never left out
    while low < high:
        middle = (low + high) // 2
        if fits(starts[middle], room * 3 // 4):
            high = middle
        else:
            low = middle + 1
    return starts[low] if starts else question.forgotten
