"""/v1/embeddings and /api/embed: all shapes of inputs, limits, and an engine that goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgespec.errors import ContextFullError
from edgespec.loading import embedder, load_pair
from edgespec.server.app import create_app
from edgespec.server.settings import Settings
from tests.fake_engine import WARM, Loaded
from tests.fakes import FakeTokenizer
from tests.server.asgi import PATIENCE, Client, scope
from tests.server.inside import inside, talking_to
from tests.tiny_gguf import write_tiny_gguf

MOST = 20
PATH = "/v1/embeddings"


class FakeEmbedder:
    """The number of tokens, and the first and the last of them."""

    size = 3

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.seen: list[list[int]] = []
        self.entered = threading.Semaphore(0)
        self.may_go = threading.Event()
        self.may_go.set()

    def embed(self, tokens: Sequence[int]) -> list[float]:
        self.threads.add(threading.current_thread().name)
        if len(tokens) > MOST:
            raise ContextFullError("too long", len(tokens), MOST)
        self.seen.append(list(tokens))
        self.entered.release()
        assert self.may_go.wait(PATIENCE)
        return [float(len(tokens)), float(tokens[0]), float(tokens[-1])]


def ids(text: str) -> list[int]:
    return [FakeTokenizer.BOS, *text.encode()]


def vector(text: str) -> list[float]:
    return [len(ids(text)), FakeTokenizer.BOS, ids(text)[-1]]


async def ask(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post(PATH, json=body)


@pytest.mark.parametrize("path", [PATH, "/embeddings"])
@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("abc", ["abc"]),
        (["abc", "é"], ["abc", "é"]),
        (ids("abc"), ["abc"]),
        ([ids("abc"), ids("é")], ["abc", "é"]),
        (["x"] * 256, ["x"] * 256),
    ],
    ids=["text", "texts", "tokens", "lists", "many"],
)
async def test_every_shape_of_inputs(path: str, given: object, texts: list[str]) -> None:
    fake = FakeEmbedder()
    async with inside(embedder=fake) as client:
        answer = await client.post(path, json={"model": "any", "input": given})
    assert answer.status_code == 200
    tokens = sum(len(ids(text)) for text in texts)
    assert answer.json() == {
        "object": "list",
        "model": "any",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector(text)}
            for index, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    assert fake.threads == {"edgespec-engine"}


async def test_base64_says_the_same() -> None:
    async with inside(embedder=FakeEmbedder()) as client:
        answer = await ask(client, input=["abc", "x"], encoding_format="base64", dimensions=3)
    found = [
        list(struct.unpack("<3f", base64.b64decode(one["embedding"])))
        for one in answer.json()["data"]
    ]
    assert found == [vector("abc"), vector("x")]


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "input", "input is missing"),
        ({"input": None}, "input", "input is missing"),
        ({"input": 5}, "input", "must be a string or an array"),
        ({"input": {"a": 1}}, "input", "must be a string or an array"),
        ({"input": ""}, "input.0", "input.0 is empty"),
        ({"input": []}, "input", "1 to 256 texts, not 0"),
        ({"input": ["a", ""]}, "input.1", "input.1 is empty"),
        ({"input": [[]]}, "input.0", "input.0 is empty"),
        ({"input": ["a", 1]}, "input.1", "a text or a list of tokens"),
        ({"input": ["a", {}]}, "input.1", "a text or a list of tokens"),
        ({"input": [1, "a"]}, None, "list of token ids"),
        ({"input": [True]}, None, "list of token ids"),
        ({"input": [[1], ["a"]]}, None, "list of token ids"),
        ({"input": [[1.5]]}, None, "list of token ids"),
        ({"input": [-1]}, None, "token id outside"),
        ({"input": [10**30]}, None, "token id outside"),
        ({"input": ["x"] * 257}, "input", "not 257"),
        ({"input": "x", "dimensions": 2}, "dimensions", "3 dimensions, not 2"),
        ({"input": "x", "dimensions": 0}, "dimensions", "greater than or equal to 1"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format", "'float' or 'base64'"),
    ],
)
async def test_what_makes_no_sense(body: dict[str, Any], param: str | None, said: str) -> None:
    async with inside(embedder=FakeEmbedder()) as client:
        answer = await ask(client, **body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert said in answer.json()["error"]["message"]
        assert (await ask(client, input="x")).status_code == 200


@pytest.mark.parametrize("given", ["x" * MOST, ["a", "x" * MOST], [[1] * (MOST + 1)]])
async def test_a_text_that_is_too_long(given: object) -> None:
    async with inside(embedder=FakeEmbedder()) as client:
        answer = await ask(client, input=given)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (MOST + 1, MOST)


async def test_a_text_that_is_too_long_to_be_counted() -> None:
    async with inside(embedder=FakeEmbedder()) as client:
        answer = await ask(client, input="x" * 10**6)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


async def test_a_model_that_makes_none_says_why() -> None:
    async with inside(embedder="it was made to talk.") as client:
        for path, body in ((PATH, {"input": "x"}), ("/api/embed", {"input": "x"})):
            answer = await client.post(path, json=body)
            assert answer.status_code == (501 if path == PATH else 404)
        assert "it was made to talk." in (await ask(client, input="x")).json()["error"]["message"]


async def test_other_names_of_models_are_refused_where_that_is_asked_for() -> None:
    async with inside(embedder=FakeEmbedder(), strict_model=True) as client:
        assert (await ask(client, input="x", model="other")).status_code == 404
        assert (await ask(client, input="x", model="fake")).status_code == 200


async def test_an_answer_goes_on_meanwhile_and_stays_the_same() -> None:
    loaded, fake = Loaded(max_sequences=5), FakeEmbedder()
    alone = loaded.generate(max_tokens=100).text
    body = {"prompt": "The quick brown fox", "max_tokens": 100, **WARM}
    async with inside(loaded, embedder=fake, max_tokens=None) as client:
        loaded.model.hold()
        answer = asyncio.create_task(client.post("/v1/completions", json=body))
        await asyncio.to_thread(loaded.model.wait)
        vectors = asyncio.create_task(ask(client, input=["a", "b"]))
        # A pass at a time, so that the vectors are made between two of them.
        while not vectors.done():
            loaded.model.let(1)
            await asyncio.sleep(0.001)
        assert not answer.done()
        loaded.model.release()
        assert (await vectors).status_code == 200
        assert (await answer).json()["choices"][0]["text"] == alone


async def test_one_request_at_a_time_and_few_wait() -> None:
    fake = FakeEmbedder()
    fake.may_go.clear()
    async with inside(embedder=fake, queue=1) as client:
        first = asyncio.create_task(ask(client, input="a"))
        await asyncio.to_thread(fake.entered.acquire)
        others = [asyncio.create_task(ask(client, input=text)) for text in "bc"]
        (refused,), (waits,) = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        fake.may_go.set()
        assert (await first).status_code == (await waits).status_code == 200
    assert refused.result().status_code == 503
    assert refused.result().headers["retry-after"]
    assert len(fake.seen) == 2


async def test_a_client_that_goes_away_leaves_its_other_texts_unread() -> None:
    loaded, fake = Loaded(), FakeEmbedder()
    fake.may_go.clear()
    with loaded.engine:
        app = create_app(loaded.engine, Settings(model="fake"), None, fake)
        gone = Client(json.dumps({"input": ["a", "b", "c"]}).encode())
        asked = asyncio.create_task(app(scope("POST", PATH), gone.receive, gone.send))
        await asyncio.to_thread(fake.entered.acquire)
        gone.hang_up()
        async with asyncio.timeout(PATIENCE):
            await asked
        fake.may_go.set()
        async with talking_to(app) as client:
            assert (await ask(client, input="d")).status_code == 200
    assert [seen[-1] for seen in fake.seen] == [ord("a"), ord("d")]


# By Ollama's API.


async def embed(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/api/embed", json=body)


async def test_ollamas_embed() -> None:
    async with inside(embedder=FakeEmbedder(), ollama=True) as client:
        answer = (await embed(client, model="fake:latest", input=["abc", "é"])).json()
        assert answer["model"] == "fake:latest"
        assert answer["embeddings"] == [vector("abc"), vector("é")]
        assert answer["prompt_eval_count"] == len(ids("abc")) + len(ids("é"))
        assert answer["total_duration"] > 0
        assert (await embed(client, input="abc")).json()["embeddings"] == [vector("abc")]


@pytest.mark.parametrize("length", [MOST, 400, 10**6])
async def test_ollamas_embed_cuts_what_is_too_long(length: int) -> None:
    text = "é" * length
    async with inside(embedder=FakeEmbedder(), ollama=True) as client:
        answer = await embed(client, input=["a", text])
        assert answer.status_code == 200
        short, cut = answer.json()["embeddings"]
        assert short == vector("a")
        assert MOST // 2 <= cut[0] <= MOST
        refused = await embed(client, input=text, truncate=False)
        assert refused.status_code == 400
        assert "maximum context length" in refused.json()["error"]


@pytest.mark.parametrize(
    "body", [{}, {"input": []}, {"input": [1]}, {"input": [[1]]}, {"input": "x", "dimensions": 7}]
)
async def test_ollamas_embed_refuses_what_makes_no_sense(body: dict[str, Any]) -> None:
    async with inside(embedder=FakeEmbedder(), ollama=True) as client:
        answer = await embed(client, **body)
        assert answer.status_code == 400
        assert isinstance(answer.json()["error"], str)


# On real weights.


async def test_a_model_with_pooling_makes_vectors_between_answers(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "made-to-embed.gguf", pooling=1)
    pair = load_pair(target=path, threads=1, exact="off", num_draft_tokens=0, n_ctx=256)
    chat = {"prompt": "the tree", "max_tokens": 30, "temperature": 0}
    with pair.engine, embedder(pair) as made:
        app = create_app(pair.engine, Settings(model="tiny"), None, made)
        async with talking_to(app) as client:
            before = (await client.post("/v1/completions", json=chat)).json()
            answer = (await ask(client, input=["the tree", "some tea", "the tree"])).json()
            after = (await client.post("/v1/completions", json=chat)).json()
            long = await ask(client, input="tea " * 200)
    first, other, again = (one["embedding"] for one in answer["data"])
    assert first == again
    assert len(first) == 64
    assert math.hypot(*first) == pytest.approx(1.0, abs=1e-5)
    assert sum(a * b for a, b in zip(first, other, strict=True)) < 0.99
    assert after["choices"] == before["choices"]
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert long.json()["error"]["n_ctx"] == 256


async def test_a_model_without_pooling_makes_none(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "made-to-talk.gguf")
    pair = load_pair(target=path, threads=1, exact="off", num_draft_tokens=0, n_ctx=256)
    with pair.engine, embedder(pair) as made:
        app = create_app(pair.engine, Settings(model="tiny"), None, made)
        async with talking_to(app) as client:
            answer = await ask(client, input="x")
    assert answer.status_code == 501
    assert "made-to-talk.gguf" in answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"


def test_the_context_is_freed_before_the_model_even_if_that_is_gone(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "made-to-embed.gguf", pooling=1)
    pair = load_pair(target=path, threads=1, exact="off", num_draft_tokens=0, n_ctx=256)
    with embedder(pair) as made:
        assert not isinstance(made, str)
        pair.engine.between(lambda: made.embed([7, 8])).result(PATIENCE)
    assert made._handle is None
    with embedder(pair):
        pair.engine.close()
