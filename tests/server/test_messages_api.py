"""The Messages API, mostly as Anthropic's own library sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from edgespec.errors import BackendError
from edgespec.server.api.messages_input import conversation
from edgespec.server.errors import ApiError
from tests.fake_engine import Loaded
from tests.server.asgi import PATIENCE
from tests.server.live import Connection, head
from tests.server.scripted import OPENED, THINKING, TURN, Served, named_events, says, served

TEXT = "Grüße, wörld 🎉!"
THOUGHT = "So it is.</think>\n\nYes."
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(TEXT) as one:
        yield one


@pytest.fixture(scope="module")
def thinking() -> Iterator[Served]:
    with served(THOUGHT, after=OPENED, template=THINKING) as one:
        yield one


@contextmanager
def client(server: Served) -> Iterator[Anthropic]:
    """Its models check everything that the server sends."""
    with Anthropic(
        base_url=server.url,
        api_key="any",
        timeout=PATIENCE,
        _strict_response_validation=True,
    ) as one:
        yield one


def events(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, each checked against its name."""
    response = server.post("/v1/messages", {"max_tokens": 100, **body, "stream": True})
    assert response.status_code == 200
    found = named_events(response.text)
    return found


# Whole.


def test_a_message_as_a_whole(server: Served) -> None:
    with client(server) as one:
        message = one.messages.create(
            model="any", max_tokens=100, system="Be kind.", messages=HI, metadata={"user_id": "u"}
        )
    assert message.id.startswith("msg_")
    assert (message.type, message.role, message.model) == ("message", "assistant", "any")
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": TEXT}]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    chat = ({"role": "system", "content": "Be kind."}, *HI)
    usage = message.usage
    assert usage.cache_read_input_tokens is not None
    assert usage.input_tokens + usage.cache_read_input_tokens == server.tokens(*chat)
    assert usage.output_tokens == len(TEXT.encode()) + 1  # and the end


def test_the_beta_api_is_the_same(server: Served) -> None:
    system: Any = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    with client(server) as one:
        message = one.beta.messages.create(
            model="fake", max_tokens=100, system=system, messages=HI, betas=["of-the-future"]
        )
    assert message.content[0].type == "text"
    assert message.content[0].text == TEXT


def test_a_stop_sequence_is_told(server: Served) -> None:
    body = {"max_tokens": 100, "messages": HI, "stop_sequences": ["never", "wör"]}
    message = server.post("/v1/messages", body).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "wör")
    assert message["content"][0]["text"] == "Grüße, "
    # The end of the answer is none, even if a stop sequence could still have come.
    body["stop_sequences"] = ["!?"]
    message = server.post("/v1/messages", body).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert message["content"][0]["text"] == TEXT


def test_a_completion_tells_what_stopped_it() -> None:
    with Loaded(says("one two three")).engine as engine:
        asked: Any = {"messages": HI, "temperature": 0.0}
        assert engine.generate(stop=["two"], **asked).stop == "two"
        assert engine.generate(stop=["four"], **asked).stop is None


def test_a_message_that_is_cut(server: Served) -> None:
    with client(server) as one:
        message = one.messages.create(model="fake", max_tokens=2, messages=HI)
    assert message.stop_reason == "max_tokens"
    assert message.content[0].type == "text"
    assert message.content[0].text == "Gr"
    assert message.usage.output_tokens == 2


def test_without_max_tokens_the_answer_has_its_end(server: Served) -> None:
    message = server.post("/v1/messages", {"messages": HI}).json()
    assert (message["stop_reason"], message["content"][0]["text"]) == ("end_turn", TEXT)


def test_null_means_absent(server: Served) -> None:
    names = ["model", "system", "max_tokens", "stop_sequences", "stream", "temperature", "top_k"]
    names += ["top_p", "metadata", "tools", "tool_choice", "thinking", "output_config"]
    response = server.post("/v1/messages", {"messages": HI, **dict.fromkeys(names)})
    assert response.status_code == 200


def test_a_last_message_of_the_assistant_is_continued(server: Served) -> None:
    chat: Any = [*HI, {"role": "assistant", "content": [{"type": "text", "text": "Grüße"}]}]
    message = server.post("/v1/messages", {"messages": chat}).json()
    assert message["content"][0]["text"] == TEXT.removeprefix("Grüße")


# As a stream.


def test_the_events_of_a_message(server: Served) -> None:
    found = events(server, {"messages": HI})
    names = [event["type"] for event in found]
    deltas = [event["delta"]["text"] for event in found if event["type"] == "content_block_delta"]
    assert names == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * len(deltas),
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert "".join(deltas) == TEXT
    assert "🎉" in deltas  # in one piece
    start, end = found[0]["message"], found[-2]
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert start["usage"]["input_tokens"] == server.tokens(*HI)
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    usage = end["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == server.tokens(*HI)
    assert usage["output_tokens"] == len(TEXT.encode()) + 1


def test_a_stream_that_the_library_reads(server: Served) -> None:
    with (
        client(server) as one,
        one.messages.stream(
            model="fake", max_tokens=100, messages=HI, stop_sequences=["!"]
        ) as stream,
    ):
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == TEXT.removesuffix("!")
    assert message.content[0].type == "text"
    assert message.content[0].text == text
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "!")


def test_a_ping_while_nothing_comes() -> None:
    with served(TEXT, heartbeat=0.05) as server:
        server.model.hold()
        try:
            body = json.dumps({"messages": HI, "stream": True}).encode()
            with Connection(server.port) as connection:
                size = str(len(body))
                path = "/v1/messages?beta=true"
                connection.send(head("POST", path, content_length=size) + body)
                connection.until(b"event: message_start")
                connection.until(b'event: ping\ndata: {"type":"ping"}\n\n')
                server.model.release()
                connection.until(b"event: message_stop")
        finally:
            server.model.release()


def test_a_failure_in_a_stream_is_an_event(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    server.model.fail_next = BackendError("/home/me/model.gguf broke")
    start, failed = events(server, {"messages": [{"role": "user", "content": "break"}]})
    assert (start["type"], failed["type"]) == ("message_start", "error")
    assert failed["error"]["type"] == "api_error"
    assert "/home" not in json.dumps(failed)
    assert "BackendError" in caplog.text


def test_whoever_hangs_up_is_not_answered_any_more(server: Served) -> None:
    assert server.hang_up_on("/v1/messages", {"messages": HI}, b"message_start") == 0


# Thoughts.


def test_a_thought_is_a_block_of_its_own(thinking: Served) -> None:
    with client(thinking) as one:
        message = one.messages.create(
            model="fake",
            max_tokens=2000,
            messages=HI,
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "So it is.", "signature": ""},
        {"type": "text", "text": "Yes."},
    ]


def test_a_thought_as_a_stream(thinking: Served) -> None:
    with (
        client(thinking) as one,
        one.messages.stream(model="fake", max_tokens=100, messages=HI) as stream,
    ):
        names = [event.type for event in stream if event.type in ("thinking", "text")]
        message = stream.get_final_message()
    assert names == sorted(names, reverse=True)
    assert [block.type for block in message.content] == ["thinking", "text"]
    found = events(thinking, {"messages": HI})
    assert [one["index"] for one in found if one["type"] == "content_block_start"] == [0, 1]


def test_an_answer_cut_in_its_thought_says_nothing(thinking: Served) -> None:
    message = thinking.post("/v1/messages", {"messages": HI, "max_tokens": 3}).json()
    assert message["content"] == [{"type": "thinking", "thinking": "So", "signature": ""}]
    assert message["stop_reason"] == "max_tokens"
    cut = "So it is.</th"  # what could have become its end is part of it after all
    message = thinking.post("/v1/messages", {"messages": HI, "max_tokens": len(cut)}).json()
    assert message["content"][0]["thinking"] == cut


def test_thinking_can_be_left_out() -> None:
    with served("Yes.", template=THINKING) as server:
        body = {"messages": HI, "thinking": {"type": "disabled"}}
        message = server.post("/v1/messages", body).json()
    assert message["content"] == [{"type": "text", "text": "Yes."}]


# Messages.


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": None}}
CALLED = {"id": "t1", "function": {"name": "look", "arguments": {"x": None}}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}
ANSWERED = {"role": "tool", "tool_call_id": "t1", "content": "42"}


@pytest.mark.parametrize(
    ("message", "messages"),
    [
        ({"role": "user", "content": "hi"}, [{"role": "user", "content": "hi"}]),
        (
            {"role": "user", "content": parts("a", "b")},
            [{"role": "user", "content": parts("a", "b")}],
        ),
        (
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"}, *parts("Let me look."), USE]},
            [{"role": "assistant", "content": parts("Let me look."), "tool_calls": [CALLED]}],
        ),
        ({"role": "user", "content": [RESULT]}, [ANSWERED]),
        # What a tool said comes first: it belongs to the turn before.
        (
            {"role": "user", "content": [*parts("Go on."), RESULT, {**RESULT, "content": [
                *parts("4", "2"), {"type": "tool_reference", "tool_name": "x"}]}]},
            [ANSWERED, {**ANSWERED, "content": parts("4", "2")},
             {"role": "user", "content": parts("Go on.")}],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
            [{**ANSWERED, "content": ""}],
        ),
        (
            {"role": "user", "content": [{"type": "document", "source": {
                "type": "text", "media_type": "text/plain", "data": "A page."}}]},
            [{"role": "user", "content": parts("A page.")}],
        ),
        (
            {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "w"},
                {"type": "web_search_tool_result", "content": []}, *parts("So.")]},
            [{"role": "assistant", "content": parts("So.")}],
        ),
        ({"role": "assistant", "content": []}, [{"role": "assistant", "content": []}]),
    ],
)  # fmt: skip
def test_blocks_become_messages(message: Any, messages: list[Any]) -> None:
    assert conversation(None, [message]) == messages
    assert conversation(parts("Be kind."), [message])[1:] == messages


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "hi"}, "messages.0.role"),
        ({"role": "tool", "content": "hi"}, "messages.0.role"),
        ({"role": "user", "content": 7}, "messages.0.content"),
        ({"role": "user", "content": ["hi"]}, "messages.0.content.0"),
        ({"role": "user", "content": [{"text": "hi"}]}, "messages.0.content.0.type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0.text"),
        ({"role": "user", "content": [*parts("a"), {"type": "image"}]}, "messages.0.content.1"),
        ({"role": "user", "content": [{"type": "document", "source": {"type": "base64"}}]},
         "messages.0.content.0"),
        ({"role": "user", "content": [{**RESULT, "content": [{"type": "image"}]}]},
         "messages.0.content.0.content.0"),
        ({"role": "assistant", "content": [{**USE, "name": 7}]}, "messages.0.content.0.name"),
        ({"role": "assistant", "content": [{**USE, "input": 7}]}, "messages.0.content.0.input"),
    ],
)  # fmt: skip
def test_a_wrong_block_is_named(message: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        conversation(None, [message])
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message.startswith(param)


def test_a_whole_agents_turn_is_answered(server: Served) -> None:
    chat = [*HI, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]
    message = server.post("/v1/messages", {"messages": chat}).json()
    assert message["content"][0]["text"] == TEXT


def test_a_checksum_that_changes_does_not_spoil_what_is_cached(server: Served) -> None:
    def ask(checksum: str) -> dict[str, int]:
        line = f"x-anthropic-billing-header: cc_version=2.1.0; cch={checksum};"
        system = parts(line, "You are a kind agent.", "You like short answers.")
        chat = [{"role": "user", "content": "Are the checksums away?"}]
        answer = server.post("/v1/messages", {"system": system, "messages": chat})
        usage: dict[str, int] = answer.json()["usage"]
        return usage

    first, second = ask("a1b2c"), ask("d3e4f")
    prompt = first["input_tokens"] + first["cache_read_input_tokens"]
    assert first["input_tokens"] > 50
    assert second["cache_read_input_tokens"] == prompt - 1
    assert second["input_tokens"] == 1


# Counting.

TOOL: Any = {
    "name": "look",
    "description": "Looks it up.",
    "input_schema": {"type": "object", "properties": {"x": {"type": "string", "default": None}}},
}
SHOWN = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": TOOL["input_schema"],
        "description": "Looks it up.",
    },
}


def test_the_tokens_of_a_conversation(server: Served) -> None:
    chat = ({"role": "system", "content": "Be kind."}, *HI)
    with client(server) as one:
        found = one.messages.count_tokens(model="fake", system="Be kind.", messages=HI)
        assert found.input_tokens == server.tokens(*chat)
        beta = one.beta.messages.count_tokens(model="fake", system="Be kind.", messages=HI)
        assert beta.input_tokens == found.input_tokens


def test_tools_are_counted_as_the_template_shows_them(thinking: Served) -> None:
    with client(thinking) as one:
        found = one.messages.count_tokens(model="fake", messages=HI, tools=[TOOL])
    assert found.input_tokens == thinking.tokens(*HI, tools=[SHOWN])
    assert found.input_tokens > thinking.tokens(*HI) + 100


def test_tools_are_counted_where_the_template_does_not_show_them(server: Served) -> None:
    with client(server) as one:
        found = one.messages.count_tokens(model="fake", messages=HI, tools=[TOOL])
    tools = len(json.dumps([SHOWN])) + 1  # BOS
    assert found.input_tokens == server.tokens(*HI) + tools


# What cannot be had.


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"messages": "hi"}, 400, "invalid_request_error", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400,
         "invalid_request_error", "only text"),
        ({"system": [{"type": "image"}]}, 400, "invalid_request_error", "system.0"),
        ({"max_tokens": "many"}, 400, "invalid_request_error", "max_tokens"),
        ({"temperature": 1000}, 400, "invalid_request_error", "temperature"),
        ({"stop_sequences": ["x"] * 300}, 400, "invalid_request_error", "stop"),
        ({"tools": [TOOL]}, 501, "api_error", "Tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, 501, "api_error", "Tools"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, 501, "api_error",
         "text"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_had_is_refused_before_a_stream_begins(
    server: Served, body: dict[str, Any], status: int, kind: str, words: str, stream: bool
) -> None:
    response = server.post("/v1/messages", {"messages": HI, "stream": stream, **body})
    told = response.json()
    assert (response.status_code, told["type"], told["error"]["type"]) == (status, "error", kind)
    assert words in told["error"]["message"]


def test_a_wrong_tool_cannot_be_counted(server: Served) -> None:
    for tools in ([7], [{"name": 7}]):
        response = server.post("/v1/messages/count_tokens", {"messages": HI, "tools": tools})
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("tools.0")


def test_tools_that_must_not_be_used_are_no_fault(server: Served) -> None:
    with client(server) as one:
        message = one.messages.create(
            model="fake",
            max_tokens=100,
            messages=HI,
            tools=[TOOL],
            tool_choice={"type": "none"},
        )
    assert message.stop_reason == "end_turn"


@pytest.mark.parametrize("stream", [False, True])
def test_overflow_has_the_words_that_clients_look_for(server: Served, stream: bool) -> None:
    long: Any = [{"role": "user", "content": "x" * 3000}]
    with client(server) as one, pytest.raises(anthropic.BadRequestError) as caught:
        one.messages.create(model="fake", max_tokens=100, messages=long, stream=stream)
    tokens = server.tokens(*long)
    assert f"prompt is too long: {tokens} tokens > 2048 maximum" in str(caught.value)


def test_the_turn_of_the_script_is_where_the_template_begins_it(server: Served) -> None:
    assert server.loaded.engine.render(HI).endswith(TURN)
