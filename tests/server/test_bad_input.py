"""Whatever is sent: a 4xx in the API's own shape, or an answer, and an engine that goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from starlette.types import ASGIApp

from edgespec.server.app import create_app
from edgespec.server.openapi import document
from edgespec.server.routes import Endpoint, endpoints
from edgespec.server.settings import Settings
from edgespec.text.fim import Fim
from tests.fake_engine import Loaded
from tests.server.inside import talking_to
from tests.server.live import KEY, Connection, head, serving

ALL = endpoints(like_ollama=True)
READING = [one for one in ALL if one.body is not None]
DOCUMENT = document(ALL, needs_key=False)
FIM = Fim("test", "PSM", prefix=1, suffix=2, middle=3)

HI = [{"role": "user", "content": "hi"}]
# A body that is answered, for every endpoint: each reads what it knows of it.
GOOD: dict[str, Any] = {
    "messages": HI,
    "prompt": "hi",
    "input": "hi",
    "suffix": "",
    "content": "hi",
    "tokens": [104],
    "max_tokens": 2,
    "n_predict": 2,
    "stream": False,
}


def good(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    body = {**GOOD, **more}
    if "responses" in endpoint.paths[0]:
        del body["prompt"]  # something else there
    return body


every_endpoint = pytest.mark.parametrize(
    "endpoint", READING, ids=lambda one: f"{one.method} {one.paths[0]}"
)


class Embedder:
    size = 2

    def embed(self, tokens: object) -> list[float]:
        return [0.6, 0.8]


@pytest.fixture(scope="module")
def app() -> Iterator[ASGIApp]:
    loaded = Loaded(max_sequences=5, fim=FIM)
    with loaded.engine:
        settings = Settings(model="fake", max_tokens=2, ollama=True)
        yield create_app(loaded.engine, settings, None, Embedder())


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    """After every test it looks whether the engine still answers."""
    async with talking_to(app) as one:
        yield one
        answer = await one.post("/v1/chat/completions", json={"messages": HI})
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"]
        assert not any(slot["is_processing"] for slot in (await one.get("/slots")).json())


def check_error(answer: httpx.Response, path: str, method: str = "post") -> None:
    """It has the shape that the document promises, and tells nothing of the inside."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    schema = responses["default"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": DOCUMENT["components"]}
    assert answer.headers["content-type"] == "application/json"
    Draft202012Validator(whole).validate(answer.json())
    assert "Traceback" not in answer.text
    assert "edgespec/" not in answer.text
    assert len(answer.text) < 1000


def nested(start: bytes, end: bytes, depth: int, inner: bytes = b"1") -> bytes:
    return b'{"messages":' + start * depth + inner + end * depth + b"}"


NO_OBJECTS: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b" \r\n",
    "cut off": b'{"messages": [{"role": "us',
    "a brace": b"{",
    "single quotes": b"{'a': 1}",
    "no JSON": b"messages=hi&stream=1",
    "two values": b"{} {}",
    "a comment": b"{} // hi",
    "a list": b"[]",
    "a list of numbers": b"[1, 2, 3]",
    "a number": b"5",
    "a text": b'"hi"',
    "null": b"null",
    "true": b"true",
    "NaN": b'{"temperature": NaN}',
    "Infinity": b'{"temperature": -Infinity}',
    "too large": b'{"temperature": 1e999}',
    "a long number": b'{"seed": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"prompt": "\xff\xfe"}',
    "half a character": b'{"prompt": "\xf0\x9f"}',
    "UTF-16": '{"prompt": "hi"}'.encode("utf-16"),
    "a null byte": b'{"prompt": "\x00"}',
    "nothing but null bytes": b"\x00" * 1000,
    "deep lists": nested(b"[", b"]", 100_000),
    "deep objects": nested(b'{"a":', b"}", 100_000),
    "never closed": b"[" * 1_000_000,
}


@every_endpoint
async def test_what_is_no_json_object(client: httpx.AsyncClient, endpoint: Endpoint) -> None:
    for name, body in NO_OBJECTS.items():
        answer = await client.post(endpoint.paths[0], content=body)
        assert answer.status_code == 400, name
        check_error(answer, endpoint.paths[0])


WRONG = [10**30, -1, 1e308, "x", "", True, [[]], {"a": [{}]}, [{"a": "b"}]]


@every_endpoint
async def test_every_field_with_wrong_values(client: httpx.AsyncClient, endpoint: Endpoint) -> None:
    assert endpoint.body is not None
    path = endpoint.paths[0]
    refused = 0
    answer = await client.post(path, json=good(endpoint))
    assert answer.status_code == 200, answer.text
    properties = endpoint.body.model_json_schema()["properties"]
    for name in properties:
        for value in WRONG:
            body = {**good(endpoint), name: value}
            answer = await client.post(path, json=body)
            assert answer.status_code in (200, 400, 501), (name, value, answer.text)
            if answer.status_code != 200:
                refused += 1
                check_error(answer, path)
    assert refused >= len(properties)


@every_endpoint
async def test_ten_megabytes(client: httpx.AsyncClient, endpoint: Endpoint) -> None:
    large = "x" * 10_000_000
    messages = [{"role": "user", "content": large}]
    body = good(endpoint, messages=messages, prompt=large, input=large)
    answer = await client.post(endpoint.paths[0], json=body)
    if endpoint.paths[0] in ("/tokenize", "/detokenize", "/apply-template", "/api/show"):
        assert answer.status_code in (200, 400)
    elif endpoint.paths[0] in ("/infill", "/api/embed"):
        assert answer.status_code == 200  # they shorten what is too long
    else:
        assert answer.status_code == 400
        check_error(answer, endpoint.paths[0])
        assert "maximum context length" in answer.text


async def test_more_than_a_body_may_have(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", content=b" " * (33 * 2**20))
    assert answer.status_code == 413
    check_error(answer, "/v1/chat/completions")


MESSAGES: list[Any] = [
    [],
    [{}],
    [5],
    [[]],
    ["hi"],
    [None],
    {"role": "user", "content": "hi"},
    "hi",
    [{"role": "alien", "content": "hi"}],
    [{"role": "", "content": "hi"}],
    [{"role": 5, "content": "hi"}],
    [{"role": ["user"], "content": "hi"}],
    [{"role": "user"}],
    [{"content": "hi"}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": {"text": "hi"}}],
    [{"role": "user", "content": [5]}],
    [{"role": "user", "content": [{}]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "text", "text": 5}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///"}}]}],
    [{"role": "user", "content": [{"type": "alien", "alien": 1}]}],
    [{"role": "tool", "content": "42"}],
    [{"role": "assistant", "content": None, "tool_calls": [{}]}],
    [{"role": "assistant", "tool_calls": [5]}],
    [{"role": "assistant", "tool_calls": {"a": 1}}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": 5, "arguments": "{"}}]}],
    [{"role": "system", "content": "x"}] * 3,
    [{"role": "user", "content": "{{ 7 * 7 }}{% for x in y %}"}],
    [{"role": "user", "content": "\x00\ud800\uffff"}],
    [{"role": "user", "content": "x", "name": {"a": 1}}],
    HI * 2000,
]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "messages"),
        ("/v1/chat/completions/input_tokens", "messages"),
        ("/apply-template", "messages"),
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", "messages"),
        ("/v1/responses", "input"),
        ("/v1/responses/input_tokens", "input"),
        ("/api/chat", "messages"),
    ],
)
async def test_unknown_roles_empty_and_odd_messages(
    client: httpx.AsyncClient, path: str, field: str
) -> None:
    refused = 0
    for messages in MESSAGES:
        body = json.dumps({"max_tokens": 2, "stream": False, field: messages}).encode()
        answer = await client.post(path, content=body)
        assert answer.status_code in (200, 400, 501), (messages, answer.text)
        if answer.status_code != 200:
            refused += 1
            check_error(answer, path)
    assert refused > 10


async def test_a_body_of_another_kind_from_a_web_page(client: httpx.AsyncClient) -> None:
    headers = {"origin": "http://localhost:3000", "content-type": "text/plain"}
    for endpoint in READING:
        answer = await client.post(endpoint.paths[0], json=good(endpoint), headers=headers)
        assert answer.status_code == 415
        check_error(answer, endpoint.paths[0])


# Paths, byte by byte.

TRICKS = [
    *("/v1/../health", "/v1/%2e%2e/health", "/health/..", "/health/../v1/models", "/.", "/%2e"),
    *("//", "//health", "/v1//models", "///v1/models", "//localhost/v1/models"),
    *("/health%00", "/%00", "/v1/models%00", "/v1/models/%00", "/v1/models/%00/health"),
    *("/v1/models/../../etc/passwd", "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/etc/passwd"),
    *("/v1/models/..%5c..%5cwindows", "/v1/models/c:/x", "/v1/models/file:///etc/passwd"),
    *("/" + "a" * 8000, "/v1/models/" + "a" * 50_000, "/v1/models/" + "%61" * 5000, "/" * 5000),
    *("/%ff", "/v1/models/%ff%fe", "/%c0%ae%c0%ae/", "/%zz", "/v1/models/%", "/v1/m%6Fdels"),
    *("/V1/MODELS", "/v1/models;x=1", "/v1/models/ ", "/HEALTH", "/health/", "/health;", "/v1"),
    *("/v1/models/{name}", "/{x}", "/v1/responses/../models", "/slots/0", "/metrics/../health"),
    *("*", "http://localhost/", "http://evil.example/health", "health", "?", "#"),
]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    loaded = Loaded(max_sequences=5)
    with loaded.engine:
        settings = Settings(model="fake", max_tokens=2, ollama=True, keys=(KEY,))
        with serving(create_app(loaded.engine, settings)) as one:
            yield one


# What this is after decoding is served, on purpose.
SERVED = "/v1/m%6Fdels"


@pytest.mark.parametrize("path", TRICKS, ids=lambda path: path[:40])
def test_a_path_is_found_or_refused_but_never_walked(port: int, path: str) -> None:
    for method in ("GET", "POST"):
        with Connection(port) as connection:
            answer = connection.ask(method, path)
        assert answer.status in ((200, 405) if path == SERVED else (400, 404, 405)), answer.body
        assert b"root:" not in answer.body
        if answer.status != 200:
            error = json.loads(answer.body)["error"]
            assert error if isinstance(error, str) else error["message"]
            assert len(answer.body) < 1000


@pytest.mark.parametrize("path", TRICKS, ids=lambda path: path[:40])
def test_no_path_gets_past_the_key(port: int, path: str) -> None:
    with Connection(port) as connection:
        answer = connection.ask("GET", path, authorization="")
    assert answer.status in (400, 401)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "get"])
def test_methods_that_a_path_does_not_take(port: int, method: str) -> None:
    for path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
        with Connection(port) as connection:
            answer = connection.ask(method, path)
        assert answer.status == 405
        assert "method" in str(json.loads(answer.body)["error"])


def test_the_server_answers_after_all_that(port: int) -> None:
    body = json.dumps({"messages": HI}).encode()
    with Connection(port) as connection:
        connection.send(head("POST", "/v1/chat/completions", content_length=str(len(body))) + body)
        assert connection.answer().status == 200
