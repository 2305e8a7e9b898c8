"""`/v1/completions`: prompts in all their forms, echo and logprobs, streams, suffixes."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI

from edgespec.server.backend import Answer, Backend
from edgespec.server.errors import bad_request
from tests.fake_engine import Loaded, readable
from tests.fakes import FakeTokenizer
from tests.server.asgi import PATIENCE
from tests.server.gaps import CURSOR, FILE, MID, PRE, SUF, Asked, fills_with
from tests.server.inside import inside
from tests.server.live import Connection, head
from tests.server.scripted import served

PATH = "/v1/completions"
BOS = FakeTokenizer.BOS
SEED: dict[str, Any] = {"seed": 7, "max_tokens": 6}


async def post(client: httpx.AsyncClient, **body: Any) -> Any:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def texts(client: httpx.AsyncClient, **body: Any) -> list[str]:
    found = await post(client, **{**SEED, **body})
    assert [choice["index"] for choice in found["choices"]] == list(range(len(found["choices"])))
    return [choice["text"] for choice in found["choices"]]


async def error(client: httpx.AsyncClient, status: int, **body: Any) -> Any:
    response = await client.post(PATH, json=body)
    assert response.status_code == status, response.text
    return response.json()["error"]


def events(response: httpx.Response) -> list[Any]:
    """Of a stream, which ends as it should."""
    assert response.status_code == 200
    *blocks, last, rest = response.text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


# Prompts.


async def test_an_answer_has_the_shape_of_the_api() -> None:
    async with inside() as client:
        found = await post(client, prompt="Hello", model="any")
        again = await client.post("/completions", json={"prompt": "Hello"})
    assert again.status_code == 200
    assert found["id"].startswith("cmpl-")
    assert (found["object"], found["model"]) == ("text_completion", "any")
    (choice,) = found["choices"]
    assert choice.keys() == {"text", "index", "logprobs", "finish_reason"}
    assert choice["logprobs"] is None
    assert choice["finish_reason"] == "length"
    assert found["usage"]["prompt_tokens"] == 6  # with BOS
    assert found["usage"]["completion_tokens"] == 8  # what the server is set to
    assert found["usage"]["total_tokens"] == 14
    assert found["timings"]["predicted_n"] == 8


async def test_a_prompt_may_be_text_or_tokens() -> None:
    loaded = Loaded(max_sequences=5)
    async with inside(loaded) as client:
        expected = loaded.engine.generate("Hello", **SEED).text
        tokens = [BOS, *b"Hello"]
        for prompt in ("Hello", ["Hello"], tokens, [tokens], [BOS, "Hel", *b"lo"]):
            assert await texts(client, prompt=prompt) == [expected], prompt
        assert await texts(client, prompt=list(b"Hello")) != [expected]  # no BOS is added


async def test_choices_are_numbered_prompt_by_prompt() -> None:
    async with inside() as client:
        first = [(await texts(client, prompt="one", seed=seed))[0] for seed in (7, 8)]
        second = [(await texts(client, prompt="two", seed=seed))[0] for seed in (7, 8)]
        assert len({*first, *second}) == 4
        assert await texts(client, prompt=["one", "two"], n=2) == [*first, *second]
        found = await post(client, prompt=["one", "twofold"], n=2, **SEED)
        streamed = await client.post(
            PATH,
            json={"prompt": ["one", "two"], "n": 2, "stream": True, **SEED},
        )
    assert found["usage"]["prompt_tokens"] == 4 + 8
    assert found["usage"]["completion_tokens"] == 4 * 6
    said = ["", "", "", ""]
    for event in events(streamed):
        said[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert said == [*first, *second]


@pytest.mark.parametrize(
    "prompt",
    [
        *([], [True], [[]], [[True]], {}, 5, True, 1.5, [1.5], [None], [[["a"]]], [{"a": 1}]),
        *([1, [2]], ["a"] * 65, ["a", 5, *["b"] * 4096], [999], [-1], [10**30], [[1], [999]]),
    ],
)
async def test_other_prompts_are_refused(prompt: Any) -> None:
    async with inside() as client:
        found = await error(client, 400, prompt=prompt)
        assert found["type"] == "invalid_request_error"
        assert (await client.post(PATH, json={"prompt": "fine"})).status_code == 200


async def test_the_fault_of_a_prompt_is_named() -> None:
    async with inside() as client:
        assert (await error(client, 400))["message"] == "prompt is missing."
        assert (await error(client, 400, prompt=None))["param"] == "prompt"
        assert (await error(client, 400, prompt=["a", {}]))["param"] == "prompt.1"
        assert "65" in (await error(client, 400, prompt=["a"] * 65))["message"]


async def test_control_tokens_in_a_prompt_count() -> None:
    # Many clients put the prompt into the model's form themselves.
    async with inside() as client:
        for prompt, tokens in (("a<|im_end|>b", 4), ("<s>ab", 5), ("ab", 3)):
            found = await post(client, prompt=prompt)
            assert found["usage"]["prompt_tokens"] == tokens, prompt


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_sent(stream: bool) -> None:
    async with inside(Loaded(n_ctx=64)) as client:
        for prompt in ("x" * 64, "x" * 100_000, [65] * 64, ["fine", "x" * 64]):
            found = await error(client, 400, prompt=prompt, stream=stream)
            assert found["type"] == "exceed_context_size_error"
            assert (found["code"], found["param"]) == ("context_length_exceeded", "prompt")
            assert found["n_ctx"] == 64


# Options.


async def test_stop_strings_end_the_text() -> None:
    async with inside() as client:
        (whole,) = await texts(client, prompt="Hello")
        found = await post(client, prompt="Hello", stop=whole[3], **SEED)
    assert found["choices"][0]["text"] == whole[: whole.index(whole[3])]
    assert found["choices"][0]["finish_reason"] == "stop"


async def test_best_of_is_taken_for_n() -> None:
    async with inside() as client:
        assert len(await texts(client, prompt="a", n=2, best_of=5)) == 2
        assert (await error(client, 400, prompt="a", n=2, best_of=1))["param"] == "best_of"


async def test_null_and_unknown_fields_are_ignored() -> None:
    async with inside() as client:
        await post(
            client,
            prompt="a",
            **dict.fromkeys(("suffix", "echo", "logprobs", "stream", "stop", "n", "best_of")),
            user="me",
            store=True,
        )


@pytest.mark.parametrize(
    ("body", "short"),
    [
        ({"max_tokens": 256}, True),
        ({"max_tokens": 257}, False),
        ({"max_tokens": -1}, False),
        ({}, False),
        ({"suffix": "b", "max_tokens": 5000}, True),
    ],
)
async def test_short_answers_may_pass_by(
    body: dict[str, Any], short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    prepare = Backend.prepare

    async def watched(self: Backend, *arguments: Any, **options: Any) -> Any:
        seen.append(options.get("short", False))
        return await prepare(self, *arguments, **options)

    monkeypatch.setattr(Backend, "prepare", watched)
    async with inside(fills_with("x"), max_tokens=None) as client:
        await post(client, prompt=f"a{MID}", **body)
    assert seen == [short]


async def test_an_error_of_one_prompt_is_that_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Answer.completion

    async def fails(self: Answer) -> Any:
        if self.generation.request.prompt[-1] == ord("b"):
            raise bad_request("b is bad")
        return await whole(self)

    monkeypatch.setattr(Answer, "completion", fails)
    async with inside() as client:
        assert (await error(client, 400, prompt=["a", "b", "c"]))["message"] == "b is bad"
        assert all(not slot["is_processing"] for slot in (await client.get("/slots")).json())


# Echo and logprobs.


def logprobs_of(tokens: list[int]) -> list[float]:
    """Of the tokens after the first."""
    table = readable()
    found = []
    for at in range(1, len(tokens)):
        row = table(tokens[:at]).astype(np.float64)
        found.append(float(row[tokens[at]] - np.log(np.exp(row).sum())))
    return found


async def test_the_likelihood_of_a_prompt() -> None:
    tokens = [BOS, *b"Hello"]
    async with inside() as client:
        found = await post(client, prompt="Hello", echo=True, logprobs=2, max_tokens=0)
    (choice,) = found["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hello", "length")
    assert found["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["<s>", *"Hello"]
    assert logprobs["text_offset"] == [0, 0, 1, 2, 3, 4]
    first, *others = logprobs["token_logprobs"]
    assert first is None
    assert others == pytest.approx(logprobs_of(tokens), rel=1e-4)
    assert logprobs["top_logprobs"][0] is None
    for name, value, top in zip(
        logprobs["tokens"][1:], others, logprobs["top_logprobs"][1:], strict=True
    ):
        assert top[name] == value
        assert len(top) in (2, 3)
        assert max(top.values()) == next(iter(top.values()))


async def test_the_likelihood_of_a_continuation_as_lm_eval_asks_for_it() -> None:
    context, continuation = [BOS, *b"The quick"], list(b" brown")
    body = {"max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0, "seed": 1}
    async with inside() as client:
        prompts = [[*context, *continuation], [*context, *b" red"]]
        found = await post(client, prompt=prompts, **body)
    for prompt, choice in zip(prompts, found["choices"], strict=True):
        logprobs = choice["logprobs"]
        assert len(logprobs["token_logprobs"]) == len(prompt) + 1
        mine = sum(logprobs["token_logprobs"][len(context) : -1])
        assert mine == pytest.approx(sum(logprobs_of(prompt)[len(context) - 1 :]), rel=1e-4)
        text = choice["text"]
        start = len("The quick")
        named = [
            name
            for name, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True)
            if offset >= start
        ]
        assert "".join(named) == text[start:]


async def test_tokens_without_a_text_of_their_own() -> None:
    prompt = "é<|im_end|>x"
    async with inside() as client:
        found = await post(client, prompt=prompt, echo=True, logprobs=0, max_tokens=0)
    logprobs = found["choices"][0]["logprobs"]
    assert found["choices"][0]["text"] == prompt
    assert logprobs["tokens"] == ["<s>", "bytes:\\xc3", "bytes:\\xa9", "<|im_end|>", "x"]
    assert logprobs["text_offset"] == [0, 0, 0, 1, len(prompt) - 1]
    assert [len(top) for top in logprobs["top_logprobs"][1:]] == [1] * 4


async def test_echo_alone() -> None:
    async with inside() as client:
        (text,) = await texts(client, prompt="Hello")
        assert await texts(client, prompt="Hello", echo=True) == ["Hello" + text]
        assert await texts(client, prompt=[BOS, *b"Hello"], echo=True) == ["Hello" + text]
        assert await texts(client, prompt="Hello", echo=True, max_tokens=0) == ["Hello"]


async def test_the_end_of_an_answer_is_in_the_lists() -> None:
    async with inside(fills_with("yes")) as client:
        found = await post(client, prompt=MID, logprobs=1)
    assert found["choices"][0]["text"] == "yes"
    logprobs = found["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["y", "e", "s", "</s>"]
    assert len(logprobs["token_logprobs"]) == found["usage"]["completion_tokens"]
    assert logprobs["text_offset"] == [0, 1, 2, 3]


async def test_logprobs_false_is_none() -> None:
    async with inside() as client:
        found = await post(client, prompt="a", logprobs=False)
        assert found["choices"][0]["logprobs"] is None
        assert (await error(client, 400, prompt="a", logprobs=101))["param"] == "logprobs"
        assert (await error(client, 400, prompt="a", logprobs=-1))["param"] == "logprobs"


# Streams.


@pytest.mark.parametrize("more", [{}, {"echo": True}, {"logprobs": 2}, {"echo": 1, "logprobs": 1}])
async def test_a_stream_says_the_same(more: dict[str, Any]) -> None:
    body = {"prompt": "Hello", **SEED, **more}
    async with inside() as client:
        whole = (await post(client, **body))["choices"][0]
        found = events(await client.post(PATH, json={**body, "stream": True}))
    assert {event["object"] for event in found} == {"text_completion"}
    assert len({event["id"] for event in found}) == 1
    assert all("usage" not in event for event in found)
    choices = [choice for event in found for choice in event["choices"]]
    assert all(isinstance(choice["text"], str) for choice in choices)
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [
        "length"
    ]
    assert "timings" in found[-1]
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = [choice["logprobs"][key] for choice in choices if choice["logprobs"]]
        joined = [one for part in parts for one in part]
        assert joined == (whole["logprobs"][key] if whole["logprobs"] else [])


async def test_usage_comes_last_if_it_is_asked_for() -> None:
    body = {"prompt": "Hello", "stream": True, "stream_options": {"include_usage": True}}
    async with inside() as client:
        *_, last = events(await client.post(PATH, json=body))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 8


async def test_an_error_in_a_stream_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: Answer) -> Any:
        raise bad_request("it broke")
        yield

    monkeypatch.setattr(Answer, "chunks", fails)
    async with inside() as client:
        response = await client.post(PATH, json={"prompt": "a", "stream": True})
    assert response.status_code == 200
    assert json.loads(response.text.removeprefix("data: "))["error"]["message"] == "it broke"


# Suffixes.


async def test_a_suffix_asks_for_what_lies_between() -> None:
    loaded = fills_with("middle")
    asked = Asked(loaded)
    async with inside(loaded) as client:
        found = await post(client, prompt="before", suffix="after")
        both = await post(client, prompt=["one", "two"], suffix="after", n=2)
        echoed = await post(client, prompt="before", suffix="after", echo=True)
    assert found["choices"][0]["text"] == "middle"
    assert found["choices"][0]["finish_reason"] == "stop"
    assert asked.prompts[0] == f"{PRE}before{SUF}after{MID}"
    assert [choice["text"] for choice in both["choices"]] == ["middle"] * 4
    assert asked.prompts[1:5] == [
        f"{PRE}{text}{SUF}after{MID}" for text in ("one",) * 2 + ("two",) * 2
    ]
    assert echoed["choices"][0]["text"] == "beforemiddle"


@pytest.mark.parametrize("end", [FILE, CURSOR])
async def test_what_ends_an_answer_in_the_middle_is_no_part_of_it(end: str) -> None:
    async with inside(fills_with(f"ab{end}cd")) as client:
        found = await post(client, prompt="a", suffix="b", max_tokens=50)
    assert found["choices"][0]["text"] == "ab"
    assert found["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("suffix", ["", None])
async def test_an_empty_suffix_is_none(suffix: str | None) -> None:
    async with inside() as client:  # whose model cannot fill in the middle
        await post(client, prompt="a", suffix=suffix)


async def test_a_model_that_cannot_fill_in_the_middle_says_why() -> None:
    async with inside() as client:
        found = await error(client, 501, prompt="a", suffix="b")
        assert found["type"] == "not_supported_error"
        assert found["param"] == "suffix"
        assert "cannot fill in the middle" in found["message"]


async def test_suffixes_that_make_no_sense() -> None:
    async with inside(fills_with("x", n_ctx=64)) as client:
        assert (await error(client, 400, prompt=[65], suffix="b"))["param"] == "prompt"
        assert (await error(client, 400, prompt="a", suffix=5))["param"] == "suffix"
        body = {"prompt": "a", "suffix": "b", "echo": True, "logprobs": 1}
        assert (await error(client, 400, **body))["param"] == "echo"
        for suffix in ("b" * 64, "b" * 1_000_000):
            found = await error(client, 400, prompt="a", suffix=suffix)
            assert (found["code"], found["param"]) == ("context_length_exceeded", "prompt")


async def test_only_predictions_of_the_client_are_in_the_usage() -> None:
    body = {"prompt": "a", "suffix": "b"}
    prediction = {"type": "content", "content": "midway"}
    async with inside(fills_with("middle", k=4)) as client:
        await post(client, **body)
        repeated = await post(client, **body)
        predicted = await post(client, **body, prediction=prediction)
    # What was suggested before is predicted, but not by the client.
    assert repeated["timings"]["edgespec"]["by_drafter"]["prediction"]["accepted"] > 0
    assert repeated["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
    details = predicted["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 0
    assert details["rejected_prediction_tokens"] > 0


# A real client.


def test_openai_python_accepts_what_it_gets() -> None:
    def client(strict: bool) -> OpenAI:
        return OpenAI(
            base_url=f"{server.url}/v1",
            api_key="any",
            timeout=PATIENCE,
            _strict_response_validation=strict,
        )

    with served("Grüße 🎉", after=":") as server:
        with client(True) as one:
            found = one.completions.create(model="any", prompt="Say:", logprobs=2)
        assert found.choices[0].text == "Grüße 🎉"
        assert found.choices[0].finish_reason == "stop"
        assert found.usage is not None
        # Of the parts of a stream its models demand a finish_reason, which OpenAI's own lack too.
        with client(False) as one:
            stream = one.completions.create(model="any", prompt="Say:", stream=True)
            assert "".join(part.choices[0].text for part in stream) == "Grüße 🎉"


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_end_with_the_connection(stream: bool) -> None:
    body = {"prompt": ["a:", "b:", "c:"], "n": 2, "max_tokens": 1000, "stream": stream}
    with served("x" * 1000, after=":") as server:
        server.model.hold()
        with Connection(server.port) as connection:
            raw = json.dumps(body).encode()
            connection.send(head("POST", PATH, content_length=str(len(raw))) + raw)
            server.model.wait()
        deadline = time.monotonic() + PATIENCE
        while any(slot["is_processing"] for slot in server.get("/slots").json()):
            assert time.monotonic() < deadline, "an answer goes on"
            time.sleep(0.005)
        server.model.release()
        found = server.post(PATH, {"prompt": "d:", "max_tokens": 3}).json()
        assert found["usage"]["completion_tokens"] == 3
        assert server.model.passes < 20
