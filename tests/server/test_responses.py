"""The Responses API, mostly as openai-python sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import OpenAI

from edgespec.errors import BackendError
from edgespec.server.api.responses_input import conversation
from edgespec.server.errors import ApiError
from tests.server.asgi import PATIENCE
from tests.server.scripted import OPENED, THINKING, Served, named_events, served

TEXT = "Grüße, wörld 🎉!"
THOUGHT = "So it is.</think>\n\nYes."


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(TEXT) as one:
        yield one


@pytest.fixture(scope="module")
def thinking() -> Iterator[Served]:
    with served(THOUGHT, after=OPENED, template=THINKING) as one:
        yield one


@contextmanager
def client(server: Served, *, strict: bool = True) -> Iterator[OpenAI]:
    """Its models check everything that the server sends."""
    with OpenAI(
        base_url=f"{server.url}/v1",
        api_key="any",
        timeout=PATIENCE,
        _strict_response_validation=strict,
    ) as one:
        yield one


def events(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, each checked against its name."""
    response = server.post("/v1/responses", {**body, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    found = named_events(response.text)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


# Whole.


def test_an_answer_as_a_whole(server: Served) -> None:
    with client(server) as one:
        response = one.responses.create(
            model="any",
            instructions="Be kind.",
            input="hi",
            temperature=0.5,
            metadata={"a": "b"},
            store=True,
        )
    assert response.id.startswith("resp_")
    assert (response.status, response.model) == ("completed", "any")
    assert response.output_text == TEXT
    assert [item.type for item in response.output] == ["message"]
    assert (response.temperature, response.top_p) == (0.5, 0.95)
    assert (response.instructions, response.metadata) == ("Be kind.", {"a": "b"})
    chat = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"})
    assert response.usage is not None
    assert response.usage.input_tokens == server.tokens(*chat)
    assert response.usage.output_tokens == len(TEXT.encode()) + 1  # and the end
    assert response.usage.total_tokens == server.tokens(*chat) + len(TEXT.encode()) + 1


def test_an_answer_that_is_cut_is_incomplete(server: Served) -> None:
    with client(server) as one:
        response = one.responses.create(model="fake", input="hi", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "Gr"
    assert response.output[0].to_dict()["status"] == "incomplete"
    assert response.max_output_tokens == 2


def test_what_was_read_before_is_cached(server: Served) -> None:
    body = {"input": "The same words, sent twice."}
    first = server.post("/v1/responses", body).json()["usage"]
    second = server.post("/v1/responses", body).json()["usage"]
    assert second["input_tokens_details"]["cached_tokens"] == first["input_tokens"] - 1


def test_null_means_absent(server: Served) -> None:
    names = ["model", "instructions", "max_output_tokens", "temperature", "top_p", "stream"]
    names += ["previous_response_id", "conversation", "prompt", "background", "tools"]
    names += ["tool_choice", "text", "reasoning", "include", "top_logprobs", "metadata", "store"]
    response = server.post("/v1/responses", {"input": "hi", **dict.fromkeys(names)})
    assert response.status_code == 200
    assert response.json()["status"] == "completed"


def test_a_last_message_of_the_assistant_is_continued(server: Served) -> None:
    items = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Grüße"}]
    response = server.post("/v1/responses", {"input": items}).json()
    assert response["output"][0]["content"][0]["text"] == TEXT.removeprefix("Grüße")


def test_reading_a_prompt_only(server: Served) -> None:
    response = server.post("/v1/responses", {"input": "warm", "max_output_tokens": 0}).json()
    assert response["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == ""
    assert response["usage"]["output_tokens"] == 0


# As a stream.


def test_the_events_of_an_answer(server: Served) -> None:
    found = events(server, {"input": "hi"})
    names = [event["type"].removeprefix("response.") for event in found]
    deltas = [event["delta"] for event in found if event["type"].endswith("text.delta")]
    assert names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert names[4 : 4 + len(deltas)] == ["output_text.delta"] * len(deltas)
    assert names[4 + len(deltas) :] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert "".join(deltas) == TEXT
    assert "🎉" in deltas  # in one piece
    created, done, item = found[0]["response"], found[-1]["response"], found[-2]["item"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert done["output"] == [item]
    assert done["id"] == created["id"]
    assert done["timings"]["predicted_n"] == done["usage"]["output_tokens"]
    inside = [event for event in found if "item_id" in event]
    assert {event["item_id"] for event in inside} == {item["id"]}


def test_a_stream_that_the_library_reads(server: Served) -> None:
    with (
        client(server) as one,
        one.responses.stream(model="fake", input="hi", max_output_tokens=40) as stream,
    ):
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert "".join(deltas) == response.output_text == TEXT
    assert response.status == "completed"


def test_a_stream_that_is_cut(server: Served) -> None:
    with (
        client(server) as one,
        one.responses.create(model="m", input="hi", max_output_tokens=2, stream=True) as stream,
    ):
        *_, last = stream
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"


def test_a_failure_in_a_stream_is_an_event(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    server.model.fail_next = BackendError("/home/me/model.gguf broke")
    created, _, failed = events(server, {"input": "This will break."})
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["code"] == "server_error"
    assert "/home" not in json.dumps(failed)
    assert failed["response"]["id"] == created["response"]["id"]
    assert "BackendError" in caplog.text


def test_whoever_hangs_up_is_not_answered_any_more(server: Served) -> None:
    assert server.hang_up_on("/v1/responses", {"input": "hi"}, b"response.in_progress") == 0


# Thoughts.


def test_a_thought_is_an_item_of_its_own(thinking: Served) -> None:
    with client(thinking) as one:
        response = one.responses.create(model="fake", input="why?")
    thought, message = response.output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert thought.type == "reasoning"
    assert thought.content is not None
    assert [part.text for part in thought.content] == ["So it is."]
    assert response.output_text == "Yes."
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == len("So it is.</think>")


def test_a_thought_as_a_stream(thinking: Served) -> None:
    with (
        client(thinking) as one,
        one.responses.create(model="fake", input="why?", stream=True) as stream,
    ):
        found = list(stream)
    thought = [one for one in found if one.type == "response.reasoning_text.delta"]
    said = [one for one in found if one.type == "response.output_text.delta"]
    assert "".join(one.delta for one in thought) == "So it is."
    assert "".join(one.delta for one in said) == "Yes."
    assert {one.output_index for one in thought} == {0}
    assert {one.output_index for one in said} == {1}
    assert thought[0].item_id != said[0].item_id
    assert found[-1].type == "response.completed"
    assert found[-1].response.output_text == "Yes."


def test_an_answer_cut_in_its_thought_says_nothing(thinking: Served) -> None:
    response = thinking.post("/v1/responses", {"input": "why?", "max_output_tokens": 3}).json()
    [item] = response["output"]
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 3


def test_thinking_is_left_out_when_no_effort_is_wanted() -> None:
    with served("Yes.", template=THINKING) as server:
        body = {"input": "why?", "reasoning": {"effort": "none"}}
        response = server.post("/v1/responses", body).json()
    assert [item["type"] for item in response["output"]] == ["message"]
    assert response["output"][0]["content"][0]["text"] == "Yes."
    assert response["reasoning"]["effort"] == "none"


# Log-probabilities.


def test_log_probabilities_of_what_is_said_alone(thinking: Served) -> None:
    with client(thinking) as one:
        response = one.responses.create(
            model="fake",
            input="why?",
            include=["message.output_text.logprobs"],
            top_logprobs=2,
        )
    message = response.output[1]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert "".join(entry.token for entry in part.logprobs).endswith("Yes.")
    assert "So it" not in "".join(entry.token for entry in part.logprobs)
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


def test_log_probabilities_in_a_stream(server: Served) -> None:
    body = {"input": "hi", "include": ["message.output_text.logprobs"], "temperature": 0}
    found = events(server, body)
    told = [entry for event in found if "delta" in event for entry in event["logprobs"]]
    [done] = [event for event in found if event["type"] == "response.output_text.done"]
    assert bytes(byte for entry in told for byte in entry["bytes"]).decode() == TEXT
    assert done["logprobs"] == told
    assert found[-1]["response"]["output"][0]["content"][0]["logprobs"] == told
    *_, done = events(server, {**body, "stop": ["ld"]})
    [part] = done["response"]["output"][0]["content"]
    assert part["text"] == "Grüße, wör"
    assert part["logprobs"] == told[: len(part["text"].encode())]


# Input.


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
CALLED = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([{"role": "user", "content": "hi"}], [{"role": "user", "content": "hi"}]),
        (
            [{"type": "message", "role": "developer", "content": [
                {"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]}],
            [{"role": "developer", "content": parts("a", "b")}],
        ),
        (
            [{"role": "assistant", "content": [
                {"type": "output_text", "text": "a", "annotations": []},
                {"type": "refusal", "refusal": "no"}]}],
            [{"role": "assistant", "content": parts("a", "no")}],
        ),
        # What is said and the calls after it are one turn, whatever was thought between.
        (
            [{"role": "assistant", "content": "Let me look."}, {"type": "reasoning", "summary": []},
             CALL, {**CALL, "call_id": "c2"}],
            [{"role": "assistant", "content": "Let me look.",
              "tool_calls": [CALLED, {**CALLED, "id": "c2"}]}],
        ),
        (
            [CALL, {"type": "function_call_output", "call_id": "c1", "output": "42"}],
            [{"role": "assistant", "content": "", "tool_calls": [CALLED]},
             {"role": "tool", "tool_call_id": "c1", "content": "42"}],
        ),
        (
            [{"type": "function_call_output", "call_id": "c1", "output": [
                {"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]}],
            [{"role": "tool", "tool_call_id": "c1", "content": parts("4", "2")}],
        ),
        (
            [{"type": "web_search_call", "id": "ws"}, {"type": "input_text", "text": "hi"},
             {"type": "of the future"}],
            [{"role": "user", "content": "hi"}],
        ),
    ],
)  # fmt: skip
def test_items_become_messages(items: list[Any], messages: list[Any]) -> None:
    assert conversation(None, items) == messages
    assert conversation("Be kind.", items)[1:] == messages


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([7], "input.0"),
        ([{"role": "user"}, {"type": 7}], "input.1.type"),
        ([{"content": "hi"}], "input.0.role"),
        ([{"role": "wizard", "content": "hi"}], "input.0.role"),
        ([{"role": "user", "content": 7}], "input.0.content"),
        ([{"role": "user", "content": [{"text": "hi"}]}], "input.0.content.0.type"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input.0.content.0.text"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input.0.content.0"),
        ([{"type": "input_image", "image_url": "data:,"}], "input.0"),
        ([{"type": "item_reference", "id": "msg_1"}], "input.0"),
        ([{"type": "function_call", "call_id": "c1"}], "input.0.name"),
        ([{**CALL, "arguments": 7}], "input.0.arguments"),
        ([{"type": "function_call_output", "output": [{"type": "input_image"}]}],
         "input.0.output.0"),
    ],
)  # fmt: skip
def test_a_wrong_item_is_named(items: list[Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        conversation(None, items)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message.startswith(param)


def test_a_whole_agents_turn_is_answered(server: Served) -> None:
    said = {"role": "user", "content": "hi"}
    output = {"type": "function_call_output", "call_id": "c1", "output": [
        {"type": "input_text", "text": "42"}]}  # fmt: skip
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "x", "tools": []}]
    body = {"input": [said, CALL, output], "tools": tools, "tool_choice": "auto"}
    response = server.post("/v1/responses", body)
    assert response.status_code == 200
    assert response.json()["output"][0]["content"][0]["text"] == TEXT


def test_the_tokens_of_an_input(server: Served) -> None:
    chat = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"})
    body = {"instructions": "Be kind.", "input": "hi"}
    found = server.post("/v1/responses/input_tokens", body).json()
    assert found == {"object": "response.input_tokens", "input_tokens": server.tokens(*chat)}


# What cannot be had.

FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({}, 400, "input", None),
        ({"input": 7}, 400, "input", None),
        ({"input": []}, 400, None, None),
        ({"previous_response_id": "resp_1"}, 400, "previous_response_id", "unsupported_parameter"),
        ({"conversation": {"id": "c"}}, 400, "conversation", "unsupported_parameter"),
        ({"prompt": {"id": "p"}}, 400, "prompt", "unsupported_parameter"),
        ({"background": True}, 400, "background", "unsupported_parameter"),
        ({"tools": [{"type": "web_search"}, FUNCTION]}, 501, "tools", "not_supported"),
        ({"text": {"format": {"type": "json_object"}}}, 501, "text.format", "not_supported"),
        ({"top_logprobs": 21}, 400, "top_logprobs", None),
        ({"temperature": -1}, 400, None, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_had_is_refused_before_a_stream_begins(
    server: Served,
    body: dict[str, Any],
    status: int,
    param: str | None,
    code: str | None,
    stream: bool,
) -> None:
    known = {} if body == {} else {"input": "hi"}
    response = server.post("/v1/responses", {**known, "stream": stream, **body})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)


def test_the_library_does_not_ask_again_for_what_is_not_supported(server: Served) -> None:
    response = server.post("/v1/responses", {"input": "hi", "tools": [FUNCTION]})
    assert response.headers["x-should-retry"] == "false"


def test_functions_that_must_not_be_called_are_no_fault(server: Served) -> None:
    with client(server) as one:
        response = one.responses.create(
            model="fake",
            input="hi",
            tools=[{"type": "function", "name": "look", "parameters": {}, "strict": False}],
            tool_choice="none",
        )
    assert (response.tool_choice, response.tools) == ("none", [])
    assert response.output_text == TEXT


def test_overflow_is_a_400(server: Served) -> None:
    with client(server) as one, pytest.raises(openai.BadRequestError) as caught:
        one.responses.create(model="fake", input="x" * 3000)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "input"
    counted = server.post("/v1/responses/input_tokens", {"input": "x" * 300_000})
    assert counted.json()["error"]["param"] == "input"


def test_overflow_of_a_stream_is_an_event(server: Served) -> None:
    created, failed = events(server, {"input": "x" * 3000})
    assert created["type"] == "response.created"
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 2048 tokens" in failed["response"]["error"]["message"]
    # The library's list of codes does not have this one.
    with (
        client(server, strict=False) as one,
        one.responses.create(model="fake", input="x" * 3000, stream=True) as stream,
    ):
        assert [event.type for event in stream] == ["response.created", "response.failed"]


def test_no_response_is_kept(server: Served) -> None:
    with client(server) as one:
        for ask in (one.responses.retrieve, one.responses.delete, one.responses.cancel):
            with pytest.raises(openai.NotFoundError, match="keeps nothing"):
                ask("resp_1")
        with pytest.raises(openai.NotFoundError):
            one.responses.input_items.list("resp_1")
