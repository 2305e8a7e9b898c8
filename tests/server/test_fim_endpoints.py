"""`/v1/fim/completions`: filling in the middle by Mistral's API."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.server.gaps import CURSOR, MID, PRE, SUF, Asked, fills_with
from tests.server.inside import inside

PATH = "/v1/fim/completions"
BODY = {"model": "codestral", "prompt": "def f(", "suffix": "return x"}


async def post(client: httpx.AsyncClient, **body: Any) -> Any:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_answer_has_the_form_of_a_chats() -> None:
    loaded = fills_with("x):\n")
    asked = Asked(loaded)
    async with inside(loaded) as client:
        found = await post(client, **BODY)
        also = await client.post("/fim/completions", json=BODY)
    assert also.status_code == 200
    assert asked.prompts[0] == f"{PRE}def f({SUF}return x{MID}"
    assert (found["object"], found["model"]) == ("chat.completion", "codestral")
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "x):\n"},
            "finish_reason": "stop",
        }
    ]
    assert found["usage"]["prompt_tokens"] == 1 + len(asked.prompts[0])
    assert found["usage"]["completion_tokens"] == len("x):\n") + 1


async def test_a_stream_has_the_form_of_a_chats() -> None:
    body: dict[str, Any] = {**BODY, "stream": True}
    async with inside(fills_with("é = 1")) as client:
        plain = (await client.post(PATH, json=body)).text
        options = {"stream_options": {"include_usage": True}}
        counted = (await client.post(PATH, json={**body, **options})).text
    assert plain.endswith("\n\ndata: [DONE]\n\n")
    events = [json.loads(one[6:]) for one in plain.strip().split("\n\n")[:-1]]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    choices = [event["choices"][0] for event in events]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "é = 1"
    assert [choice["finish_reason"] for choice in choices[-2:]] == [None, "stop"]
    assert all("usage" not in event for event in events)
    last = json.loads(counted.strip().split("\n\n")[-2][6:])
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len("é = 1".encode()) + 1


async def test_what_mistrals_clients_send_is_understood() -> None:
    loaded = fills_with("abc")
    asked = Asked(loaded)
    async with inside(loaded) as client:
        await post(client, prompt="a", random_seed=5, min_tokens=None, stop=["c"], n=2)
        found = await post(client, prompt="a", suffix=None, max_tokens=2)
    assert [options["seed"] for options in asked.options[:2]] == [5, 6]
    assert asked.options[0]["stop"] == ["c", CURSOR]
    assert asked.prompts[2] == f"{PRE}a{SUF}{MID}"
    assert found["choices"][0]["message"]["content"] == "ab"
    assert found["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_come_before_the_answer(stream: bool) -> None:
    async with inside() as client:
        response = await client.post(PATH, json={**BODY, "stream": stream})
        assert response.status_code == 501
        assert "cannot fill in the middle" in response.json()["error"]["message"]
    async with inside(fills_with("x", n_ctx=64)) as client:
        for body in ({"prompt": "a" * 64}, {"prompt": "a", "suffix": "b" * 10_000}):
            response = await client.post(PATH, json={**body, "stream": stream})
            assert response.status_code == 400
            error = response.json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        for wrong in ({}, {"prompt": ["a"]}, {"prompt": "a", "suffix": 1}, {"prompt": "a", "n": 9}):
            response = await client.post(PATH, json={**wrong, "stream": stream})
            assert response.status_code == 400


async def test_what_was_suggested_is_predicted() -> None:
    loaded = fills_with("one, two, three", k=4)
    asked = Asked(loaded)
    async with inside(loaded, max_tokens=None) as client:
        await post(client, prompt="f(", suffix=")")
        await client.post(PATH, json={"prompt": "f(", "suffix": ")", "stream": True})
    assert "prediction" not in asked.options[0]
    assert asked.options[1]["prediction"] == "one, two, three"
