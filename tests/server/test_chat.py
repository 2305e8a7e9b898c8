"""`/v1/chat/completions`: what is asked for, and what comes back, whole and in pieces."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.fake_engine import WARM, Loaded
from tests.server.asking import ask, joined, refused, stream, text_of
from tests.server.inside import inside
from tests.server.scripted import TURN, says
from tests.server.whole import CHAT, chat, said


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with inside() as client:
        yield client


# The shape.


async def test_a_whole_answer(client: httpx.AsyncClient) -> None:
    found = await ask(client, model="any-name", max_tokens=5)
    assert found["object"] == "chat.completion"
    assert found["model"] == "any-name"
    assert found["id"].startswith("chatcmpl-")
    assert found["system_fingerprint"].endswith("-fake")
    (choice,) = found["choices"]
    assert choice["index"] == 0
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert set(choice["message"]) == {"role", "content", "refusal"}
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 5
    usage = found["usage"]
    prompt = len(f"<|im_start|>user\nHello|\n{TURN}") + 1  # <|im_end|> is one, and BOS another
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, 5)
    assert usage["total_tokens"] == prompt + 5
    assert found["timings"]["predicted_n"] == 5
    assert found["id"] != (await ask(client))["id"]


async def test_a_stream_is_the_same_answer(client: httpx.AsyncClient) -> None:
    whole = await ask(client, max_tokens=5)
    events = await stream(client, max_tokens=5)
    assert events.pop() is None
    first, last = events[0], events[-1]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "length",
    }
    assert last["timings"]["predicted_n"] == 5
    assert said(events) == text_of(whole)
    for event in events:
        assert event["object"] == "chat.completion.chunk"
        assert event["model"] == "fake"
        assert event["system_fingerprint"] == whole["system_fingerprint"]
        assert (event["id"], event["created"]) == (first["id"], first["created"])
        assert "usage" not in event
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-1])


async def test_usage_is_told_at_the_end_of_a_stream_if_asked_for(client: httpx.AsyncClient) -> None:
    whole = await ask(client)
    *_, last, done = await stream(client, stream_options={"include_usage": True})
    assert done is None
    assert last["choices"] == []
    cached = {"prompt_tokens_details": {"cached_tokens": whole["usage"]["prompt_tokens"] - 1}}
    assert last["usage"] == {**whole["usage"], **cached}


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"]
)
async def test_every_name_of_the_limit(client: httpx.AsyncClient, name: str) -> None:
    body = {**chat(), "max_tokens": None, name: 3}
    found = (await client.post(CHAT, json=body)).json()
    assert found["usage"]["completion_tokens"] == 3
    both = {**body, "max_completion_tokens": 2, "max_tokens": 7}
    found = (await client.post(CHAT, json=both)).json()
    assert found["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("limit", [-1, None])
async def test_no_limit_is_that_of_the_server(limit: int | None) -> None:
    async with inside(Loaded(n_ctx=100), max_tokens=None) as client:
        found = await ask(client, max_tokens=limit)
        assert found["usage"]["total_tokens"] == 100
        assert found["choices"][0]["finish_reason"] == "length"
    async with inside(max_tokens=4) as client:
        assert (await ask(client, max_tokens=limit))["usage"]["completion_tokens"] == 4


async def test_a_limit_of_0_reads_the_prompt_only(client: httpx.AsyncClient) -> None:
    found = await ask(client, max_tokens=0)
    assert text_of(found) == ""
    assert found["usage"]["completion_tokens"] == 0
    again = await ask(client, max_tokens=1)
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == again["usage"]["prompt_tokens"] - 1


async def test_a_wrong_name_of_a_model_is_refused_where_that_is_wished() -> None:
    async with inside(strict_model=True) as client:
        error = await refused(client, 404, model="gpt-4o")
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        for name in ("fake", ""):
            assert (await ask(client, model=name))["model"] == "fake"


# What is asked for.


@pytest.mark.parametrize(
    "stop", ["END", ["END"], ["nothing", "END"], ["EN", "END"], ["D tw", "END"], "ND t"]
)
async def test_stop_strings(stop: str | list[str]) -> None:
    cut = {"EN": "one ", "ND t": "one E"}.get(stop if isinstance(stop, str) else stop[0], "one ")
    async with inside(Loaded(says("one END two")), max_tokens=None) as client:
        whole = await ask(client, max_tokens=None, stop=stop)
        assert text_of(whole) == cut
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert said(await stream(client, max_tokens=None, stop=stop)) == cut
        for nothing in ("", [], ["zzz"]):
            assert text_of(await ask(client, max_tokens=None, stop=nothing)) == "one END two"


async def test_the_models_own_end(client: httpx.AsyncClient) -> None:
    async with inside(Loaded(says("Yes.")), max_tokens=None) as client:
        found = await ask(client, max_tokens=None)
        assert text_of(found) == "Yes."
        assert found["choices"][0]["finish_reason"] == "stop"


async def test_several_choices(client: httpx.AsyncClient) -> None:
    asked = {**WARM, "n": 3, "seed": 40, "max_tokens": 12}
    alone = [text_of(await ask(client, **{**asked, "n": 1, "seed": 40 + i})) for i in range(3)]
    found = await ask(client, **asked)
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in found["choices"]] == alone
    assert len(set(alone)) == 3
    usage = found["usage"]
    assert usage["completion_tokens"] == 36
    assert usage["total_tokens"] == usage["prompt_tokens"] + 36
    events = await stream(client, **asked, stream_options={"include_usage": True})
    assert [joined(events, "content", index) for index in range(3)] == alone
    assert [joined(events, "role", index) for index in range(3)] == ["assistant"] * 3
    ends = [c for e in events if e for c in e["choices"] if c["finish_reason"]]
    assert [choice["index"] for choice in ends] == [0, 1, 2]
    assert events[-2]["usage"]["completion_tokens"] == 36


async def test_the_prompt_of_several_choices_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = Loaded()
    renders = 0
    render = loaded.engine._prompts.render

    def counting(*arguments: Any) -> str:
        nonlocal renders
        renders += 1
        return render(*arguments)

    monkeypatch.setattr(loaded.engine._prompts, "render", counting)
    async with inside(loaded) as client:
        await ask(client, n=4)
    assert renders == 1


@pytest.mark.parametrize("n", [0, 9, 1.5, "x"])
async def test_more_choices_than_make_sense(client: httpx.AsyncClient, n: object) -> None:
    assert (await refused(client, 400, n=n))["param"] == "n"


async def test_log_probabilities() -> None:
    async with inside(Loaded(says("aé")), max_tokens=None) as client:
        asked = {"max_tokens": None, "logprobs": True, "top_logprobs": 2}
        found = await ask(client, **asked)
        content = found["choices"][0]["logprobs"]["content"]
        assert [bytes(one["bytes"]) for one in content] == [b"a", b"\xc3", b"\xa9"]
        for one in content:
            assert one["logprob"] == pytest.approx(0.0, abs=1e-6)
            assert one["top_logprobs"][0]["bytes"] == one["bytes"]
            assert len(one["top_logprobs"]) == 2
            assert all(math.isfinite(top["logprob"]) for top in one["top_logprobs"])
        events = await stream(client, **asked)
        choices = [event["choices"][0] for event in events if event]
        told = [
            one for choice in choices if choice["logprobs"] for one in choice["logprobs"]["content"]
        ]
        assert told == content
        few = await ask(client, max_tokens=None, logprobs=True)
        assert [one["top_logprobs"] for one in few["choices"][0]["logprobs"]["content"]] == [[]] * 3
        assert (await ask(client, logprobs=False))["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("wrong", [{"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 101}])
async def test_log_probabilities_that_cannot_be(
    client: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    assert (await refused(client, 400, **wrong))["param"] == "top_logprobs"


async def test_predictions_are_counted() -> None:
    text = "exactly this text"
    async with inside(Loaded(says(text), k=4, max_sequences=5), max_tokens=None) as client:
        details = "completion_tokens_details"
        right = await ask(client, max_tokens=None, prediction={"type": "content", "content": text})
        assert text_of(right) == text
        assert right["usage"][details]["accepted_prediction_tokens"] >= 12
        assert right["usage"][details]["rejected_prediction_tokens"] == 0
        assert right["timings"]["draft_n_accepted"] >= 12
        wrong = await ask(client, max_tokens=None, prediction={"content": text.upper()})
        assert text_of(wrong) == text
        assert wrong["usage"][details]["rejected_prediction_tokens"] > 0
        # Rejected tokens are no part of the answer.
        tokens = right["usage"]["completion_tokens"]
        assert wrong["usage"]["completion_tokens"] == tokens == len(text) + 1
        # Drafts of others are not predictions.
        other = await ask(client, max_tokens=None)
        assert set(other["usage"][details].values()) == {0}
        assert other["timings"]["draft_n"] > 0
        events = await stream(
            client,
            max_tokens=None,
            prediction={"content": text},
            stream_options={"include_usage": True},
        )
        assert events[-2]["usage"][details]["accepted_prediction_tokens"] >= 12


async def test_speculation_can_be_switched_off() -> None:
    async with inside(Loaded(k=4, max_sequences=5)) as client:
        plain = await ask(client, speculative={"num_draft_tokens": 0})
        assert "draft_n" not in plain["timings"]
        assert text_of(await ask(client)) == text_of(plain)
        assert (await ask(client, speculative={"num_draft_tokens": "auto"}))["timings"]["draft_n"]
        for wrong in (-1, 33, "many"):
            error = await refused(client, 400, speculative={"num_draft_tokens": wrong})
            assert error["param"] == "speculative.num_draft_tokens"


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tools": [{}], "tool_choice": "required"}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ],
)
async def test_what_is_not_supported_yet_is_said(
    client: httpx.AsyncClient, asked: dict[str, Any], param: str
) -> None:
    for streamed in (True, False):
        error = await refused(client, 501, stream=streamed, **asked)
        assert (error["type"], error["param"]) == ("not_supported_error", param)


async def test_what_asks_for_nothing_special_is_taken(client: httpx.AsyncClient) -> None:
    await ask(client, tools=[], response_format={"type": "text"}, parallel_tool_calls=True)
    await ask(client, tools=[{"type": "function"}], tool_choice="none", store=True, user="x")


async def test_numbers_out_of_range(client: httpx.AsyncClient) -> None:
    for wrong in ({"temperature": -1}, {"top_p": 2}, {"seed": 1.5}, {"max_tokens": "many"}):
        error = await refused(client, 400, **wrong)
        assert next(iter(wrong)) in error["message"]
