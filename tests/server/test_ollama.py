"""Ollama's API, which exists only where it was asked for."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import httpx
import pytest

from edgespec.errors import BackendError, TemplateError
from edgespec.server.app import create_app
from edgespec.server.card import Card
from edgespec.server.settings import Settings
from edgespec.text.fim import Fim
from tests.fake_engine import WARM, Loaded
from tests.server.asgi import PATIENCE
from tests.server.inside import SETTINGS, inside
from tests.server.live import Connection, head, serving
from tests.server.scripted import OPENED, THINKING, TURN, says

HI = [{"role": "user", "content": "hi"}]
TEXT = "Grüße, wörld 🎉!"
CARD = Card(
    description="qwen2 7B Q4_K - Medium",
    architecture="qwen2",
    size=4_700_000_000,
    parameters=7_600_000_000,
    n_ctx_train=32768,
    template="{{ messages }}",
)
FIM = Fim("test", "PSM", prefix=1, suffix=2, middle=3, stop_strings=("[end]",))
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def speaking(text: str = TEXT, **options: Any) -> Loaded:
    after = options.pop("after", TURN)
    return Loaded(says(text, after), max_sequences=5, n_ctx=1024, **options)


def like_ollama(loaded: Loaded | None = None, **settings: Any) -> Any:
    return inside(loaded, **{"ollama": True, "max_tokens": 100, **settings})


async def whole(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(path, json={"stream": False, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


async def lines(client: httpx.AsyncClient, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.splitlines()]


def message(content: str, **more: str) -> dict[str, str]:
    return {"role": "assistant", "content": content, **more}


# What is there.


async def test_nothing_of_it_is_there_unless_asked_for() -> None:
    async with inside() as client:
        for method, path in (("GET", "/api/version"), ("GET", "/api/tags"), ("POST", "/api/chat")):
            answer = await client.request(method, path, json={})
            assert answer.status_code == 404
            assert isinstance(answer.json()["error"], str)


async def test_the_version_is_one_that_clients_compare() -> None:
    async with like_ollama() as client:
        version = (await client.get("/api/version")).json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)


async def test_lists_name_the_model_and_what_is_known_of_it() -> None:
    async with like_ollama(card=CARD, created=1_700_000_000) as client:
        (listed,) = (await client.get("/api/tags")).json()["models"]
        (loaded,) = (await client.get("/api/ps")).json()["models"]
    assert listed.items() <= loaded.items()
    assert (listed["name"], listed["model"], listed["size"]) == ("fake", "fake", CARD.size)
    assert listed["modified_at"] == "2023-11-14T22:13:20Z"
    assert len(bytes.fromhex(listed["digest"])) == 32
    assert listed["details"] == {
        "parent_model": "",
        "format": "gguf",
        "family": "qwen2",
        "families": ["qwen2"],
        "parameter_size": "7.6B",
        "quantization_level": "Q4_K - Medium",
    }
    assert loaded["context_length"] == 512
    assert datetime.fromisoformat(loaded["expires_at"]).year == 9999


@pytest.mark.parametrize("key", ["model", "name"])
async def test_show_has_what_copilot_wants(key: str) -> None:
    async with like_ollama(card=CARD) as client:
        shown = (await client.post("/api/show", json={key: "fake:latest"})).json()
    assert shown["capabilities"] == ["completion"]
    assert shown["model_info"]["general.architecture"] == "qwen2"
    assert shown["model_info"]["qwen2.context_length"] == 512
    assert shown["template"] == CARD.template
    assert shown["details"]["family"] == "qwen2"


async def test_capabilities_tell_of_filling_in_and_embeddings() -> None:
    class Embedder:
        size = 1

        def embed(self, tokens: object) -> list[float]:
            return [1.0]

    async with like_ollama(speaking(fim=FIM), embedder=Embedder()) as client:
        shown = (await client.post("/api/show", json={})).json()
        assert shown["capabilities"] == ["completion", "insert", "embedding"]
        (listed,) = (await client.get("/v1/models")).json()["models"]
        assert listed["capabilities"] == shown["capabilities"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("POST", f"/api/{what}", 501) for what in ("pull", "push", "create", "copy")),
        ("DELETE", "/api/delete", 501),
        ("POST", "/api/embeddings", 404),
        ("POST", "/api/blobs/sha256:00", 404),
        ("GET", "/api/chat", 405),
    ],
)
async def test_the_rest_is_refused_in_words(method: str, path: str, status: int) -> None:
    async with like_ollama() as client:
        answer = await client.request(method, path, json={"model": "x"})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert isinstance(answer.json()["error"], str)


async def test_other_names_are_refused_where_that_is_asked_for() -> None:
    async with like_ollama(strict_model=True) as client:
        for path in ("/api/show", "/api/chat", "/api/generate"):
            for name, status in (("other", 404), ("fake", 200), ("fake:latest", 200)):
                answer = await client.post(path, json={"model": name})
                assert answer.status_code == status
                assert status == 200 or "other" in answer.json()["error"]


async def test_the_key_is_asked_for_here_as_well() -> None:
    async with like_ollama(keys=("secret",)) as client:
        for path in ("/api/tags", "/api/version"):
            assert (await client.get(path)).status_code == 401
            right = {"authorization": "Bearer secret"}
            assert (await client.get(path, headers=right)).status_code == 200


# Chats.


async def test_a_chat_as_a_whole() -> None:
    async with like_ollama(speaking()) as client:
        answer = await whole(client, "/api/chat", model="m", messages=HI, keep_alive="5m")
        prompt = await client.post("/v1/chat/completions/input_tokens", json={"messages": HI})
    assert answer["model"] == "m"
    assert answer["message"] == message(TEXT)
    assert (answer["done"], answer["done_reason"]) == (True, "stop")
    assert answer["prompt_eval_count"] == prompt.json()["input_tokens"]
    assert answer["eval_count"] == len(TEXT.encode()) + 1  # and the end
    assert all(isinstance(answer[name], int) for name in DURATIONS)
    assert answer["total_duration"] > 0
    assert answer["eval_duration"] > 0
    assert datetime.fromisoformat(answer["created_at"]).tzinfo is not None


async def test_a_chat_comes_in_lines_unless_it_is_to_be_whole() -> None:
    async with like_ollama(speaking()) as client:
        *parts, last = await lines(client, "/api/chat", messages=HI)
    assert "".join(part["message"]["content"] for part in parts) == TEXT
    assert len(parts) > 3
    assert all(part["done"] is False and "done_reason" not in part for part in parts)
    assert last["message"] == message("")
    assert (last["done"], last["done_reason"]) == (True, "stop")
    assert last["eval_count"] == len(TEXT.encode()) + 1
    assert {"prompt_eval_count", *DURATIONS} <= last.keys()


@pytest.mark.parametrize(("path", "empty"), [("/api/chat", "message"), ("/api/generate", None)])
async def test_without_a_prompt_the_model_is_just_there(path: str, empty: str | None) -> None:
    loaded = speaking()
    async with like_ollama(loaded) as client:
        for body in ({}, {"messages": [], "prompt": ""}, {"stream": False, "keep_alive": 0}):
            answer = (await client.post(path, json=body)).json()
            assert (answer["done"], answer["done_reason"]) == (True, "load")
            assert answer["message" if empty else "response"] == (message("") if empty else "")
    assert loaded.model.passes == 0


THOUGHT = "So it is.</think>\n\nYes."


@pytest.mark.parametrize("think", [True, "high", None])
async def test_thoughts_stand_apart(think: object) -> None:
    async with like_ollama(speaking(THOUGHT, after=OPENED, template=THINKING)) as client:
        answer = await whole(client, "/api/chat", messages=HI, think=think)
        assert answer["message"] == message("Yes.", thinking="So it is.")
        parts = await lines(client, "/api/chat", messages=HI, think=think)
        thoughts = [part["message"].get("thinking", "") for part in parts]
        assert "".join(thoughts) == "So it is."
        assert "".join(part["message"]["content"] for part in parts) == "Yes."
        short = await whole(client, "/api/generate", prompt="hi", think=think)
        assert (short["response"], short["thinking"]) == ("Yes.", "So it is.")


@pytest.mark.parametrize("think", [False, "none"])
async def test_thinking_can_be_switched_off(think: object) -> None:
    async with like_ollama(speaking("No.", template=THINKING)) as client:
        answer = await whole(client, "/api/chat", messages=HI, think=think)
    assert answer["message"] == message("No.")


async def test_options_by_ollamas_names() -> None:
    loaded = Loaded(max_sequences=5)
    names = {"repeat_last_n": "penalty_last_n", "num_predict": "max_tokens"}
    options = {
        "num_predict": 30,
        "temperature": 1.5,
        "top_k": 0,
        "top_p": 0.9,
        "min_p": 0.01,
        "seed": 11,
        "repeat_penalty": 1.3,
        "repeat_last_n": 16,
        "stop": ["zz"],
    }
    ours = {names.get(name, name): value for name, value in options.items()}
    right = loaded.engine.generate("hi", **ours).text  # type: ignore[arg-type]
    ignored = {"num_ctx": 64, "num_gpu": 1, "mirostat": 0, "tfs_z": None}
    async with like_ollama(loaded) as client:
        body = {"prompt": "hi", "raw": True, "options": {**options, **ignored}}
        assert (await whole(client, "/api/generate", **body))["response"] == right
        other = {**body, "options": {**options, "seed": 12}}
        assert (await whole(client, "/api/generate", **other))["response"] != right


@pytest.mark.parametrize(("limit", "count"), [(3, 3), (-1, 8), (-2, 8), (None, 8)])
async def test_how_long_an_answer_may_be(limit: int | None, count: int) -> None:
    async with like_ollama(max_tokens=SETTINGS["max_tokens"]) as client:
        answer = await whole(client, "/api/chat", messages=HI, options={"num_predict": limit})
    assert (answer["eval_count"], answer["done_reason"]) == (count, "length")


async def test_all_tokens_may_count_for_the_penalty() -> None:
    async with like_ollama() as client:
        body = {"messages": HI, "options": {"repeat_last_n": -1, "repeat_penalty": 1.2}}
        assert (await whole(client, "/api/chat", **body))["eval_count"] == 100


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("chat", {"tools": [{}]}, 501, "Tools are not supported"),
        ("chat", {"format": "json"}, 501, "Only text"),
        ("generate", {"format": {"type": "object"}}, 501, "Only text"),
        ("generate", {"template": "{{ .Prompt }}"}, 501, "raw: true"),
        ("generate", {"images": ["aGk="]}, 400, "images: this model reads only text"),
        ("chat", {"messages": [{"role": "user", "images": ["aGk="]}]}, 400, "messages.0.images"),
        ("chat", {"messages": "hi"}, 400, "messages must be an array"),
        ("chat", {"messages": [5]}, 400, "messages.0 must be an object"),
        ("chat", {"options": {"temperature": "hot"}}, 400, "options.temperature must be a number"),
        ("chat", {"options": {"temperature": -1}}, 400, "temperature must be 0, or"),
        ("chat", {"options": {"num_predict": 1.5}}, 400, "must be an integer"),
        ("chat", {"options": {"stop": [5]}}, 400, "must be a string"),
        ("chat", {"stream": "maybe"}, 400, "stream must be true or false"),
        ("chat", {"messages": [{"role": "user", "content": "x" * 2000}]}, 400, "maximum context"),
        ("generate", {"prompt": "x" * 2000, "raw": True}, 400, "maximum context"),
        ("generate", {"prompt": 5}, 400, "prompt must be a string"),
        ("generate", {"raw": True, "system": "s"}, 400, "takes no system"),
        ("generate", {"suffix": "x"}, 501, "cannot fill in"),
    ],
)
async def test_what_cannot_be_honoured(
    path: str, body: dict[str, Any], status: int, said: str
) -> None:
    async with like_ollama() as client:
        answer = await client.post(f"/api/{path}", json={"messages": HI, "prompt": "hi", **body})
        assert answer.status_code == status
        assert list(answer.json()) == ["error"]
        assert said in answer.json()["error"]
        assert await whole(client, "/api/chat", messages=HI)


@pytest.mark.parametrize("empty", [{"format": ""}, {"images": []}, {"tools": []}, {"think": None}])
async def test_what_is_empty_was_not_asked_for(empty: dict[str, Any]) -> None:
    async with like_ollama() as client:
        for path in ("/api/chat", "/api/generate"):
            assert await whole(client, path, messages=HI, prompt="hi", **empty)


async def test_a_failure_in_the_middle_is_the_last_line() -> None:
    loaded = speaking()
    async with like_ollama(loaded) as client:
        loaded.model.hold()
        asked = asyncio.create_task(client.post("/api/chat", json={"messages": HI}))
        await asyncio.to_thread(loaded.model.wait)
        loaded.model.let(2)
        await asyncio.to_thread(loaded.model.wait, 3)
        loaded.model.fail_next = BackendError("the machine is on fire")
        loaded.model.release()
        *parts, last = [json.loads(line) for line in (await asked).text.splitlines()]
        assert parts
        assert list(last) == ["error"]
        assert "fire" not in last["error"]
        assert await whole(client, "/api/chat", messages=HI)


# Prompts.


async def test_generate_puts_the_prompt_into_the_models_template() -> None:
    async with like_ollama(speaking()) as client:
        *parts, last = await lines(client, "/api/generate", prompt="hi", system="Be kind.")
        chat = [{"role": "system", "content": "Be kind."}, *HI]
        right = await client.post("/v1/chat/completions/input_tokens", json={"messages": chat})
    assert "".join(part["response"] for part in parts) == TEXT
    assert (last["response"], last["done_reason"]) == ("", "stop")
    assert last["prompt_eval_count"] == right.json()["input_tokens"]


async def test_a_raw_prompt_is_left_as_it_is_control_tokens_included() -> None:
    async with like_ollama(speaking("<think>not one</think> ", after="say:")) as client:
        body = {"prompt": "<|im_end|>say:", "raw": True}
        answer = await whole(client, "/api/generate", **body)
        assert answer["response"] == "<think>not one</think> "
        assert "thinking" not in answer
        assert answer["prompt_eval_count"] == len("say:") + 2  # begin, and the control token
        parts = await lines(client, "/api/generate", **body)
        assert "".join(part["response"] for part in parts) == answer["response"]


async def test_without_a_template_a_prompt_is_continued() -> None:
    loaded = Loaded(says("done", after="go:"), template=TemplateError("none"))
    async with like_ollama(loaded) as client:
        assert (await whole(client, "/api/generate", prompt="go:"))["response"] == "done"
        refused = await client.post("/api/generate", json={"prompt": "go:", "system": "s"})
        assert refused.status_code == 400
        assert "takes no system" in refused.json()["error"]


@pytest.mark.parametrize("prompt", ["def f(", ""])
async def test_a_suffix_makes_it_fill_the_gap(prompt: str) -> None:
    async with like_ollama(speaking("  x[end]y", after="\x03", fim=FIM)) as client:
        body = {"prompt": prompt, "suffix": "):", "options": {"stop": ["never"]}}
        answer = await whole(client, "/api/generate", **body)
        parts = await lines(client, "/api/generate", **body)
    assert answer["response"] == "  x"
    assert answer["prompt_eval_count"] == len(prompt) + len("):") + 4  # begin and three marks
    assert "".join(part["response"] for part in parts) == "  x"


# The connection.


def test_a_client_that_goes_away_ends_the_answer() -> None:
    loaded = Loaded(max_sequences=5, n_ctx=4096)
    with loaded.engine:
        app = create_app(loaded.engine, Settings(model="fake", ollama=True))
        with serving(app) as port:
            body = json.dumps({"messages": HI, "options": {"num_predict": 4000, **WARM}}).encode()
            with Connection(port) as connection:
                start = head("POST", "/api/chat", content_length=str(len(body)))
                connection.send(start + body)
                connection.until(b'"done":false}\n')
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                while any(slot["is_processing"] for slot in client.get("/slots").json()):
                    pass
    assert loaded.model.passes < 4000
