"""Asks one prompt in one mode, and brings what came back into one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgespec.bench.modes import Mode
from edgespec.bench.subject import Subject
from edgespec.bench.suite import Prompt
from edgespec.types import Completion, SamplingParams, Step

Message = dict[str, str]


@dataclass(slots=True)
class Answer:
    """The answers to all turns of a prompt; counts and seconds are sums over the turns."""

    tokens: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)  # none of llama.cpp's own loop
    prompts: list[list[int]] = field(default_factory=list)  # the tokens asked, per turn
    lengths: list[int] = field(default_factory=list)  # tokens answered, per turn
    cached: int = 0
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    prefill_s: float = 0.0
    finish_reason: str = ""


def ask(
    subject: Subject,
    prompt: Prompt,
    mode: Mode,
    params: SamplingParams,
    max_tokens: int,
    clock: Callable[[], float],
) -> Answer:
    """All turns of a prompt, from empty memory; later turns reuse what the earlier ones left.

    Raises what the engine raises; ContextFullError when a turn does not fit.
    """
    asker = _Asker(subject, mode, params, max_tokens, clock)
    subject.engine.forget()
    if not mode.native:
        return asker.ask(prompt, asker.by_engine)
    subject.native.forget()
    try:
        return subject.engine.exclusively(lambda: asker.ask(prompt, asker.by_native))
    except BaseException:  # Ctrl-C while waiting
        subject.native.stop()
        raise


class _Asker:
    def __init__(
        self,
        subject: Subject,
        mode: Mode,
        params: SamplingParams,
        max_tokens: int,
        clock: Callable[[], float],
    ) -> None:
        self.subject = subject
        self.mode = mode
        self.params = params
        self.max_tokens = max_tokens
        self.clock = clock
        self.answer = Answer()

    def ask(self, prompt: Prompt, turn: Callable[[Sequence[Message]], str]) -> Answer:
        """Turn by turn, each with the whole conversation so far."""
        messages: list[Message] = []
        for text in prompt.turns:
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": turn(messages)})
        return self.answer

    def by_engine(self, messages: Sequence[Message]) -> str:
        """One turn through the engine, as any user would ask it."""
        engine, answer = self.subject.engine, self.answer
        raw, chat = self._form(messages)
        answer.prompts.append(engine.tokenize(raw, chat))
        completion: Completion | None = None
        for chunk in engine.stream(
            raw,
            messages=chat,
            max_tokens=self.max_tokens,
            params=self.params,
            num_draft_tokens=self.mode.k,
            drafter=self.mode.drafter if self.mode.k else "auto",
        ):
            answer.steps += chunk.steps
            completion = chunk.completion
        assert completion is not None, "the last chunk carries the completion"
        answer.tokens += completion.tokens
        answer.lengths.append(len(completion.tokens))
        answer.cached += completion.usage.cached_tokens
        answer.ttft_s += completion.time_to_first_token_s
        answer.e2e_s += completion.total_s
        answer.prefill_s += completion.stats.prefill_s
        answer.finish_reason = completion.finish_reason
        return completion.text

    def by_native(self, messages: Sequence[Message]) -> str:
        """One turn through llama.cpp's own loop."""
        answer, tokenizer = self.answer, self.subject.tokenizer
        began = self.clock()
        prompt = self.subject.engine.tokenize(*self._form(messages))
        tokenized_s = self.clock() - began
        room = self.subject.engine.info.n_ctx - len(prompt)
        done = self.subject.native.generate(prompt, min(self.max_tokens, room))
        answer.prompts.append(prompt)
        answer.tokens += done.tokens
        answer.lengths.append(len(done.tokens))
        answer.cached += done.cached
        answer.ttft_s += tokenized_s + done.first_s
        answer.e2e_s += tokenized_s + done.total_s
        answer.prefill_s += done.first_s
        ended = tokenizer.ends_generation(done.tokens[-1])
        answer.finish_reason = "stop" if ended else "length"
        return b"".join(map(tokenizer.piece, done.tokens)).decode("utf-8", errors="replace")

    def _form(self, messages: Sequence[Message]) -> tuple[str | None, Sequence[Message] | None]:
        """A model without a chat template continues the conversation as plain text."""
        if self.subject.engine.has_template:
            return None, messages
        return "\n\n".join(message["content"] for message in messages), None
