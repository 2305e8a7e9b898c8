"""A loaded pair behind one thread: submit requests, stream chunks, cancel, close.

llama contexts are not thread-safe, so one thread owns models and scheduler; callers put
commands into its inbox and read chunks from a queue of their own.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from edgespec.decoding.scheduler import Scheduler
from edgespec.errors import (
    DecodeAbortedError,
    EdgespecError,
    EngineClosedError,
    OptionError,
    TemplateError,
)
from edgespec.generation import Generation
from edgespec.policies import DraftTokens, Policies
from edgespec.prompts import Prompts, too_long
from edgespec.protocols import Tokenizer, TokenModel
from edgespec.requests import Messages, Prompt, RequestOptions, check, limit_of, sampling_of
from edgespec.text.fim import Fim, Gap, Room
from edgespec.text.template import ChatTemplate
from edgespec.types import Chunk, Completion, SamplingParams, Step

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What is loaded, for people to read.

    drafter: who drafts unless a request wishes otherwise; "auto" when that is decided at every
    step, "" for plain decoding. drafters: all that are loaded. exact_widths: the pass widths
    measured to be bit-identical to plain decoding, None when that was not measured or does not
    hold. kv_cache: types of its K and V halves. decisions: what was chosen or cut without being
    asked for, one line each. notes: all that the user should know, decisions included.
    """

    target: str
    draft: str
    drafter: str
    drafters: tuple[str, ...]
    num_draft_tokens: DraftTokens
    n_ctx: int
    threads: int
    devices: tuple[str, ...]
    exact_widths: frozenset[int] | None
    kv_cache: str = "F16/F16"
    decisions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Engine:
    """Generates text with one target. Made by `edgespec.load`; a context manager.

    Thread-safe: any thread may submit, stream, cancel and close.
    """

    def __init__(
        self,
        *,
        model: TokenModel,
        tokenizer: Tokenizer,
        scheduler: Scheduler,
        template: ChatTemplate | TemplateError,
        policies: Policies,
        info: EngineInfo,
        fim: Fim | str = "This model cannot fill in the middle.",
        close: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.info = info
        self._clock = clock
        self._model = model
        self._tokenizer = tokenizer
        self._scheduler = scheduler
        self._fim = fim
        self._prompts = Prompts(tokenizer, template, model.n_ctx)
        self._policies = policies
        self._free = close
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self._generations: dict[int, Generation] = {}
        self._closing = False
        self._users = 0  # callers who need the models right now
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="edgespec-engine", daemon=True)
        self._thread.start()

    # What callers use, from any thread.

    def generate(
        self, prompt: Prompt | None = None, **options: Unpack[RequestOptions]
    ) -> Completion:
        """The whole answer at once; arguments as for `submit`."""
        return self.submit(prompt, **options).result()

    def stream(
        self, prompt: Prompt | None = None, **options: Unpack[RequestOptions]
    ) -> Iterator[Chunk]:
        """The answer as it comes; the last chunk carries the Completion.

        Generation starts at once. Leaving the iterator early cancels it.
        Arguments as for `submit`.
        """
        return self.submit(prompt, **options).chunks()

    def submit(self, prompt: Prompt | None = None, **options: Unpack[RequestOptions]) -> Generation:
        """Start generating; returns at once.

        prompt: text to continue as it is, or its tokens. Instead of it: options["messages"], a
        chat. options: see RequestOptions.
        Raises OptionError, TemplateError, ContextFullError, EngineClosedError.
        """
        generation = self.prepare(prompt, **options)
        self.start(generation)
        return generation

    def start(self, generation: Generation) -> None:
        """Begin with what was prepared. Raises EngineClosedError."""
        with self._open():
            self._inbox.put(lambda: self._start(generation))

    def prepare(
        self, prompt: Prompt | None = None, **options: Unpack[RequestOptions]
    ) -> Generation:
        """Check a request and tokenize it, to be started later. Arguments and errors as of
        `submit`."""
        submitted = self._clock()
        check(options)
        policy = self._policies.asked(
            options.get("drafter", "auto"),
            options.get("num_draft_tokens", "auto"),
            predicted=bool(options.get("prediction")),
        )
        params = sampling_of(options)
        self._check_bias(params)
        tokens = self.tokenize(
            prompt, options.get("messages"), **(options.get("template_options") or {})
        )
        if len(tokens) >= self._model.n_ctx:
            raise too_long(len(tokens), self._model.n_ctx)
        return Generation(
            id=next(self._ids),
            prompt=tokens,
            params=params,
            max_tokens=limit_of(options, self._model.n_ctx),
            stop=options.get("stop") or (),
            stop_tokens=options.get("stop_tokens", ()),
            tokenizer=self._tokenizer,
            # With several sequences the cells of memory lie in an order that others have a part in.
            exact=self.info.exact_widths is not None and self._model.max_sequences == 1,
            cancel=self._cancel,
            policy=policy,
            clock=self._clock,
            submitted=submitted,
            notify=options.get("notify"),
            prediction=self._predicted(options.get("prediction")),
            cache_prompt=options.get("cache_prompt", True),
            logprobs=options.get("logprobs"),
            prompt_logprobs=options.get("prompt_logprobs", False),
        )

    def _check_bias(self, params: SamplingParams) -> None:
        unknown = [token for token in params.logit_bias if token >= self._model.n_vocab]
        if unknown:
            last = self._model.n_vocab - 1
            raise OptionError(f"logit_bias names token {unknown[0]}, but the last one is {last}.")

    def _predicted(self, text: str | None) -> tuple[int, ...]:
        with self._open():
            return self._prompts.predicted(text or "")

    def forget(self) -> None:
        """Empty the memory: the next prompt finds no prefix. Raises as `exclusively` does."""
        self.exclusively(lambda: None)

    def exclusively(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread that owns the models, while nothing is generated.

        For measurements on the models themselves. Their memory is empty before and after.
        Raises OptionError while a request runs, EngineClosedError, and what `work` raises.
        """
        return self.between(lambda: self._alone(work)).result()

    def between(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the thread that owns the models, between two passes if there are any.

        It must leave their memory as it is; answers wait for it. Cancelling the future before its
        turn comes takes the work back. The future raises what `work` raises, and
        EngineClosedError. Raises EngineClosedError.
        """
        done: Future[T] = Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                if self._closing:
                    raise EngineClosedError("The engine was closed before the work began.")
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised where the result is awaited
                done.set_exception(error)

        with self._open():
            self._inbox.put(run)
        return done

    def tokenize(
        self, prompt: Prompt | None, messages: Messages | None = None, /, **template_options: Any
    ) -> list[int]:
        """The tokens a request would be given.

        Raises OptionError, TemplateError, EngineClosedError, and ContextFullError for what is too
        long to be worth counting.
        """
        with self._open():  # close() frees the tokenizer
            return self._prompts.tokens(prompt, messages, template_options)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """The tokens of a text as it is; see `Tokenizer.tokenize`. No second BOS is added.

        Raises EngineClosedError, and ContextFullError for what is too long to be worth counting.
        """
        with self._open():
            return self._prompts.encoded(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of some tokens alone; what is no whole character is marked.

        special: with the names of control tokens. Raises OptionError and EngineClosedError.
        """
        pieces = (self.piece(token, special=special) for token in tokens)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token adds to a text. special: of a control token, its name. Raises
        OptionError and EngineClosedError."""
        with self._open():
            return self._prompts.piece(token, special=special)

    def render(self, messages: Messages, /, **template_options: Any) -> str:
        """The prompt that a chat becomes. Raises OptionError and TemplateError."""
        return self._prompts.render(messages, template_options)

    @property
    def fim(self) -> Fim | str:
        """How this model fills in the middle of a text, or why it cannot."""
        return self._fim

    def fill_in(self, gap: Gap, room: Room | None = None) -> list[int]:
        """The prompt for what belongs into a gap. room: see `Fim.tokens`.

        Raises OptionError, EngineClosedError, and without room ContextFullError.
        """
        if isinstance(self._fim, str):
            raise OptionError(self._fim)
        if room is None:
            self._prompts.check_length(gap.prefix + gap.prompt + gap.suffix)
        with self._open():
            return self._fim.tokens(self._tokenizer, gap, room)

    def plain_token_s(self, depth: int) -> float | None:
        """Seconds that a pass of plain decoding takes now, behind `depth` tokens; None where that
        is not measured, because k is a fixed number."""
        known = self._policies.knowledge
        return None if known is None else 1.0 / known.plain_rate(1, depth)

    @property
    def has_template(self) -> bool:
        """Whether the model brings a usable chat template."""
        return self._prompts.has_template

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keeps the models from being freed meanwhile, but no other caller waiting.

        Raises EngineClosedError.
        """
        with self._lock:
            if self._closing:
                raise EngineClosedError("The engine is closed: load it again.")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._lock.notify_all()

    def close(self) -> None:
        """Cancel what runs and free the models. Idempotent."""
        with self._lock:
            if self._closing:
                first = False
            else:
                first = self._closing = True
                self._model.abort()
                self._inbox.put(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if first:
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What the engine thread does.

    def _work(self) -> None:
        while not self._closing:
            self._take_commands()
            if self._closing:
                break
            try:
                steps = self._scheduler.step() if self._scheduler.busy else []
            except DecodeAbortedError:
                if not self._closing:
                    self._model.allow()
            except Exception as error:  # noqa: BLE001  whoever waits must hear of it
                self._fail_all(error)
            else:
                self._hand_out(steps)
        with self._lock:
            self._lock.wait_for(lambda: self._users == 0)
        self._take_commands(wait=False)
        self._fail_all(EngineClosedError("The engine was closed during the answer."))

    def _take_commands(self, wait: bool = True) -> None:
        with suppress(queue.Empty):
            if wait and not self._scheduler.busy:
                self._inbox.get()()
            while True:
                self._inbox.get_nowait()()

    def _alone(self, work: Callable[[], T]) -> T:
        if self._scheduler.busy:
            raise OptionError("The engine is generating: wait for the end of the answer.")
        self._scheduler.forget()
        try:
            return work()
        finally:
            self._scheduler.forget()

    def _start(self, generation: Generation) -> None:
        if generation.cancelled:
            generation.end_cancelled()
            return
        try:
            self._scheduler.submit(generation.request)
        except EdgespecError as error:
            generation.fail(error)
        else:
            self._generations[generation.id] = generation

    def _hand_out(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._generations[step.request].take(step)
            if step.finish_reason:
                del self._generations[step.request]

    def _cancel(self, generation: Generation) -> None:
        """From any thread. A pass over a prompt may be long, so it is interrupted."""
        # In this order: an interrupted engine finds the command, and does not begin again.
        self._inbox.put(lambda: self._drop(generation))
        if not generation.started:
            self._model.abort()

    def _drop(self, generation: Generation) -> None:
        if not self._closing:
            self._model.allow()
        if self._generations.pop(generation.id, None):
            self._scheduler.cancel(generation.id)
            generation.end_cancelled()

    def _fail_all(self, error: Exception) -> None:
        for id, generation in list(self._generations.items()):
            del self._generations[id]
            self._scheduler.cancel(id)
            generation.fail(error)
