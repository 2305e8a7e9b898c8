"""One answer in the making: what the engine thread fills and a caller reads."""

from __future__ import annotations

import queue
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal, TypedDict, Unpack

from edgespec.decoding import stats
from edgespec.decoding.sequence import Request
from edgespec.errors import EdgespecError
from edgespec.protocols import DraftPolicy, Tokenizer
from edgespec.text.stream import TextStream
from edgespec.types import (
    TARGET,
    Chunk,
    Completion,
    FinishReason,
    Piece,
    SamplingParams,
    Step,
    Usage,
)


class RequestDetails(TypedDict, total=False):
    """See Request."""

    prediction: tuple[int, ...]
    logprobs: int | None
    prompt_logprobs: bool
    cache_prompt: bool


class Generation:
    """Returned by `Engine.submit`. Read it once: `chunks()`, `result()` or `ready()`.

    notify: called on the engine's thread whenever there is more to read; when it raises, nobody
    listens any more, and the generation is cancelled.
    """

    def __init__(
        self,
        *,
        id: int,
        prompt: Sequence[int],
        params: SamplingParams,
        max_tokens: int,
        stop: Sequence[str],
        tokenizer: Tokenizer,
        exact: bool,
        cancel: Callable[[Generation], None],
        policy: DraftPolicy | None,
        clock: Callable[[], float],
        submitted: float,
        stop_tokens: Container[int] = (),
        notify: Callable[[], None] | None = None,
        **more: Unpack[RequestDetails],
    ) -> None:
        self.id = id
        self.cancelled = False
        # Only to read the prompt: a token is sampled all the same, and nobody sees it.
        self._reads_only = max_tokens == 0
        self.request = Request(
            id=id,
            prompt=tuple(prompt),
            params=params,
            max_tokens=max(max_tokens, 1),
            ends=self._ends,
            policy=policy,
            **more,
        )
        self._text = TextStream(tokenizer.piece, stop)
        self._tokenizer = tokenizer
        self._exact = exact
        self._tell_engine = cancel
        self._chunks: queue.SimpleQueue[Chunk | Exception] = queue.SimpleQueue()
        self._steps: list[Step] = []
        self._texts: list[str] = []
        self._clock = clock
        self._submitted = submitted
        self._first_token: float | None = None
        self._stop_tokens = stop_tokens
        self._notify = notify

    # The caller's side.

    def chunks(self) -> Chunks:
        """Chunks as they come; letting go of the iterator early cancels the generation."""
        return Chunks(self._chunks, self.cancel)

    def result(self) -> Completion:
        """Wait for the end. Raises what went wrong."""
        completion = None
        for chunk in self.chunks():
            completion = chunk.completion
        assert completion is not None, "the last chunk carries the completion"
        return completion

    def ready(self) -> list[Chunk]:
        """What has come since the last call, without waiting; the last chunk of all carries the
        completion. Raises what went wrong, once all that came before it was returned."""
        chunks: list[Chunk] = []
        while True:
            try:
                item = self._chunks.get_nowait()
            except queue.Empty:
                return chunks
            if not isinstance(item, Exception):
                chunks.append(item)
            elif chunks:
                self._chunks.put(item)  # nothing comes after it
                return chunks
            else:
                raise item

    def cancel(self) -> None:
        """Stop soon; the partial answer ends with finish_reason "cancelled". Idempotent."""
        if not self.cancelled:
            self.cancelled = True
            self._tell_engine(self)

    # The engine thread's side.

    @property
    def started(self) -> bool:
        """Whether the first token is out."""
        return self._first_token is not None

    def take(self, step: Step) -> None:
        """One more Step of this generation, in order."""
        if step.tokens and self._first_token is None:
            self._first_token = self._clock()
        if self._reads_only and step.tokens:
            step = replace(step, tokens=(), sources=(), logprobs=(), finish_reason="length")
        self._steps.append(step)
        pieces = self._text.take_pieces()
        if step.finish_reason:
            pieces.append(self._text.finish())
        self._put(pieces, (step,), step.finish_reason)

    def end_cancelled(self) -> None:
        """The engine has let go of it."""
        self._put([self._text.finish()], (), "cancelled")

    def fail(self, error: Exception) -> None:
        """It cannot go on."""
        self._chunks.put(_fresh(error))
        self._tell()

    def _ends(self, token: int) -> bool:
        if self._reads_only:
            return False
        if token in self._stop_tokens or self._tokenizer.ends_generation(token):
            return True
        return self._text.feed(token)

    def _put(
        self, texts: Sequence[str], steps: tuple[Step, ...], reason: FinishReason | None
    ) -> None:
        text = "".join(texts)
        self._texts.append(text)
        sources = [source for step in steps for source in step.sources]
        # What is left at the end belongs to no token any more.
        pieces = zip_longest(texts, sources[: len(texts)], fillvalue=TARGET)
        self._chunks.put(
            Chunk(
                text=text,
                pieces=tuple(Piece(text, source) for text, source in pieces if text),
                steps=steps,
                finish_reason=reason,
                completion=self._completion(reason) if reason else None,
            )
        )
        self._tell()

    def _tell(self) -> None:
        if self._notify is None:
            return
        try:
            self._notify()
        except Exception:  # noqa: BLE001  whoever listened has gone, perhaps with his event loop
            self.cancel()

    def _completion(self, reason: FinishReason) -> Completion:
        now = self._clock()
        tokens = tuple(token for step in self._steps for token in step.tokens)
        return Completion(
            text="".join(self._texts),
            tokens=tokens,
            finish_reason=reason,
            usage=Usage(
                prompt_tokens=len(self.request.prompt),
                cached_tokens=self._steps[0].cached if self._steps else 0,
                completion_tokens=len(tokens),
            ),
            stats=stats.collect(self._steps),
            seed=self.request.params.seed or 0,
            claim=self._claim(),
            time_to_first_token_s=(self._first_token or now) - self._submitted,
            total_s=now - self._submitted,
            stop=self._text.found,
            steps=tuple(self._steps),
        )

    def _claim(self) -> Literal["identical", "same distribution"]:
        alone = all(step.rows == step.pass_rows for step in self._steps)
        plain = all(step.drafted == 0 for step in self._steps)
        return "identical" if alone and (plain or self._exact) else "same distribution"


class Chunks(Iterator[Chunk]):
    """Reads one generation. Not a generator function: one that was never asked for its first
    item would not notice that it is thrown away."""

    def __init__(self, queue: queue.SimpleQueue[Chunk | Exception], cancel: Callable[[], None]):
        self._queue = queue
        self._cancel = cancel
        self._finished = False

    def __next__(self) -> Chunk:
        if self._finished:
            raise StopIteration
        try:
            item = self._queue.get()
        except BaseException:  # Ctrl-C while waiting
            self.close()
            raise
        self._finished = isinstance(item, Exception) or item.finish_reason is not None
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        """Cancel the generation unless it is over. Idempotent."""
        if not self._finished:
            self._finished = True
            self._cancel()

    def __del__(self) -> None:
        self.close()


def _fresh(error: Exception) -> Exception:
    """Several callers may wait: each gets an exception of its own, so tracebacks do not mix."""
    if isinstance(error, EdgespecError):
        copy = type(error)(*error.args)
        copy.__cause__ = error
        return copy
    return error
