"""The engine thread on the fake model: every caller gets its own answer, error or end.

Passes of the fake can be held at a gate, so that what happens during a pass is certain.
"""

from __future__ import annotations

import copy
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from edgespec.decoding.sampling import Sampler
from edgespec.errors import (
    BackendError,
    ContextFullError,
    EngineClosedError,
    OptionError,
    TemplateError,
)
from edgespec.generation import Chunks, _fresh
from edgespec.protocols import Logits, Row
from edgespec.text.template import ChatTemplate
from edgespec.types import Chunk, Completion, SamplingParams
from tests.fake_engine import PATIENCE, PROMPT, WARM, Loaded, V, readable
from tests.fakes import FakeTokenizer, Table

Make = Callable[..., Loaded]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes engines, and sees to it that each one's thread ends."""
    made: list[Loaded] = []

    def one(*arguments: Any, **options: Any) -> Loaded:
        made.append(Loaded(*arguments, **options))
        return made[-1]

    yield one
    for loaded in made:
        loaded.model.release()
        loaded.engine.close()
        assert not loaded.engine._thread.is_alive()
        assert len(loaded.freed) == 1


def text_of(tokens: Sequence[int]) -> str:
    return b"".join(map(FakeTokenizer().piece, tokens)).decode()


def plain(logits: Table, prompt: str, count: int) -> str:
    """The reference: no engine, no scheduler."""
    sampler = Sampler(SamplingParams(**WARM))
    tokens = FakeTokenizer().tokenize(prompt, add_special=True, parse_special=False)
    start = len(tokens)
    while len(tokens) < start + count:
        tokens.append(sampler.sample(logits(tokens), tokens))
    return text_of(tokens[start:])


# Answers.


@pytest.mark.parametrize("k", [0, 4])
def test_an_answer_is_that_of_the_plain_sampler(k: int, make: Make) -> None:
    answer = make(k=k).generate()
    assert answer.text == plain(readable(), PROMPT, 40)
    assert text_of(answer.tokens) == answer.text
    assert answer.finish_reason == "length"
    assert answer.usage.prompt_tokens == len(PROMPT) + 1
    assert answer.usage.completion_tokens == answer.stats.emitted == 40
    assert answer.usage.cached_tokens == 0
    assert (answer.stats.drafted > answer.stats.accepted > 0) == (k > 0)
    assert 0.0 <= answer.time_to_first_token_s <= answer.total_s


@pytest.mark.parametrize("k", [0, 4])
def test_streamed_chunks_add_up_to_the_answer(k: int, make: Make) -> None:
    loaded = make(k=k)
    chunks = list(loaded.engine.stream(PROMPT, max_tokens=40, **WARM))
    whole = chunks[-1].completion
    assert whole is not None
    assert "".join(chunk.text for chunk in chunks) == whole.text == loaded.generate().text
    emitted = [token for chunk in chunks for step in chunk.steps for token in step.tokens]
    assert tuple(emitted) == whole.tokens
    for chunk in chunks[:-1]:
        assert chunk.completion is None
        assert chunk.finish_reason is None
    assert chunks[-1].finish_reason == whole.finish_reason


def test_the_end_of_generation(make: Make) -> None:
    for k in (0, 4):
        answer = make(readable(end=2.0), k=k).generate(max_tokens=None)
        assert answer.finish_reason == "stop"
        assert answer.tokens[-1] == FakeTokenizer.END
        assert text_of(answer.tokens) == answer.text


def test_an_answer_may_fill_the_context(make: Make) -> None:
    answer = make(n_ctx=64).generate(max_tokens=None)
    assert answer.finish_reason == "context"
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == 64


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("k", [0, 4])
def test_max_tokens(limit: int, k: int, make: Make) -> None:
    answer = make(k=k).generate(max_tokens=limit)
    assert len(answer.tokens) == limit
    assert answer.finish_reason == "length"


@pytest.mark.parametrize(("start", "length"), [(0, 2), (1, 3), (7, 4), (12, 1), (20, 9)])
def test_stop_strings_cut_text_and_tokens_alike_whatever_k(
    start: int, length: int, make: Make
) -> None:
    whole = plain(readable(), PROMPT, 40)
    stop = whole[start : start + length]
    at = whole.index(stop)
    for k in (0, 1, 4, 8):
        answer = make(k=k).generate(stop=[stop, "never seen"])
        assert answer.text == whole[:at]
        assert text_of(answer.tokens) == whole[: at + length]
        assert answer.finish_reason == "stop"


@pytest.mark.parametrize("k", [0, 4])
def test_no_streamed_text_is_taken_back(k: int, make: Make) -> None:
    whole = plain(readable(), PROMPT, 40)
    stop = [whole[10:16], whole[3:5] + "#"]  # one comes, one only begins
    chunks = list(make(k=k).engine.stream(PROMPT, stop=stop, max_tokens=40, **WARM))
    assert "".join(chunk.text for chunk in chunks) == whole[:10]


def test_what_was_held_back_for_a_stop_string_comes_at_the_end(make: Make) -> None:
    whole = plain(readable(), PROMPT, 20)
    answer = make().generate(max_tokens=20, stop=[whole[-3:] + "#"])
    assert answer.text == whole


# Options.


def test_a_drawn_seed_is_reported_and_reproduces_the_answer(make: Make) -> None:
    loaded = make()
    first = loaded.generate(seed=None)
    other = loaded.generate(seed=None)
    assert first.seed != other.seed
    assert first.text != other.text
    assert loaded.generate(seed=first.seed).text == first.text
    assert loaded.generate(seed=0).seed == 0


def test_params_and_keywords_go_together(make: Make) -> None:
    loaded = make()
    params = SamplingParams(**WARM)
    usual = loaded.engine.generate(PROMPT, params=params, max_tokens=30)
    assert usual.text == loaded.generate(max_tokens=30).text
    other = loaded.engine.generate(PROMPT, params=params, max_tokens=30, seed=6)
    assert other.seed == 6
    assert other.text != usual.text
    greedy = loaded.engine.generate(PROMPT, params=params, max_tokens=30, temperature=0.0)
    assert greedy.text == loaded.generate(temperature=0.0, max_tokens=30, seed=99).text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 1.0}, "no option temprature: did you mean temperature?"),
        ({"xyz": 1}, "no option xyz: known are temperature,"),
        ({"temperature": -1.0}, "temperature must be 0, or between"),
        ({"seed": -1}, "seed must be between"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"temperature": "0"}, "temperature must be a number, not '0'"),
        ({"top_k": True}, "top_k must be a whole number, not True"),
        ({"max_tokens": "5"}, "max_tokens must be a whole number"),
        ({"logit_bias": {10**9: 1.0}}, "logit_bias names token 1000000000, but the last one is"),
        ({"max_tokens": -3}, "max_tokens must be a whole number from 0 on"),
        ({"max_tokens": 2.5}, "max_tokens must be a whole number from 0 on"),
        ({"logprobs": -1}, "logprobs must be a whole number from 0 to 100"),
        ({"logprobs": 101}, "logprobs must be a whole number from 0 to 100"),
        ({"logprobs": True}, "logprobs must be a whole number from 0 to 100, not True"),
        ({"max_tokens": True}, "max_tokens must be a whole number from 0 on, not True"),
        ({"stop": "word"}, "not a list"),
        ({"stop": [""]}, "empty"),
        ({"messages": [{"role": "user", "content": "x"}]}, "either a prompt or messages"),
        ({"prompt": None}, "either a prompt or messages"),
        ({"prompt": None, "messages": []}, "no messages"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str, make: Make) -> None:
    loaded = make()
    with pytest.raises(OptionError) as caught:
        loaded.engine.submit(**{"prompt": PROMPT, **options})
    assert message in str(caught.value)
    assert loaded.model.passes == 0
    assert len(loaded.generate(max_tokens=3).tokens) == 3


def test_an_empty_prompt_begins_with_bos_where_there_is_one(make: Make) -> None:
    assert make().generate("").usage.prompt_tokens == 1

    class WithoutBos(FakeTokenizer):
        adds_bos = False

        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            return super().tokenize(text, add_special=False, parse_special=parse_special)

    with pytest.raises(OptionError, match="prompt is empty"):
        make(tokenizer=WithoutBos()).generate("")


def test_a_prompt_that_does_not_fit(make: Make) -> None:
    loaded = make(n_ctx=32)
    with pytest.raises(ContextFullError, match="32 tokens but the context holds 32"):
        loaded.generate("x" * 31)
    assert len(loaded.generate("x" * 30).tokens) == 1


def test_a_prompt_may_be_tokens(make: Make) -> None:
    loaded = make()
    tokens = loaded.engine.tokenize(PROMPT)
    assert loaded.generate(tokens).text == loaded.generate().text  # type: ignore[arg-type]
    assert loaded.engine.tokenize(tuple(tokens)) == tokens
    # As they are: no BOS is added, control tokens are not text.
    assert loaded.engine.tokenize([FakeTokenizer.NAMED_END]) == [FakeTokenizer.NAMED_END]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "prompt is empty"),
        ([1, V], f"outside 0 to {V - 1}"),
        ([-1], f"outside 0 to {V - 1}"),
        ([1, 2.0], "a list of token ids, not of 2.0"),
        ([True], "a list of token ids, not of True"),
        (["a"], "a list of token ids, not of 'a'"),
        (b"ab", "a list of token ids, not bytes"),
        (7, "a list of token ids, not int"),
        ({1, 2}, "a list of token ids, not set"),
    ],
)
def test_tokens_that_are_no_prompt(tokens: Any, message: str, make: Make) -> None:
    with pytest.raises(OptionError, match=message):
        make().generate(tokens)


def test_tokens_that_do_not_fit(make: Make) -> None:
    loaded = make(n_ctx=32)
    with pytest.raises(ContextFullError, match="32 tokens but the context holds 32") as caught:
        loaded.engine.submit([7] * 32)
    assert (caught.value.prompt_tokens, caught.value.n_ctx) == (32, 32)


def test_a_prompt_too_long_to_be_worth_counting(make: Make) -> None:
    class Patient(FakeTokenizer):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            assert len(text) <= 32 * self.longest_piece, "this would take long"
            return super().tokenize(text, add_special=add_special, parse_special=parse_special)

    engine = make(n_ctx=32, tokenizer=Patient()).engine
    most = "x" * (32 * FakeTokenizer.longest_piece)
    with pytest.raises(ContextFullError, match="321 tokens but") as counted:
        engine.submit(most)
    assert counted.value.prompt_tokens == 321
    for ask in (
        lambda: engine.submit(most + "x"),
        lambda: engine.tokenize(most + "x"),
        lambda: engine.submit(messages=[{"role": "user", "content": most}]),
    ):
        with pytest.raises(ContextFullError, match="more tokens than are worth") as caught:
            ask()
        assert (caught.value.prompt_tokens, caught.value.n_ctx) == (None, 32)
    # What is longer than any answer is cut.
    assert engine.generate("a", prediction=most + "x").tokens


def test_a_context_error_keeps_its_numbers() -> None:
    error = ContextFullError("Too long.", 9, 8)
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error)), _fresh(error)):
        assert same is not error
        assert isinstance(same, ContextFullError)
        assert (str(same), same.prompt_tokens, same.n_ctx) == ("Too long.", 9, 8)
    assert ContextFullError("Too long.").prompt_tokens is None


def test_the_template_gets_more_variables(make: Make) -> None:
    source = "{{ messages[0].content }}{% if think %} think{% endif %}{{ prompt }}"
    engine = make(template=ChatTemplate(source, bos="<s>", eos="</s>")).engine
    messages = [{"role": "user", "content": "x"}]
    assert engine.render(messages) == "x"
    # Names that are arguments elsewhere are names like others.
    wished = {"think": True, "prompt": "!"}
    assert engine.render(messages, **wished) == "x think!"
    assert text_of(engine.tokenize(None, messages, **wished)) == "x think!"
    generation = engine.prepare(messages=messages, template_options=wished)
    assert text_of(generation.request.prompt) == "x think!"
    with pytest.raises(OptionError, match="messages is set by edgespec"):
        engine.prepare(messages=messages, template_options={"messages": []})
    with pytest.raises(OptionError, match="no messages"):
        engine.render([])


def test_the_bytes_of_a_token(make: Make) -> None:
    engine = make().engine
    assert [engine.piece(token) for token in (97, 0xC3, FakeTokenizer.END)] == [b"a", b"\xc3", b""]
    for outside in (-1, V):
        with pytest.raises(OptionError, match=f"outside 0 to {V - 1}"):
            engine.piece(outside)
    assert engine.detokenize([104, 105, 0xC3]) == "hi\ufffd"


def test_messages_go_through_the_template(make: Make) -> None:
    loaded = make()
    assert loaded.engine.has_template
    messages = [{"role": "user", "content": "Hello"}]
    tokens = loaded.engine.tokenize(None, messages)
    assert tokens[0] == FakeTokenizer.BOS
    assert tokens.count(FakeTokenizer.NAMED_END) == 1
    asked = "<|im_start|>user\nHello\n<|im_start|>assistant\n"
    assert text_of(tokens) == asked
    answer = loaded.generate(None, messages=messages)
    assert answer.usage.prompt_tokens == len(tokens)


def test_control_tokens_in_a_prompt_are_text(make: Make) -> None:
    tokens = make().engine.tokenize("a<|im_end|>b")
    assert FakeTokenizer.NAMED_END not in tokens


def test_bos_is_not_doubled(make: Make) -> None:
    class Named(FakeTokenizer):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            rest = text.removeprefix("<s>") if parse_special else text
            written = [self.BOS] if rest != text else []
            return written + super().tokenize(
                rest, add_special=add_special, parse_special=parse_special
            )

    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", bos="<s>", eos="</s>")
    engine = make(template=template, tokenizer=Named()).engine
    tokens = engine.tokenize(None, [{"role": "user", "content": "x"}])
    assert tokens == [FakeTokenizer.BOS, ord("x")]


def test_without_a_template_messages_fail_and_prompts_work(make: Make) -> None:
    loaded = make(template=TemplateError("There is no template."))
    assert not loaded.engine.has_template
    raised = []
    for _ in range(2):
        with pytest.raises(TemplateError, match=r"There is no template\.") as caught:
            loaded.generate(None, messages=[{"role": "user", "content": "x"}])
        raised.append(caught.value)
    assert raised[0] is not raised[1], "one exception in two callers mixes up tracebacks"
    assert len(loaded.generate().tokens) == 40


# Prefixes and claims.


@pytest.mark.parametrize("k", [0, 4])
def test_the_next_turn_reads_only_what_is_new(k: int, make: Make) -> None:
    loaded = make(k=k)
    first = loaded.generate()
    again = loaded.generate(PROMPT + first.text + " and", max_tokens=5)
    # The last token of an answer was never decoded.
    assert again.usage.cached_tokens == first.usage.prompt_tokens + 39
    assert again.stats.prefilled == again.usage.prompt_tokens - again.usage.cached_tokens == 5
    assert again.text == make().generate(PROMPT + first.text + " and", max_tokens=5).text


@pytest.mark.parametrize(
    ("k", "exact", "claim"),
    [
        (0, None, "identical"),
        (0, frozenset({1}), "identical"),
        (4, None, "same distribution"),
        (4, frozenset({1, 2, 3, 4, 5}), "identical"),
        (4, frozenset({1}), "identical"),
    ],
)
def test_what_is_claimed_of_an_answer_alone(
    k: int, exact: frozenset[int] | None, claim: str, make: Make
) -> None:
    assert make(k=k, exact=exact, max_sequences=1).generate().claim == claim


def test_others_may_have_left_holes_in_memory(make: Make) -> None:
    widths = frozenset({1, 2, 3, 4, 5})
    assert make(k=4, exact=widths, max_sequences=2).generate().claim == "same distribution"


def test_less_is_claimed_in_company(make: Make) -> None:
    loaded = make(k=0, exact=frozenset({1}))
    loaded.model.hold()
    one, two = loaded.submit(), loaded.submit("Another prompt")
    loaded.model.release()
    assert {one.result().claim, two.result().claim} == {"same distribution"}


# Company.


def test_eight_threads_on_four_sequences_get_their_solo_answers(make: Make) -> None:
    loaded = make(readable(end=-1.0), k=3, max_sequences=4)
    prompts = [f"{'ab' * i} prompt {i}" for i in range(24)]
    alone = [Loaded(readable(end=-1.0)) for _ in prompts]
    wanted = [
        one.generate(prompt, seed=i)
        for i, (one, prompt) in enumerate(zip(alone, prompts, strict=True))
    ]
    for one in alone:
        one.engine.close()
    start = threading.Barrier(8)

    def ask(first: int) -> list[Completion]:
        start.wait(PATIENCE)
        return [loaded.generate(prompts[i], seed=i) for i in range(first, 24, 8)]

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(ask, range(8)))
    for i in range(24):
        answer = parts[i % 8][i // 8]
        assert answer.text == wanted[i].text
        assert answer.finish_reason == wanted[i].finish_reason


def test_waiting_requests_get_their_turn(make: Make) -> None:
    loaded = make(max_sequences=1)
    generations = [loaded.submit(f"prompt {i}", max_tokens=5) for i in range(6)]
    for i, generation in enumerate(generations):
        assert generation.result().text == plain(readable(), f"prompt {i}", 5)


# Leaving early.


class Annoyed(Exception):
    pass


def leave_by_break(chunks: Iterator[Chunk]) -> None:
    for _ in chunks:
        break


def leave_by_exception(chunks: Iterator[Chunk]) -> None:
    with suppress(Annoyed):
        for _ in chunks:
            raise Annoyed


def leave_without_reading(chunks: Iterator[Chunk]) -> None:
    pass


def leave_by_close(chunks: Iterator[Chunk]) -> None:
    assert isinstance(chunks, Chunks)
    next(chunks)
    chunks.close()
    assert list(chunks) == []


@pytest.mark.parametrize(
    "leave", [leave_by_break, leave_by_exception, leave_without_reading, leave_by_close]
)
@pytest.mark.parametrize("k", [0, 4])
def test_an_abandoned_stream_is_cancelled(
    leave: Callable[[Iterator[Chunk]], None], k: int, make: Make
) -> None:
    loaded = make(k=k, n_ctx=10**6, max_sequences=1)
    leave(loaded.engine.stream(PROMPT, **WARM))
    # The only slot is free again, or this would wait for a million tokens.
    assert loaded.generate("next").text == plain(readable(), "next", 40)
    assert loaded.generate().text == plain(readable(), PROMPT, 40)


def test_ctrl_c_while_waiting_cancels() -> None:
    class Interrupted:
        def get(self) -> Chunk:
            raise KeyboardInterrupt

    cancelled: list[bool] = []
    chunks = Chunks(Interrupted(), lambda: cancelled.append(True))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        next(chunks)
    assert cancelled == [True]
    del chunks
    assert cancelled == [True]


def test_a_finished_stream_cancels_nothing(make: Make) -> None:
    loaded = make()
    generation = loaded.submit(max_tokens=3)
    chunks = generation.chunks()
    assert [chunk.finish_reason for chunk in chunks][-1] == "length"
    chunks.close()
    del chunks
    assert not generation.cancelled


# Cancelling.


def test_cancel_before_the_engine_took_it_in(make: Make) -> None:
    loaded = make(max_sequences=1)
    loaded.model.hold()
    first = loaded.submit()
    loaded.model.wait()  # the engine is in a pass: the next commands lie in the inbox
    second = loaded.submit("Never mind")
    second.cancel()
    second.cancel()
    loaded.model.release()
    answer = second.result()
    assert (answer.finish_reason, answer.text, answer.tokens) == ("cancelled", "", ())
    assert answer.usage.cached_tokens == answer.usage.completion_tokens == 0
    assert first.result().text == plain(readable(), PROMPT, 40)


def test_cancel_while_waiting_for_a_slot(make: Make) -> None:
    loaded = make(max_sequences=1)
    loaded.model.hold()
    first, second = loaded.submit(), loaded.submit("Never mind")
    loaded.model.let(3)
    loaded.model.wait(4)
    second.cancel()  # interrupts the pass of the first one, which is then repeated
    assert second.result().finish_reason == "cancelled"
    loaded.model.release()
    assert first.result().text == plain(readable(), PROMPT, 40)


def test_cancel_during_prefill_interrupts_the_pass(make: Make) -> None:
    prompt = "long " * 120
    loaded = make(n_ctx=1000)
    loaded.model.hold()
    generation = loaded.submit(prompt)
    loaded.model.wait()
    loaded.model.let(1)
    loaded.model.wait(2)
    generation.cancel()  # nobody lets the second pass go
    answer = generation.result()
    assert answer.finish_reason == "cancelled"
    assert answer.tokens == ()
    assert answer.stats.prefilled == 256
    loaded.model.release()
    assert loaded.generate(prompt).text == plain(readable(), prompt, 40)
    assert not loaded.model.aborted


@pytest.mark.parametrize("k", [0, 4])
def test_cancel_during_decoding_keeps_the_partial_text(k: int, make: Make) -> None:
    loaded = make(k=k)
    loaded.model.hold()
    generation = loaded.submit()
    loaded.model.let(4)
    loaded.model.wait(5)
    generation.cancel()
    loaded.model.release()
    answer = generation.result()
    assert answer.finish_reason == "cancelled"
    assert len(answer.tokens) >= 4
    assert answer.text == text_of(answer.tokens) == plain(readable(), PROMPT, len(answer.tokens))
    assert loaded.generate().text == plain(readable(), PROMPT, 40)


def test_cancel_gives_what_was_held_back_for_a_stop_string(make: Make) -> None:
    whole = plain(readable(), PROMPT, 5)
    loaded = make()
    loaded.model.hold()
    generation = loaded.submit(stop=[whole[3:] + "#"])
    loaded.model.let(4)
    loaded.model.wait(5)
    generation.cancel()
    loaded.model.release()
    assert generation.result().text == whole


def test_an_abort_that_comes_late_costs_one_pass(make: Make) -> None:
    """The command to cancel is in the inbox first, so its abort may hit the next request."""
    loaded = make()
    loaded.model.abort()
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(loaded.generate).result(PATIENCE)
        finally:
            loaded.engine.close()
    assert answer.text == plain(readable(), PROMPT, 40)


def test_cancel_in_company_leaves_the_others_alone(make: Make) -> None:
    loaded = make(k=3)
    loaded.model.hold()
    generations = [loaded.submit(f"prompt {i}") for i in range(4)]
    loaded.model.let(2)
    loaded.model.wait(3)
    generations[3].cancel()  # still reads its prompt: the pass of all is interrupted
    loaded.model.let(3)
    loaded.model.wait(7)
    generations[0].cancel()
    loaded.model.release()
    reasons = [generation.result().finish_reason for generation in generations]
    assert reasons == ["cancelled", "length", "length", "cancelled"]
    for i in (1, 2):
        assert text_of([t for s in generations[i]._steps for t in s.tokens]) == plain(
            readable(), f"prompt {i}", 40
        )


def test_cancel_after_the_end_changes_nothing(make: Make) -> None:
    loaded = make()
    generation = loaded.submit(max_tokens=3)
    answer = generation.result()
    generation.cancel()
    assert answer.finish_reason == "length"
    assert len(loaded.generate(max_tokens=3).tokens) == 3


# Failing.


@pytest.mark.parametrize("error", [BackendError("llama.cpp is broken."), RuntimeError("a bug")])
@pytest.mark.parametrize("k", [0, 4])
def test_a_failed_pass_reaches_everyone_and_the_engine_goes_on(
    error: Exception, k: int, make: Make
) -> None:
    loaded = make(k=k, max_sequences=2)
    loaded.model.hold()
    generations = [loaded.submit(f"prompt {i}") for i in range(4)]  # two of them wait
    loaded.model.let(5)
    loaded.model.wait(6)
    loaded.model.fail_next = error
    loaded.model.release()
    raised = []
    for generation in generations:
        with pytest.raises(type(error), match=str(error)) as caught:
            generation.result()
        raised.append(caught.value)
    if isinstance(error, BackendError):
        assert len(set(map(id, raised))) == 4
        assert all(one.__cause__ is error for one in raised)
    assert loaded.generate().text == plain(readable(), PROMPT, 40)


def test_a_failure_ends_a_stream_after_what_was_said(make: Make) -> None:
    loaded = make()
    loaded.model.hold()
    chunks = loaded.engine.stream(PROMPT, max_tokens=40, **WARM)
    loaded.model.let(3)
    loaded.model.wait(4)
    loaded.model.fail_next = BackendError("broken")
    loaded.model.release()
    said = "".join(next(chunks).text for _ in range(3))
    assert said == plain(readable(), PROMPT, 3)
    with pytest.raises(BackendError, match="broken"):
        next(chunks)
    assert list(chunks) == []


def test_logits_that_are_no_numbers_are_an_error(make: Make) -> None:
    def broken(tokens: Sequence[int]) -> Logits:
        return np.full(V, np.nan, np.float32)

    with pytest.raises(BackendError, match="best logit is nan"):
        make(broken).generate()


# Closing.


def test_close_ends_a_stream_with_an_error(make: Make) -> None:
    loaded = make()
    loaded.model.hold()
    chunks = loaded.engine.stream(PROMPT, **WARM)
    loaded.model.let(2)
    loaded.model.wait(3)
    loaded.engine.close()  # nobody lets the third pass go
    assert loaded.freed == ["MainThread"]
    with pytest.raises(EngineClosedError, match="closed during the answer"):
        list(chunks)


def test_close_reaches_everyone_who_waits(make: Make) -> None:
    loaded = make(max_sequences=1)
    loaded.model.hold()
    generations = [loaded.submit()]
    loaded.model.wait()
    generations += [loaded.submit(f"prompt {i}") for i in range(3)]  # still in the inbox
    loaded.engine.close()
    for generation in generations:
        with pytest.raises(EngineClosedError):
            generation.result()
        generation.cancel()


def test_close_from_a_consumer_and_from_several_threads(make: Make) -> None:
    loaded = make(n_ctx=10**6)
    chunks = loaded.engine.stream(PROMPT, **WARM)
    next(chunks)
    start = threading.Barrier(4)

    def close() -> None:
        start.wait(PATIENCE)
        loaded.engine.close()

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert len(loaded.freed) == 1
    with pytest.raises(EngineClosedError):
        list(chunks)


def test_use_after_close(make: Make) -> None:
    loaded = make()
    prepared = loaded.engine.prepare(PROMPT)
    loaded.engine.close()
    loaded.engine.close()
    uses: list[Callable[[], object]] = [
        lambda: loaded.engine.generate(PROMPT),
        lambda: loaded.engine.stream(PROMPT),
        lambda: loaded.engine.submit(messages=[{"role": "user", "content": "x"}]),
        lambda: loaded.engine.tokenize(PROMPT),
        lambda: loaded.engine.piece(97),
        lambda: loaded.engine.start(prepared),
    ]
    for use in uses:
        with pytest.raises(EngineClosedError, match="load it again"):
            use()
    assert loaded.freed == ["MainThread"]


def test_nothing_is_tokenized_while_the_models_are_freed(make: Make) -> None:
    """The tokenizer lies in the model: a caller in the middle of it would read freed memory."""
    inside, leave = threading.Event(), threading.Event()

    class Slow(FakeTokenizer):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            inside.set()
            assert leave.wait(PATIENCE)
            assert not loaded.freed
            return super().tokenize(text, add_special=add_special, parse_special=parse_special)

    loaded = make(tokenizer=Slow())
    with ThreadPoolExecutor(2) as pool:
        tokens = pool.submit(loaded.engine.tokenize, PROMPT)
        assert inside.wait(PATIENCE)
        closing = pool.submit(loaded.engine.close)
        leave.set()
        assert len(tokens.result(PATIENCE)) == len(PROMPT) + 1
        closing.result(PATIENCE)


def test_the_context_manager_closes(make: Make) -> None:
    loaded = make()
    with loaded.engine as engine:
        assert engine.generate(PROMPT, max_tokens=2).tokens
    assert loaded.freed == ["MainThread"]
    with pytest.raises(Annoyed), make().engine as other:
        raise Annoyed
    with pytest.raises(EngineClosedError):
        other.generate(PROMPT)


# A request with wishes of its own, and work between requests.


def test_a_request_may_have_its_own_k_and_drafter(make: Make) -> None:
    loaded = make(k=2)
    usual = loaded.generate()
    plain = loaded.generate(num_draft_tokens=0)
    longer = loaded.generate(num_draft_tokens=5)
    named = loaded.generate(drafter="half")
    assert usual.tokens == plain.tokens == longer.tokens == named.tokens
    assert max(usual.stats.lengths) == 2
    assert plain.stats.drafted == 0
    assert max(longer.stats.lengths) == 5
    assert named.stats.lengths == usual.stats.lengths


def test_requests_with_different_wishes_run_side_by_side(make: Make) -> None:
    loaded = make(k=2)
    wishes: list[dict[str, Any]] = [{}, {"num_draft_tokens": 0}, {"num_draft_tokens": 4}]
    loaded.model.hold()
    running = [loaded.submit(**wish) for wish in wishes]
    loaded.model.release()
    usual, plain, longer = [generation.result() for generation in running]
    assert usual.tokens == plain.tokens == longer.tokens
    assert (max(usual.stats.lengths), plain.stats.drafted) == (2, 0)
    assert max(longer.stats.lengths) == 4


def test_a_wish_keeps_to_exact_widths(make: Make) -> None:
    loaded = make(k=1, exact=frozenset({1, 2, 3}), max_sequences=1)
    done = loaded.generate(num_draft_tokens=7)
    assert max(done.stats.lengths) == 2
    assert done.claim == "identical"


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"num_draft_tokens": -1}, "between 0 and 32, not -1"),
        ({"num_draft_tokens": 33}, "between 0 and 32, not 33"),
        ({"num_draft_tokens": "3"}, "not '3'"),
        ({"num_draft_tokens": True}, "not True"),
        ({"num_draft_tokens": 0, "drafter": "model"}, "no drafter 'model' here; loaded: half"),
        ({"num_draft_tokens": 3, "drafter": "model"}, "no drafter 'model' here; loaded: half"),
        ({"drafter": "modell"}, "no drafter 'modell' here; loaded: half"),
    ],
)
def test_a_wish_that_cannot_be_honoured(wish: dict[str, Any], said: str, make: Make) -> None:
    with pytest.raises(OptionError, match=said):
        make(k=2).generate(**wish)


def test_forget_makes_the_next_prompt_start_from_nothing(make: Make) -> None:
    loaded = make(k=2)
    first = loaded.generate()
    assert loaded.generate().usage.cached_tokens > 0
    loaded.engine.forget()
    assert all(not held for held in loaded.model.memory.values())
    again = loaded.generate()
    assert again.usage.cached_tokens == 0
    assert again.tokens == first.tokens


def test_exclusive_work_runs_on_the_engine_thread_with_empty_memory(make: Make) -> None:
    loaded = make()
    loaded.generate()

    def work() -> str:
        assert not loaded.model.memory[0]
        loaded.model.decode([Row(0, 0, 7, True)])
        return threading.current_thread().name

    assert loaded.engine.exclusively(work) == "edgespec-engine"
    assert not loaded.model.memory[0]
    assert loaded.generate().usage.cached_tokens == 0


def test_exclusive_work_that_fails_is_told_and_leaves_memory_empty(make: Make) -> None:
    loaded = make()

    def work() -> None:
        loaded.model.decode([Row(0, 0, 7, True)])
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loaded.engine.exclusively(work)
    assert not loaded.model.memory[0]
    assert loaded.generate().tokens


def test_exclusive_work_does_not_disturb_an_answer(make: Make) -> None:
    loaded = make()
    loaded.model.hold()
    running = loaded.submit()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(loaded.engine.exclusively, lambda: None)
        loaded.model.release()
        with suppress(OptionError):  # it was asked during the answer, or just after it
            asked.result(PATIENCE)
    assert len(running.result().tokens) == 40


def test_exclusive_work_on_a_closed_engine(make: Make) -> None:
    loaded = make()
    loaded.engine.close()
    with pytest.raises(EngineClosedError):
        loaded.engine.exclusively(lambda: None)


# Prepared and started, and told of what comes.


def test_what_is_prepared_waits_to_be_started(make: Make) -> None:
    loaded = make()
    generation = loaded.engine.prepare(PROMPT, max_tokens=40, **WARM)
    assert generation.request.prompt == tuple(loaded.engine.tokenize(PROMPT))
    other = loaded.generate("Another prompt", max_tokens=3)
    assert len(other.tokens) == 3
    assert generation.ready() == []
    loaded.engine.start(generation)
    assert generation.result().text == plain(readable(), PROMPT, 40)


def test_what_is_wrong_shows_when_it_is_prepared(make: Make) -> None:
    engine = make(n_ctx=32).engine
    with pytest.raises(ContextFullError):
        engine.prepare("x" * 40)
    with pytest.raises(OptionError, match="no option temprature"):
        engine.prepare(PROMPT, temprature=1.0)  # type: ignore[call-arg]


def test_cancelled_before_it_was_started(make: Make) -> None:
    loaded = make()
    generation = loaded.engine.prepare(PROMPT)
    generation.cancel()
    loaded.engine.start(generation)
    answer = generation.result()
    assert (answer.finish_reason, answer.tokens) == ("cancelled", ())
    assert loaded.model.passes == 0
    assert loaded.generate().text == plain(readable(), PROMPT, 40)


@pytest.mark.parametrize("k", [0, 4])
def test_whoever_listens_is_told_of_every_chunk(k: int, make: Make) -> None:
    loaded = make(k=k)
    more: queue.SimpleQueue[str] = queue.SimpleQueue()
    generation = loaded.submit(notify=lambda: more.put(threading.current_thread().name))
    chunks: list[Chunk] = []
    while not chunks or chunks[-1].completion is None:
        assert more.get(timeout=PATIENCE) == "edgespec-engine"
        chunks += generation.ready()
    assert "".join(chunk.text for chunk in chunks) == plain(readable(), PROMPT, 40)
    assert generation.ready() == []


def test_whoever_listens_is_told_of_the_end_whatever_it_is(make: Make) -> None:
    loaded = make(max_sequences=1)
    told = threading.Event()
    loaded.model.hold()
    running = loaded.submit(notify=told.set)
    loaded.model.wait()
    loaded.model.fail_next = BackendError("broken")
    loaded.model.release()
    assert told.wait(PATIENCE)
    with pytest.raises(BackendError, match="broken"):
        running.ready()
    told.clear()
    loaded.model.hold()
    running = loaded.submit(notify=told.set)
    running.cancel()
    assert told.wait(PATIENCE)
    assert running.ready()[-1].finish_reason == "cancelled"


def test_who_cannot_be_told_any_more_is_cancelled_and_disturbs_nobody(make: Make) -> None:
    loaded = make(n_ctx=10**6, max_sequences=1)

    def gone() -> None:
        raise RuntimeError("Event loop is closed")

    endless = loaded.submit(max_tokens=None, notify=gone)
    assert loaded.generate("next").text == plain(readable(), "next", 40)
    assert endless.result().finish_reason == "cancelled"


# Only reading.


@pytest.mark.parametrize("k", [0, 4])
def test_a_prompt_may_be_read_only(k: int, make: Make) -> None:
    loaded = make(k=k)
    chunks = list(loaded.engine.stream(PROMPT, max_tokens=0, logprobs=1, **WARM))
    answer = chunks[-1].completion
    assert answer is not None
    assert (answer.text, answer.tokens, answer.finish_reason) == ("", (), "length")
    assert answer.usage.completion_tokens == answer.stats.emitted == 0
    assert answer.stats.prefilled == answer.usage.prompt_tokens == len(PROMPT) + 1
    for step in answer.steps:
        assert (step.tokens, step.sources, step.logprobs) == ((), (), ())
    assert [chunk.finish_reason for chunk in chunks][-1] == "length"
    assert 0.0 <= answer.time_to_first_token_s <= answer.total_s
    after = loaded.generate(PROMPT + "!")
    assert after.usage.cached_tokens == len(PROMPT) + 1
    assert after.text == plain(readable(), PROMPT + "!", 40)


def test_a_prompt_that_fills_the_context_may_be_read(make: Make) -> None:
    answer = make(n_ctx=32).generate("x" * 30, max_tokens=0)
    assert (answer.tokens, answer.finish_reason) == ((), "length")


def test_neither_stop_strings_nor_the_end_change_that(make: Make) -> None:
    answer = make(readable(end=200.0)).generate(max_tokens=0, stop=["e", "a"])
    assert (answer.text, answer.tokens, answer.finish_reason) == ("", (), "length")


# Predictions and log-probabilities.


def test_a_prediction_makes_an_answer_faster_and_no_other(make: Make) -> None:
    loaded = make(k=4)
    usual = loaded.generate()
    right = loaded.generate(prediction=usual.text)
    assert right.tokens == usual.tokens
    assert set(right.stats.by_drafter) == {"prediction"}
    assert right.stats.acceptance_rate == 1.0
    assert right.stats.steps == 8  # 39 tokens, five at a time
    wrong = loaded.generate(prediction="something else " * 100)
    assert wrong.tokens == usual.tokens
    edited = loaded.generate(prediction=usual.text[:10] + "and so on" + usual.text[12:])
    assert edited.tokens == usual.tokens
    assert right.stats.steps < edited.stats.steps < 20


@pytest.mark.parametrize(
    ("wish", "by"),
    [
        ({}, {"prediction"}),
        ({"num_draft_tokens": 2}, {"prediction"}),
        ({"drafter": "half"}, {"half"}),
        ({"num_draft_tokens": 0}, set()),
    ],
)
def test_who_drafts_for_a_request_with_a_prediction(
    wish: dict[str, Any], by: set[str], make: Make
) -> None:
    loaded = make(k=4)
    usual = loaded.generate()
    answer = loaded.generate(prediction=usual.text, **wish)
    assert set(answer.stats.by_drafter) == by
    assert answer.tokens == usual.tokens


def test_an_engine_that_drafts_nothing_leaves_a_prediction_alone(make: Make) -> None:
    loaded = make(k=0)
    usual = loaded.generate()
    assert loaded.generate(prediction=usual.text).stats.drafted == 0
    asked = loaded.generate(prediction=usual.text, num_draft_tokens=3)
    assert asked.stats.acceptance_rate == 1.0
    assert asked.tokens == usual.tokens


def test_log_probabilities_come_with_the_steps(make: Make) -> None:
    loaded = make(k=3)
    answer = loaded.generate(logprobs=2, prompt_logprobs=True)
    asked = loaded.engine.tokenize(PROMPT)
    of_prompt = [one for step in answer.steps for one in step.prompt_logprobs]
    assert [one.token for one in of_prompt] == asked[1:]
    of_answer = [one for step in answer.steps for one in step.logprobs]
    assert tuple(one.token for one in of_answer) == answer.tokens
    assert {len(one.top) for one in (*of_prompt, *of_answer)} == {2}
    again = loaded.generate(prompt_logprobs=True, max_tokens=0)
    assert again.usage.cached_tokens == 0, "all of it is read for that"
    assert [one.logprob for step in again.steps for one in step.prompt_logprobs] == [
        one.logprob for one in of_prompt
    ]


# Memory that all share.


def test_whoever_finds_no_room_waits_and_gets_the_same_answer(make: Make) -> None:
    loaded = make(k=3, n_ctx=100, cells=100)
    loaded.model.hold()
    running = [loaded.submit(f"The prompt {i}", max_tokens=60) for i in range(4)]
    loaded.model.let(1)
    loaded.model.wait(2)  # all of them are taken in now
    loaded.model.release()
    parked = []
    for i, generation in enumerate(running):
        answer = generation.result()
        assert answer.text == plain(readable(), f"The prompt {i}", 60)
        assert answer.stats.emitted == answer.usage.completion_tokens == 60
        assert answer.usage.cached_tokens <= len("The prompt")
        parked.append(answer.stats.prefilled > answer.usage.prompt_tokens)
    assert parked == [False, True, True, True]


def test_memory_is_not_emptied_while_somebody_waits_for_room(make: Make) -> None:
    loaded = make(n_ctx=100, cells=100)
    loaded.model.hold()
    running = [loaded.submit(f"The prompt {i}", max_tokens=60) for i in range(4)]
    loaded.model.let(60)
    loaded.model.wait(61)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(loaded.engine.forget)
        while loaded.engine._inbox.empty():  # the engine is in a pass
            time.sleep(0.001)
        loaded.model.let(1)
        with pytest.raises(OptionError, match="is generating"):
            asked.result(PATIENCE)
    running[3].cancel()
    loaded.model.release()
    assert running[3].result().finish_reason == "cancelled"
    assert [len(one.result().tokens) for one in running[:3]] == [60] * 3


def test_a_prompt_can_be_read_anew(make: Make) -> None:
    loaded = make(max_sequences=2)
    first = loaded.generate()
    again = loaded.generate(cache_prompt=False)
    assert again.tokens == first.tokens
    assert again.usage.cached_tokens == 0
    assert loaded.generate().usage.cached_tokens == len(PROMPT)
