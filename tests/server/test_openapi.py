"""The OpenAPI document: it says all there is, and nothing else."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from edgespec import __version__
from edgespec.server.app import create_app
from edgespec.server.openapi import document
from edgespec.server.routes import OLLAMA_ROUTES, ROUTES, Endpoint, endpoints
from edgespec.server.settings import Settings
from tests.fake_engine import Loaded
from tests.server.asgi import ask
from tests.server.inside import inside

ALL = endpoints(like_ollama=True)
# They refuse whatever the body says.
BODILESS = {"kept", "unsupported"}


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return document(ALL, needs_key=False)


def operations(whole: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


async def test_it_is_served_as_it_is_made() -> None:
    async with inside() as client:
        answer = await client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    made = document(ROUTES, needs_key=False)
    assert answer.json() == json.loads(json.dumps(made))
    assert (made["openapi"], made["info"]["title"]) == ("3.1.0", "edgespec")
    assert made["info"]["version"] == __version__


async def test_ollamas_paths_are_in_it_where_they_are_served() -> None:
    for like_ollama in (True, False):
        async with inside(ollama=like_ollama) as client:
            paths = (await client.get("/openapi.json")).json()["paths"]
        own = {path for one in OLLAMA_ROUTES for path in one.paths}
        assert own.issubset(paths) is like_ollama
        assert any(path.startswith("/api/") for path in paths) is like_ollama


@pytest.mark.parametrize("endpoint", ALL, ids=lambda one: f"{one.method} {one.paths[0]}")
def test_the_table_names_the_model_that_the_handler_reads(endpoint: Endpoint) -> None:
    read = re.findall(r"\bread\(request, (\w+)\)", inspect.getsource(endpoint.handler))
    assert read == ([endpoint.body.__name__] if endpoint.body else [])
    if endpoint.method == "POST" and endpoint.handler.__name__ not in BODILESS:
        assert read


def test_no_path_is_in_the_table_twice() -> None:
    assert max(Counter((one.method, path) for one in ALL for path in one.paths).values()) == 1


def test_every_operation_is_described(whole: dict[str, Any]) -> None:
    names = []
    for path, method, operation in operations(whole):
        names.append(operation["operationId"])
        assert operation["summary"], path
        assert operation["description"].startswith(operation["summary"])
        assert ("requestBody" in operation) <= (method == "post")
        assert set(operation["responses"]) == {"200", "default"}
        placed = [one["name"] for one in operation.get("parameters", ())]
        assert placed == re.findall(r"{(\w+)}", path)
    assert len(names) == len(set(names)) == sum(len(one.paths) for one in ALL)


def test_a_body_is_what_its_model_says(whole: dict[str, Any]) -> None:
    content = whole["paths"]["/chat/completions"]["post"]["requestBody"]["content"]
    assert content == {"application/json": {"schema": {"$ref": "#/components/schemas/ChatBody"}}}
    schema = whole["components"]["schemas"]["ChatBody"]
    assert schema["required"] == ["messages"]
    assert {"model", "temperature", "max_completion_tokens", "stream"} <= schema[
        "properties"
    ].keys()


def test_all_that_is_referred_to_is_there_and_sound(whole: dict[str, Any]) -> None:
    schemas = whole["components"]["schemas"]
    for reference in references(whole):
        assert reference.removeprefix("#/components/schemas/") in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_what_can_be_streamed_says_so(whole: dict[str, Any]) -> None:
    def kinds(path: str, method: str = "post") -> list[str]:
        return list(whole["paths"][path][method]["responses"]["200"]["content"])

    assert kinds("/v1/chat/completions") == ["application/json", "text/event-stream"]
    assert kinds("/api/chat") == ["application/json", "application/x-ndjson"]
    for path in ("/v1/embeddings", "/v1/chat/completions/input_tokens", "/apply-template"):
        assert kinds(path) == ["application/json"]
    assert kinds("/metrics", "get") == ["text/plain"]


@pytest.mark.parametrize(
    ("path", "name", "keys"),
    [
        ("/v1/chat/completions", "Error", False),
        ("/v1/messages", "AnthropicError", False),
        ("/v1/messages/count_tokens", "AnthropicError", False),
        ("/api/chat", "OllamaError", False),
        ("/v1/chat/completions", "Error", True),
        ("/v1/messages", "AnthropicError", True),
        ("/api/chat", "OllamaError", True),
    ],
)
async def test_errors_have_the_shape_that_is_promised(
    whole: dict[str, Any], path: str, name: str, keys: bool
) -> None:
    promised = whole["paths"][path]["post"]["responses"]["default"]["content"]
    reference = {"$ref": f"#/components/schemas/{name}"}
    assert promised == {"application/json": {"schema": reference}}
    async with inside(ollama=True, keys=("secret",) if keys else ()) as client:
        answer = await client.post(path, content=b"[")
    assert answer.status_code == (401 if keys else 400)
    checker = Draft202012Validator(whole["components"]["schemas"][name])
    assert not list(checker.iter_errors(answer.json()))
    others = {"Error", "AnthropicError", "OllamaError"} - {name}
    for other in others:
        checker = Draft202012Validator(whole["components"]["schemas"][other])
        assert list(checker.iter_errors(answer.json()))


async def test_keys_are_asked_for_and_documented() -> None:
    open_one, locked = document(ALL, needs_key=False), document(ALL, needs_key=True)
    assert {} in open_one["security"]
    assert locked["security"] == [{"bearer": []}, {"key": []}]
    assert locked["paths"]["/health"]["get"]["security"] == []
    assert "security" not in locked["paths"]["/"]["get"]
    loaded = Loaded()
    with loaded.engine:
        app = create_app(loaded.engine, Settings(model="fake", keys=("secret",)))
        for path in ("/", "/openapi.json", "/v1/embeddings"):
            assert (await ask(app, "GET", path)).status == 401
        right = await ask(app, "GET", "/openapi.json", {"x-api-key": "secret"})
    assert right.json["security"] == locked["security"]


async def test_the_first_page_says_what_this_is() -> None:
    async with inside(model="my-model") as client:
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/plain")
        for words in ("edgespec", "my-model", "/v1", "/openapi.json"):
            assert words in page.text
        assert "Ollama" not in page.text
        assert (await client.head("/")).status_code == 200
        assert (await client.post("/")).status_code == 405
    async with inside(ollama=True) as client:
        assert "Ollama's API begins at /api" in (await client.get("/")).text
