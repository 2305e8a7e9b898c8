"""`/infill`, as llama.vim and llama.vscode use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from tests.fake_engine import Loaded
from tests.server.asgi import PATIENCE
from tests.server.gaps import CURSOR, FILE, MID, PRE, REPO, SUF, Asked, fills_with
from tests.server.inside import inside

VIM: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": "import os\n",
    "input_suffix": "\nmain()\n",
    "input_extra": [
        {"text": "X = 1\n", "filename": "a.py", "time": 1.5},
        {"text": "Y = 2\n", "filename": None},
    ],
    "prompt": "def ",
    "n_predict": 128,
    "stop": [],
    "n_indent": 0,
    "top_k": 40,
    "top_p": 0.9,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
}
WARM_UP = {
    **VIM,
    "input_prefix": "",
    "input_suffix": "",
    "prompt": "",
    "n_predict": 0,
    "samplers": [],
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}


async def infill(client: httpx.AsyncClient, **body: Any) -> Any:
    response = await client.post("/infill", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def until(condition: Callable[[], Any]) -> None:
    """Wait for what is to come soon."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.005)


async def test_an_answer_has_the_shape_of_llama_cpps() -> None:
    async with inside(fills_with("f():")) as client:
        found = await infill(client, **VIM, model="any")
    assert found["content"] == "f():"
    assert (found["index"], found["model"], found["stop"]) == (0, "any", True)
    assert (found["stop_type"], found["stopping_word"]) == ("eos", "")
    assert found["tokens_predicted"] == 5
    assert found["tokens_cached"] == found["tokens_evaluated"] + 4
    assert (found["truncated"], found["has_new_line"]) == (False, False)
    assert found["timings"]["prompt_n"] == found["tokens_evaluated"]
    settings = found["generation_settings"]
    assert settings["n_ctx"] == 2048
    assert (settings["n_predict"], settings["top_k"], settings["top_p"]) == (128, 40, 0.9)
    assert isinstance(settings["seed"], int)


async def test_the_prompt_is_llama_cpps() -> None:
    loaded = fills_with("x")
    asked = Asked(loaded)
    async with inside(loaded) as client:
        await infill(client, **VIM)
        await infill(client, input_prefix="a", input_suffix="b")
        await infill(client)
    file = f"{PRE}import os\ndef {SUF}\nmain()\n{MID}"
    others = f"{FILE}a.py\nX = 1\n{FILE}tmp\nY = 2\n"
    assert asked.prompts[0] == f"{REPO}myproject\n{others}{FILE}filename\n{file}"
    assert asked.prompts[1:] == [f"{PRE}a{SUF}b{MID}", f"{PRE}{SUF}{MID}"]


async def test_whatever_does_not_fit_is_left_out() -> None:
    loaded = fills_with("x", n_ctx=256)
    asked = Asked(loaded)
    many = [{"text": f"{number} " * 50, "filename": "f"} for number in range(20)]
    long = {"input_prefix": "p" * 5000, "input_suffix": "s" * 5000, "input_extra": many}
    async with inside(loaded, max_tokens=None) as client:
        for limit in (0, 1, 128, 10**9, -1, None):
            await infill(client, **long, n_predict=limit)
    assert all(len(prompt) < 256 for prompt in asked.prompts)
    assert all("p" in prompt and "s" in prompt for prompt in asked.prompts)


# Warm-ups.


async def test_a_warm_up_reads_what_the_next_request_begins_with() -> None:
    extra = [{"text": f"{number} = {number}\n" * 40, "filename": "f.py"} for number in range(9)]
    loaded = fills_with("f():", n_ctx=1024)
    asked = Asked(loaded)
    async with inside(loaded) as client:
        assert await infill(client, **{**WARM_UP, "input_extra": extra}) == {}
        found = await infill(client, **{**VIM, "input_extra": extra})
    warm, real = (prompt.partition(PRE)[0] for prompt in asked.prompts)
    assert warm == real
    assert 0 < len(warm) < sum(len(one["text"]) for one in extra)
    assert found["timings"]["cache_n"] >= len(warm)
    assert found["content"] == "f():"


async def test_a_warm_up_may_be_answered_in_full() -> None:
    async with inside(fills_with("f():")) as client:
        found = await infill(client, **{**WARM_UP, "response_fields": None, "n_cmpl": 3})
    assert (found["content"], found["tokens_predicted"], found["stop"]) == ("", 0, True)
    assert found["stop_type"] == "limit"


# Several answers.


@pytest.mark.parametrize(("asked", "count"), [(3, 3), (8, 8), (99, 8)])
async def test_several_answers_come_as_an_array(asked: int, count: int) -> None:
    async with inside(fills_with("f():")) as client:
        found = await infill(client, **VIM, n_cmpl=asked)
    assert [one["index"] for one in found] == list(range(count))
    assert {one["content"] for one in found} == {"f():"}
    assert all(one["timings"]["cache_n"] > 0 for one in found[1:])


@pytest.mark.parametrize("asked", [1, 0, -5, None])
async def test_one_answer_is_an_object(asked: int | None) -> None:
    async with inside(fills_with("f():")) as client:
        assert (await infill(client, **VIM, n_cmpl=asked))["content"] == "f():"


# Sampling.


@pytest.mark.parametrize(
    ("body", "temperatures"),
    [
        ({"samplers": ["top_k", "infill"]}, [0.0, 0.8]),  # or the second would be the first
        ({"samplers": ["top_k", "infill"], "temperature": 0.3}, [0.3, 0.3]),
        ({"samplers": ["top_k", "top_p"]}, [0.8, 0.8]),
        ({"samplers": "kp"}, [0.8, 0.8]),
        ({"samplers": ["nobody knows", 5]}, [0.8, 0.8]),
        ({}, [0.8, 0.8]),
    ],
)
async def test_the_infill_sampler_takes_what_is_most_likely(
    body: dict[str, Any], temperatures: list[float]
) -> None:
    async with inside(fills_with("x")) as client:
        found = await infill(client, **body, n_cmpl=2)
    assert [one["generation_settings"]["temperature"] for one in found] == temperatures


# Ends.


async def test_lines_indented_less_are_cut() -> None:
    text = "f():\n    pass\n\n"
    async with inside(fills_with(text + "x" * 100)) as client:
        found = await infill(client, **{**VIM, "n_indent": 4, "t_max_predict_ms": None})
        whole = await infill(client, **{**VIM, "n_indent": -1, "t_max_predict_ms": -1})
    assert (found["content"], found["stop_type"]) == ("f():\n    pass\n", "limit")
    assert found["has_new_line"]
    assert whole["content"] == text + "x" * 100
    assert whole["stop_type"] == "eos"


async def test_what_is_cut_is_not_generated_to_its_end() -> None:
    loaded = fills_with("a\n" + "b" * 1000)
    async with inside(loaded, max_tokens=None) as client:
        loaded.model.hold()
        answer = asyncio.create_task(infill(client, n_indent=2))
        while not answer.done():
            loaded.model.let(1)
            await asyncio.sleep(0.002)
        found = await answer
    assert found["content"] == "a\n"
    assert found["tokens_predicted"] < 500


async def test_time_ends_an_answer_with_a_line() -> None:
    async with inside(fills_with("first\nsecond\n")) as client:
        short = await infill(client, t_max_predict_ms=1e-6, n_predict=50)
        unlimited = await infill(client, t_max_predict_ms=0, n_predict=50)
    assert (short["content"], short["stop_type"]) == ("first\n", "limit")
    assert unlimited["content"] == "first\nsecond\n"
    async with inside(fills_with("a single line")) as client:
        found = await infill(client, t_max_predict_ms=1e-6, n_predict=50)
        assert (found["content"], found["stop_type"]) == ("a single line", "eos")


@pytest.mark.parametrize("end", [FILE, CURSOR, "</s>"])
async def test_the_models_own_ends(end: str) -> None:
    text = "ab" if end == "</s>" else f"ab{end}cd"
    async with inside(fills_with(text)) as client:
        found = await infill(client, **VIM)
    assert (found["content"], found["stop_type"], found["stopping_word"]) == ("ab", "eos", "")


async def test_stop_strings_and_limits() -> None:
    async with inside(fills_with("abcdef")) as client:
        word = await infill(client, stop=["cd", "zz"])
        limit = await infill(client, n_predict=3)
    assert (word["content"], word["stop_type"], word["stopping_word"]) == ("ab", "word", "cd")
    assert word["generation_settings"]["stop"] == ["cd", "zz"]
    assert (limit["content"], limit["stop_type"]) == ("abc", "limit")


async def test_the_end_of_the_context() -> None:
    async with inside(fills_with("x" * 500, n_ctx=64), max_tokens=None) as client:
        found = await infill(client, input_prefix="p" * 100)
    assert (found["truncated"], found["stop_type"]) == (True, "limit")


# The form of the answer.


async def test_only_the_fields_that_are_asked_for() -> None:
    fields = ["content", "timings/prompt_n", "generation_settings/n_ctx", "nothing", "content/x"]
    async with inside(fills_with("x")) as client:
        found = await infill(client, response_fields=fields)
        several = await infill(client, response_fields=["stop"], n_cmpl=2)
    assert found.pop("timings/prompt_n") > 0
    assert found == {"content": "x", "generation_settings/n_ctx": 2048}
    assert several == [{"stop": True}, {"stop": True}]


async def test_a_stream() -> None:
    async with inside(fills_with("é = 1\n")) as client:
        response = await client.post("/infill", json={**VIM, "stream": True, "n_indent": 2})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(block[6:]) for block in response.text.strip().split("\n\n")]
    *parts, last = events
    assert "".join(part["content"] for part in parts) == "é = 1\n"
    assert not any(part["stop"] for part in parts)
    assert (last["content"], last["stop"], last["stop_type"]) == ("", True, "eos")
    assert last["timings"]["predicted_n"] == last["tokens_predicted"]


@pytest.mark.parametrize(
    "body",
    [
        {"input_prefix": 5},
        {"input_extra": "a"},
        {"input_extra": [5]},
        {"input_extra": [{"text": 5}]},
        {"prompt": [1, 2]},
        {"samplers": {}},
        {"response_fields": [5]},
        {"n_cmpl": "many"},
        {"temperature": -1},
    ],
)
async def test_bad_requests(body: dict[str, Any]) -> None:
    async with inside(fills_with("x")) as client:
        response = await client.post("/infill", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_a_model_that_cannot_says_why() -> None:
    async with inside() as client:
        response = await client.post("/infill", json=VIM)
    assert response.status_code == 501
    assert response.json()["error"]["type"] == "not_supported_error"
    assert "cannot fill in the middle" in response.json()["error"]["message"]


# What was suggested before.


async def test_who_types_along_gets_the_rest_for_little() -> None:
    loaded = fills_with("(x, y):", k=4)
    asked = Asked(loaded)
    async with inside(loaded) as client:
        await infill(client, **VIM)
        # The fake says all of its text again, wherever it begins.
        again = await infill(client, **VIM)
        await infill(client, **{**VIM, "prompt": "def (x"})
        await infill(client, **{**VIM, "prompt": "def g"})
        await infill(client, **{**VIM, "prompt": "def ", "input_suffix": "other"})
    predictions = [options.get("prediction") for options in asked.options]
    assert predictions == [None, "(x, y):", ", y):", None, None]
    assert again["timings"]["draft_n_accepted"] > 3
    assert again["content"] == "(x, y):"


# Turns.


async def waiting(client: httpx.AsyncClient, count: int) -> bool:
    text = (await client.get("/metrics")).text
    return f"edgespec_requests_waiting {count}.0" in text


@asynccontextmanager
async def busy(loaded: Loaded) -> AsyncIterator[httpx.AsyncClient]:
    """A server that answers one request until its model is let go."""
    async with inside(loaded, parallel=1, short_lane=False) as client:
        loaded.model.hold()
        running = asyncio.create_task(infill(client, **VIM))
        await asyncio.to_thread(loaded.model.wait)
        yield client
        assert (await running)["content"] == "f():"


async def test_a_newer_request_takes_the_place_of_one_that_waits() -> None:
    loaded = fills_with("f():")
    async with busy(loaded) as client:
        older = asyncio.create_task(client.post("/infill", json=VIM))
        await until(lambda: waiting(client, 1))
        elsewhere = {"user-agent": "another editor"}
        other = asyncio.create_task(client.post("/infill", json=VIM, headers=elsewhere))
        await until(lambda: waiting(client, 2))
        newer = asyncio.create_task(client.post("/infill", json=VIM))
        refused = await older
        loaded.model.release()
        assert (await newer).status_code == (await other).status_code == 200
    assert refused.status_code == 503
    assert "retry-after" in refused.headers


async def test_a_second_choice_takes_nobodys_place() -> None:
    loaded = fills_with("f():")
    async with inside(loaded, parallel=1, short_lane=False) as client:
        loaded.model.hold()
        several = asyncio.create_task(infill(client, **VIM, n_cmpl=3))
        await asyncio.to_thread(loaded.model.wait)
        newer = asyncio.create_task(infill(client, **VIM))
        await until(lambda: waiting(client, 1))
        loaded.model.release()
        assert (await newer)["content"] == "f():"
        assert [one["content"] for one in await several] == ["f():"] * 3


async def test_a_warm_up_takes_nobodys_place_but_that_of_one_before() -> None:
    loaded = fills_with("f():")
    async with busy(loaded) as client:
        tasks = []
        for number, body in enumerate((VIM, WARM_UP), 1):
            tasks.append(asyncio.create_task(client.post("/infill", json=body)))
            await until(partial(waiting, client, number))
        tasks.append(asyncio.create_task(client.post("/infill", json=WARM_UP)))
        real, older, newer = tasks
        assert (await older).status_code == 503
        loaded.model.release()
        assert (await real).json()["content"] == "f():"
        assert (await newer).json() == {}
