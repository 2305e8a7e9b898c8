"""The acceptance list of the reference (http_api.md, section 7): time, streams and speculation.

The numbers are those of the list. What is about clients and limits is in the file beside this one;
17 belongs to tools.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from edgespec.server.settings import Settings
from tests.fake_engine import Loaded
from tests.server.gaps import FIM
from tests.server.live import Connection
from tests.server.scripted import says
from tests.server.whole import CHAT, GREEDY, Whole, chat, next_event, parsed, said, whole

COMPLETIONS = "/v1/completions"
ONE = {"parallel": 1, "short_lane": False}

both = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def server() -> Iterator[Whole]:
    """One that anybody may use who leaves it idle."""
    with whole() as server:
        yield server


# Time.


@both
def test_01_hanging_up_while_the_prompt_is_read_frees_the_engine(
    server: Whole, stream: bool
) -> None:
    passes = server.model.passes
    server.model.hold()
    with server.open(CHAT, chat(f"{stream}" * 80, stream=stream)):
        server.model.wait()
    server.until_idle()
    assert server.engine_is_free()  # though no pass is let through
    assert server.model.passes == passes
    server.model.release()
    assert server.post(CHAT, chat()).status_code == 200


@both
def test_02_hanging_up_during_an_answer_frees_the_engine_after_the_pass(
    server: Whole, stream: bool
) -> None:
    passes = server.model.passes
    server.model.hold()
    with server.open(CHAT, chat(stream=stream, max_tokens=100)):
        server.model.let(4)
        server.model.wait(5)
    server.until_idle()
    server.model.let(10)
    assert server.engine_is_free()
    assert server.model.passes == passes + 5
    server.model.release()


@both
def test_03_a_request_whose_client_went_away_never_starts(stream: bool) -> None:
    with whole(Loaded(max_sequences=1), **ONE) as server, ExitStack() as stack:
        server.model.hold()
        first = stack.enter_context(server.open(CHAT, chat(stream=True)))
        server.model.wait()
        with server.open(CHAT, chat("ZZZZ", stream=stream)):
            server.until(lambda: server.gauge("requests_waiting") == 1)
        server.until(lambda: server.gauge("requests_waiting") == 0)
        server.model.release()
        first.until(b"[DONE]")
        server.until_idle()
        assert server.engine_is_free()
        assert b"ZZZZ" not in bytes(token for token in server.model.memory[0] if token < 256)
        assert b"Hello" in bytes(token for token in server.model.memory[0] if token < 256)


def test_04_a_second_request_waits_and_the_first_is_whole() -> None:
    body = chat(max_tokens=30, stream=True)
    with whole(Loaded(max_sequences=1), **ONE) as server, ExitStack() as stack:
        alone = server.events(CHAT, body)
        server.model.hold()
        first = stack.enter_context(server.open(CHAT, {**body, "stream": True}))
        server.model.let(5)
        server.model.wait(6)
        second = stack.enter_context(server.open(CHAT, {**body, "stream": True}))
        server.until(lambda: server.gauge("requests_waiting") == 1)
        server.model.release()
        for connection in (first, second):
            events = []
            while (event := next_event(connection)) is not None:
                events.append(event)
            assert said(events) == said(alone)
            assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_04_two_hundred_requests_of_one_client_do_not_keep_another_out() -> None:
    body = chat(max_tokens=1)
    with whole(Loaded(max_sequences=1), queue=16, **ONE) as server, ExitStack() as stack:
        server.model.hold()
        flood = [
            stack.enter_context(server.open(CHAT, body, user_agent="flood")) for _ in range(200)
        ]
        server.until(lambda: len(readable(flood)) == 199 - server.gauge("requests_waiting"))
        for connection in readable(flood):
            answer = connection.answer()
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) > 0
        assert server.gauge("requests_waiting") == 12  # the rest of the queue is for others
        other = stack.enter_context(server.open(CHAT, body, user_agent="other"))
        server.until(lambda: server.gauge("requests_waiting") > 12)
        server.model.let(2)  # the one under way and the next one
        assert other.answer().status == 200
        assert len(readable(flood)) == 1
        server.model.release()
        server.until_idle()


def readable(connections: list[Connection]) -> list[Connection]:
    return select.select(connections, [], [], 0)[0]


def test_05_others_are_answered_while_the_engine_is_busy(server: Whole) -> None:
    server.model.hold()
    with server.open(CHAT, chat(stream=True)) as connection:
        server.model.wait()
        for path in ("/health", "/v1/models", "/props", "/slots", "/metrics"):
            # 50 ms are wanted; a busy machine gets ten times that, and several tries.
            assert min(timed(server, path) for _ in range(5)) < 0.5
        assert server.post("/tokenize", {"content": "abc"}).json()["tokens"]
        assert server.post(CHAT + "/input_tokens", chat()).json()["input_tokens"]
        server.model.release()
        connection.until(b"[DONE]")


def timed(server: Whole, path: str) -> float:
    began = time.monotonic()
    assert server.get(path).status_code == 200
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        (CHAT, chat()),
        (COMPLETIONS, {"prompt": "abc"}),
        ("/v1/messages", chat()),
        ("/v1/responses", {"input": "abc"}),
    ],
)
def test_23_headers_come_at_once_and_comments_while_the_prompt_is_read(
    path: str, prompt: dict[str, Any]
) -> None:
    assert Settings(model="fake").heartbeat <= 15
    body = {**prompt, "max_tokens": 8, "stream": True}
    with whole(heartbeat=0.05) as server:
        server.model.hold()
        with server.open(path, body) as connection:
            server.model.wait()
            assert b"200 OK" in connection.until(b"\r\n\r\n")
            for _ in range(3):
                connection.until(b"ping" if path == "/v1/messages" else b": waiting\n\n")
            assert server.model.passes == 0


def test_24_an_idle_connection_is_kept_for_longer_than_65_seconds(server: Whole) -> None:
    server.until(lambda: not server.server.server_state.tasks)
    before = server.connections()
    with server.open("/tokenize", {"content": "abc"}) as connection:
        assert connection.answer().status == 200
        (protocol,) = server.connections() - before
        server.until(lambda: protocol.timeout_keep_alive_task is not None)
        # Both clocks are the event loop's.
        assert protocol.timeout_keep_alive_task.when() - protocol.loop.time() > 65
        assert connection.ask("GET", "/health").status == 200


# Streams.

EMOJI = "so 😀👩‍🚀 it is"


@pytest.mark.parametrize("k", [0, 3])
def test_13_characters_of_four_tokens_come_whole(k: int) -> None:
    with whole(Loaded(says(EMOJI), k=k, max_sequences=5)) as server:
        events = server.events(CHAT, chat(max_tokens=None))
        assert said(events) == EMOJI
        assert all("\ufffd" not in str(event) for event in events)
        assert text_of(server, chat(max_tokens=None)) == EMOJI
        # An answer cut inside of one says so, once.
        cut = server.events(CHAT, chat(max_tokens=len("so ") + 2))
        assert said(cut) == "so \ufffd"


@pytest.mark.parametrize("k", [0, 8])
def test_14_a_stop_string_ends_the_answer_inside_a_draft_too(k: int) -> None:
    answer, stop = "one END two three", "END"
    with whole(Loaded(says(answer), k=k, max_sequences=5)) as server:
        body = chat(max_tokens=None, stop=stop, prediction={"type": "content", "content": answer})
        found = server.post(CHAT, body).json()
        assert found["choices"][0]["message"]["content"] == "one "
        assert found["choices"][0]["finish_reason"] == "stop"
        assert found["usage"]["completion_tokens"] == len("one END")
        # The first token comes with the prompt's last pass, the others with one draft of eight.
        assert found["timings"].get("draft_n", 0) == k
        assert server.engine_is_free()
        (held,) = [bytes(t for t in m if t < 256) for m in server.model.memory.values() if m]
        assert held.endswith(b"one EN")  # the last token of an answer never is in memory
        assert said(server.events(CHAT, body)) == "one "


@pytest.fixture(scope="module")
def filling() -> Iterator[Whole]:
    """It can fill in the middle as well."""
    with whole(Loaded(fim=FIM, max_sequences=5)) as server:
        yield server


OPENAI = [CHAT, COMPLETIONS, "/v1/fim/completions"]


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
def test_15_usage_comes_only_when_it_is_asked_for(
    filling: Whole, path: str, options: dict[str, bool] | None
) -> None:
    body = {**chat(), "prompt": "a", "suffix": "b"}
    events = filling.events(path, {**body, "stream_options": options})
    told = [event for event in events if event and event.get("usage")]
    assert len(told) == int((options or {}).get("include_usage", False))
    for event in told:
        assert event["choices"] == []
        assert event["usage"]["completion_tokens"] > 0
        assert event is events[-2]
    assert all(event["choices"] for event in events[:-1] if event not in told)


@pytest.mark.parametrize("path", OPENAI)
def test_16_done_is_last_and_the_reason_comes_before(filling: Whole, path: str) -> None:
    answer = filling.post(path, {**chat(), "prompt": "a", "suffix": "b", "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.text.count("[DONE]") == 1
    assert "\r" not in answer.text
    reasons = [event["choices"][0]["finish_reason"] for event in parsed(answer.text)[:-1]]
    assert set(reasons[:-1]) == {None}
    assert reasons[-1] in ("stop", "length")


# Speculation.

SAMPLED = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 7}


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_18_drafts_and_predictions_change_no_answer(sampling: dict[str, Any]) -> None:
    body = chat(**{"max_tokens": 60, **sampling})
    texts = []
    for k in (0, 4):
        with whole(Loaded(k=k, max_sequences=5)) as server:
            texts.append(text_of(server, body))
            for predicted in (texts[0], texts[0][:20] + "#" + texts[0][20:], "no"):
                texts.append(text_of(server, {**body, "prediction": {"content": predicted}}))
            texts.append(text_of(server, {**body, "speculative": {"num_draft_tokens": 2}}))
            texts.append(said(server.events(CHAT, body)))
    assert len(texts[0]) == 60
    assert set(texts) == {texts[0]}


def text_of(server: Whole, body: dict[str, Any]) -> str:
    content = server.post(CHAT, body).json()["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def test_19_draft_counts_are_told_only_where_something_was_drafted() -> None:
    with whole(Loaded(k=4, max_sequences=5)) as server:
        drafted = server.post(CHAT, chat(max_tokens=40)).json()["timings"]
        assert 0 < drafted["draft_n_accepted"] < drafted["draft_n"]  # every third guess is wrong
        assert drafted["predicted_n"] == 40
        plain = chat(max_tokens=40, speculative={"num_draft_tokens": 0})
        last = server.events(CHAT, plain)[-2]
        for timings in (server.post(CHAT, plain).json()["timings"], last["timings"]):
            assert not {"draft_n", "draft_n_accepted"} & set(timings)
            assert timings["predicted_n"] == 40


def test_20_a_right_prediction_is_accepted_and_a_wrong_one_changes_nothing() -> None:
    answer = "The answer is exactly this long text, word by word."
    with whole(Loaded(says(answer), k=8, max_sequences=5)) as server:

        def asked(content: Any) -> tuple[str, dict[str, int]]:
            prediction = {"type": "content", "content": content}
            found = server.post(CHAT, chat(max_tokens=None, prediction=prediction)).json()
            text = found["choices"][0]["message"]["content"]
            return text, found["usage"]["completion_tokens_details"]

        for content in (answer, [{"type": "text", "text": answer}]):
            text, right = asked(content)
            assert text == answer
            # One token of every step is the target's own.
            assert len(answer) * 8 // 9 - 1 <= right["accepted_prediction_tokens"] <= len(answer)
            assert right["rejected_prediction_tokens"] == 0
        text, wrong = asked("Something else entirely, of which not a word is right.")
        assert text == answer
        assert wrong["accepted_prediction_tokens"] < 5
        assert wrong["rejected_prediction_tokens"] > 0
