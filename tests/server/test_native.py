"""llama.cpp's own API: /completion, /tokenize, /detokenize, /apply-template."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.fake_engine import Loaded
from tests.fakes import FakeTokenizer
from tests.server.gaps import MID, fills_with
from tests.server.inside import inside

BOS, END, NAMED_END = FakeTokenizer.BOS, FakeTokenizer.END, FakeTokenizer.NAMED_END
SEED: dict[str, Any] = {"seed": 7, "n_predict": 6}


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def refused(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


# /completion


async def test_an_answer_has_the_shape_of_llama_cpps() -> None:
    loaded = Loaded(max_sequences=5)
    async with inside(loaded) as client:
        text = loaded.engine.generate("Hello", seed=7, max_tokens=6).text
        found = await post(client, "/completion", prompt="Hello", **SEED)
        defaults = await post(client, "/completion", prompt="Hello")
    assert (found["content"], found["stop"], found["stop_type"]) == (text, True, "limit")
    assert (found["tokens_evaluated"], found["tokens_predicted"]) == (6, 6)
    assert (found["index"], found["tokens"]) == (0, [])
    assert found["generation_settings"]["seed"] == 7
    assert found["timings"]["predicted_n"] == 6
    assert "completion_probabilities" not in found
    assert defaults["tokens_predicted"] == 8  # what the server is set to
    assert defaults["generation_settings"]["n_predict"] == -1


async def test_prompts_may_be_mixed_and_many() -> None:
    async with inside() as client:
        one = (await post(client, "/completion", prompt="Hello", **SEED))["content"]
        two = (await post(client, "/completion", prompt="Other", **SEED))["content"]
        tokens = [BOS, *b"Hello"]
        for prompt in (tokens, [BOS, "Hello"], ["Hel", *b"lo"], ["Hello"]):
            found = await post(client, "/completion", prompt=prompt, **SEED)
            assert found["content"] == one, prompt
        several = await post(client, "/completion", prompt=["Hello", [BOS, "Other"]], **SEED)
        repeated = await post(client, "/completion", prompt="Hello", n_cmpl=2, **SEED)
    assert [(answer["index"], answer["content"]) for answer in several] == [(0, one), (1, two)]
    assert repeated[0]["content"] == one != repeated[1]["content"]


async def test_tokens_and_probabilities_for_those_who_ask() -> None:
    body = {"prompt": MID, "return_tokens": True, "n_probs": 2}
    async with inside(fills_with("yes")) as client:
        found = await post(client, "/completion", **body)
        streamed = await client.post("/completion", json={**body, "stream": True})
    assert found["tokens"] == [*b"yes", END]
    entries = found["completion_probabilities"]
    assert [entry["token"] for entry in entries] == ["y", "e", "s"]
    assert entries[0]["id"] == ord("y")
    assert entries[0]["logprob"] == entries[0]["top_logprobs"][0]["logprob"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    events = [json.loads(block[6:]) for block in streamed.text.strip().split("\n\n")]
    assert [token for event in events for token in event["tokens"]] == [*b"yes", END]
    assert [one for event in events for one in event.get("completion_probabilities", ())] == entries


async def test_every_event_of_a_stream_has_content_and_stop() -> None:
    async with inside() as client:
        whole = (await post(client, "/completion", prompt="Hello", **SEED))["content"]
        body = {"prompt": "Hello", "stream": True, **SEED}
        response = await client.post("/completion", json=body)
    assert "[DONE]" not in response.text
    events = [json.loads(block[6:]) for block in response.text.strip().split("\n\n")]
    assert "".join(event["content"] for event in events) == whole
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert [event["tokens_predicted"] for event in events] == [1, 2, 3, 4, 5, 6, 6]
    assert events[-1]["stop_type"] == "limit"


async def test_limits_of_editors_hold_here_too() -> None:
    async with inside(fills_with("a\n  b\nc")) as client:
        found = await post(client, "/completion", prompt=MID, n_indent=2, response_fields=["stop"])
        content = await post(client, "/completion", prompt=MID, n_indent=2)
    assert found == {"stop": True}
    assert content["content"] == "a\n  b\n"


async def test_a_prompt_is_only_read_when_no_tokens_are_wanted() -> None:
    async with inside() as client:
        found = await post(client, "/completion", prompt="Hello", n_predict=0)
        after = await post(client, "/completion", prompt="Hello, world", **SEED)
    assert (found["content"], found["tokens_predicted"]) == ("", 0)
    assert after["timings"]["cache_n"] >= 5


@pytest.mark.parametrize("stream", [False, True])
async def test_bad_prompts(stream: bool) -> None:
    async with inside(Loaded(n_ctx=64)) as client:
        for prompt in ([], {}, {"prompt_string": "a"}, None, [True], [[1, [2]]], [300]):
            await refused(client, "/completion", {"prompt": prompt, "stream": stream})
        assert (await refused(client, "/completion", {}))["param"] == "prompt"
        error = await refused(client, "/completion", {"prompt": "x" * 64, "stream": stream})
        assert error["type"] == "exceed_context_size_error"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (65, 64)
        assert error["param"] == "prompt"
        error = await refused(client, "/completion", {"prompt": "a", "n_probs": 101})
        assert error["param"] == "n_probs"


# Tokens.


async def test_tokenize() -> None:
    async with inside() as client:

        async def tokens(**body: Any) -> Any:
            return (await post(client, "/tokenize", **body))["tokens"]

        assert await tokens(content="hé") == list("hé".encode())
        assert await tokens(content="a<|im_end|>") == [ord("a"), NAMED_END]
        raw = await tokens(content="a<|im_end|>", parse_special=False)
        assert raw == list(b"a<|im_end|>")
        assert await tokens(content="a", add_special=True) == [BOS, ord("a")]
        assert await tokens(content=["a", 98, "c"], add_special=True) == [BOS, *b"abc"]
        assert await tokens(content="") == await tokens() == await tokens(content=None) == []
        assert await tokens(content="é<|im_end|>", with_pieces=True) == [
            {"id": 0xC3, "piece": [0xC3]},
            {"id": 0xA9, "piece": [0xA9]},
            {"id": NAMED_END, "piece": "<|im_end|>"},
        ]


async def test_detokenize() -> None:
    async with inside() as client:

        async def text(**body: Any) -> Any:
            return (await post(client, "/detokenize", **body))["content"]

        assert await text(tokens=[*"hé".encode(), NAMED_END]) == "hé<|im_end|>"
        assert await text(tokens=[0xC3]) == "\ufffd"
        assert await text(tokens=[]) == await text() == ""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": 5}),
        ("/tokenize", {"content": {}}),
        ("/tokenize", {"content": [[1]]}),
        ("/tokenize", {"content": [999], "with_pieces": True}),
        ("/tokenize", {"content": "x" * 100_000}),
        ("/detokenize", {"tokens": "a"}),
        ("/detokenize", {"tokens": [999]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10**30]}),
        ("/apply-template", {}),
        ("/apply-template", {"messages": []}),
        ("/apply-template", {"messages": [{"role": "nobody", "content": {}}]}),
    ],
)
async def test_bad_requests(path: str, body: dict[str, Any]) -> None:
    async with inside() as client:
        assert (await refused(client, path, body))["message"]


async def test_apply_template() -> None:
    messages = [{"role": "user", "content": "hi"}]
    async with inside() as client:
        opened = await post(client, "/apply-template", messages=messages)
        bare = await post(client, "/apply-template", messages=messages, add_generation_prompt=False)
    assert bare == {"prompt": "<|im_start|>user\nhi<|im_end|>\n"}
    assert opened == {"prompt": bare["prompt"] + "<|im_start|>assistant\n"}
