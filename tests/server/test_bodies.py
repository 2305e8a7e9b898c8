"""Whatever bytes a client sends: a checked model, or a 400 that says what is wrong."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from starlette.requests import ClientDisconnect, Request

from edgespec.server.bodies import MAX_DEPTH, read
from edgespec.server.errors import ApiError, openai_body
from tests.server.asgi import Client, Headers, request, scope


class Turn(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant"]
    content: str = ""


class Asked(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str = "default"
    prompt: str | list[int] = ""
    messages: list[Turn] = []
    temperature: float = 1.0
    seed: int = 0
    stream: bool = False

    @field_validator("seed")
    @classmethod
    def _lucky(cls, seed: int) -> int:
        if seed == 13:
            raise ValueError("13 is\nunlucky.")
        return seed

    @model_validator(mode="after")
    def _one(self) -> Asked:
        if self.prompt and self.messages:
            raise ValueError("give a prompt or messages, not both")
        return self


async def parse(body: object, headers: Headers = ()) -> Asked:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await read(request(raw, headers=headers), Asked)


async def fault(body: object, headers: Headers = ()) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await parse(body, headers)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    return caught.value


async def test_fields_known_and_unknown_arrive() -> None:
    asked = await parse({"model": "m", "temperature": 0, "store": True})
    assert (asked.model, asked.temperature) == ("m", 0.0)
    assert asked.model_extra == {"store": True}


async def test_a_body_in_pieces_is_one() -> None:
    asked = await read(request(b'{"mod', b'el": "', b"\xc3", b'\xa9"}'), Asked)
    assert asked.model == "é"


async def test_null_is_absent() -> None:
    asked = await parse(
        {
            "model": None,
            "suffix": None,
            "messages": [{"role": "assistant", "content": None, "name": None}],
            "stream_options": {"include_usage": None},
        }
    )
    assert asked.model == "default"
    assert asked.messages[0].content == ""
    assert asked.messages[0].model_extra == {}
    assert asked.model_extra == {"stream_options": {}}


FOREIGN = [
    {"tools": [{"function": {"parameters": {"properties": {"x": {"enum": None}}}}}]},
    {"tools": [{"input_schema": {"x": None}}]},
    {"tool_calls": [{"function": {"arguments": {"x": None}}}]},
    {"response_format": {"json_schema": {"schema": {"anyOf": [{"x": None}]}}}},
    {"json_schema": {"properties": {"x": {"const": None, "default": None}}}},
    {"content": [{"type": "tool_use", "input": {"x": None}}]},
    {"chat_template_kwargs": {"x": None}},
    {"list": [None, 1]},
]


@pytest.mark.parametrize("value", FOREIGN, ids=lambda value: next(iter(value)))
async def test_null_in_the_users_own_data_stays(value: dict[str, Any]) -> None:
    assert (await parse(value)).model_extra == value


async def test_null_in_a_list_of_inputs_is_absent() -> None:
    extra = (await parse({"input": [{"id": None}]})).model_extra
    assert extra == {"input": [{}]}


async def test_the_last_of_two_equal_keys_counts() -> None:
    assert (await parse(b'{"model": "a", "model": "b"}')).model == "b"


async def test_a_byte_order_mark_is_no_fault() -> None:
    assert (await parse(b'\xef\xbb\xbf{"model": "a"}')).model == "a"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "not valid JSON"),
        (b'{"a": 1} x', "Extra data at line 1, column 10"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": [-Infinity]}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number is too long"),
        (b"[1, 2]", "must be a JSON object, not an array of 2"),
        (b'"text"', 'must be a JSON object, not "text"'),
        (b"null", "must be a JSON object, not null"),
    ],
)
async def test_what_is_no_json_object_is_a_400(body: bytes, words: str) -> None:
    error = await fault(body)
    assert error.status == 400
    assert words in error.message


def nested(depth: int, kind: str = "[]") -> bytes:
    """So many levels, the body itself included."""
    start, end = ("[", "]") if kind == "[]" else ('{"b":', "}")
    inner = "1" if kind == "{}" else ""
    return ('{"a":' + start * (depth - 1) + inner + end * (depth - 1) + "}").encode()


@pytest.mark.parametrize("kind", ["[]", "{}"])
async def test_nesting_has_a_limit(kind: str) -> None:
    await parse(nested(MAX_DEPTH, kind))
    for depth in (MAX_DEPTH + 1, 300, 5000):
        error = await fault(nested(depth, kind))
        assert error.status == 400
        assert "nested too deeply" in error.message


async def test_nesting_counts_inside_foreign_data_too() -> None:
    assert "nested" in (await fault(nested(200).replace(b'"a"', b'"metadata"'))).message


@pytest.mark.parametrize("start", [b"[", b'{"a":', b'{"a":[[{"b":'])
async def test_megabytes_of_nesting_are_refused_cheaply(start: bytes) -> None:
    before = time.process_time()
    assert "nested" in (await fault(start * (8 * 1024 * 1024 // len(start)))).message
    assert time.process_time() - before < 2.0  # a parser of every level would take far longer


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"model": 5}, "model", "model must be a string, not 5."),
        ({"seed": "x"}, "seed", 'seed must be an integer, not "x".'),
        ({"seed": 1.5}, "seed", "seed must be an integer, not 1.5."),
        ({"stream": "maybe"}, "stream", 'stream must be true or false, not "maybe".'),
        ({"temperature": []}, "temperature", "temperature must be a number, not an array of 0."),
        ({"prompt": 5}, "prompt", "prompt must be a string or an array, not 5."),
        ({"prompt": {}}, "prompt", "prompt must be a string or an array, not an object."),
        ({"messages": {}}, "messages", "messages must be an array, not an object."),
        ({"messages": [5]}, "messages.0", "messages.0 must be an object, not 5."),
        ({"messages": [None]}, "messages.0", "messages.0 must be an object, not null."),
        ({"messages": [{}]}, "messages.0.role", "messages.0.role is missing."),
        ({"messages": [{"role": None}]}, "messages.0.role", "messages.0.role is missing."),
        (
            {"messages": [{"role": "user"}, {"role": "robot"}]},
            "messages.1.role",
            "messages.1.role must be 'user' or 'assistant', not \"robot\".",
        ),
        ({"seed": 13}, "seed", "seed: 13 is unlucky."),
        (
            {"prompt": "a", "messages": [{"role": "user"}]},
            None,
            "The body: give a prompt or messages, not both.",
        ),
    ],
)
async def test_a_wrong_field_is_named(body: object, param: str | None, message: str) -> None:
    error = await fault(body)
    assert error.status == 400
    assert error.type == "invalid_request_error"
    assert openai_body(error)["error"]["param"] == param
    assert error.message == message


async def test_long_values_are_cut() -> None:
    error = await fault({"seed": "y" * 100_000})
    assert error.message == f'seed must be an integer, not "{"y" * 60}…".'
    error = await fault({"messages": [{"role": "é\n" * 1000}]})
    assert len(error.message) < 160
    assert "9" * 40 in (await fault(b'{"model": ' + b"9" * 4000 + b"}")).message


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (r"\ud800", "\ufffd"),
        (r"a\uDC00b", "a\ufffdb"),
        (r"\ud83d\ude42", "🙂"),
        (r"\ud83d\ud83d\ude42", "\ufffd🙂"),
        (r"\\ud83d\ude42", "\\ud83d\ufffd"),
    ],
)
async def test_half_an_emoji_becomes_a_replacement_character(sent: str, meant: str) -> None:
    raw = f'{{"model": "{sent}", "{sent}": [["{sent}"]]}}'.encode()
    asked = await parse(raw)
    assert asked.model == meant
    assert asked.model_extra == {meant: [[meant]]}


async def test_a_large_body_leaves_the_loop_to_others() -> None:
    message = {"role": "user", "content": "x" * 100}
    raw = json.dumps({"messages": [message] * 20_000}).encode()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    asked = await parse(raw)
    task.cancel()
    assert len(asked.messages) == 20_000
    assert turns > 5


async def test_a_client_that_hangs_up_while_sending_is_not_answered() -> None:
    client = Client(b'{"mo', ended=False)
    client.hang_up()
    with pytest.raises(ClientDisconnect):
        await read(Request(scope(), client.receive), Asked)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.api+json", True),
        ("text/plain", False),
        ("text/plain; x=application/json", False),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=x", False),
        ("", False),
    ],
)
async def test_a_web_page_must_send_json_as_json(kind: str, taken: bool) -> None:
    headers = {"origin": "http://localhost:3000", "content-type": kind}
    if taken:
        await parse({}, headers)
    else:
        assert (await fault({}, headers)).status == 415
    # Programs may call it what they like.
    await parse({}, {"content-type": kind})


async def test_a_web_page_without_a_content_type_is_refused() -> None:
    assert (await fault({}, {"origin": "null"})).status == 415
    await parse({})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from([*Asked.model_fields, "role", "content", "other"])


async def status(body: object) -> int:
    try:
        await parse(body)
    except ApiError as error:
        return error.status
    return 200


@given(st.dictionaries(FIELDS, JSON) | JSON)
async def test_no_json_is_anything_but_a_model_or_a_400(value: object) -> None:
    assert await status(value) in (200, 400)


@given(st.binary(max_size=40) | st.binary(max_size=20).map(lambda raw: b'{"a":"' + raw + b'"}'))
async def test_no_bytes_are_anything_but_a_model_or_a_400(raw: bytes) -> None:
    assert await status(raw) in (200, 400)
