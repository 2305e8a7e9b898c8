"""`/v1/chat/completions`: thoughts, templates, and what goes wrong after it began."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgespec.errors import BackendError
from edgespec.text.template import ChatTemplate
from tests.fake_engine import Loaded
from tests.server.asking import ask, joined, refused, stream, text_of
from tests.server.inside import inside
from tests.server.scripted import OPENED, THINKING, TURN, says
from tests.server.whole import CHAT, chat, said
from tests.tiny_gguf import CHATML

THOUGHT = "<think>\nHm, well.\n</think>\n\nIt is so."


# Thoughts.


@pytest.mark.parametrize("opened", [True, False], ids=["by the template", "by the model"])
async def test_thoughts_are_told_apart(opened: bool) -> None:
    text = THOUGHT.removeprefix(OPENED) if opened else THOUGHT
    loaded = Loaded(
        says(text, TURN + OPENED if opened else TURN),
        template=THINKING if opened else None,
        max_sequences=5,
    )
    async with inside(loaded, max_tokens=None) as client:
        found = await ask(client, max_tokens=None)
        message = found["choices"][0]["message"]
        assert message["content"] == "It is so."
        assert message["reasoning_content"] == "Hm, well."
        events = await stream(client, max_tokens=None, stream_options={"include_usage": True})
        assert joined(events, "content") == "It is so."
        assert joined(events, "reasoning_content") == "Hm, well."
        for usage in (found["usage"], events[-2]["usage"]):
            details = usage["completion_tokens_details"]
            assert details["reasoning_tokens"] == text.index("\n\n")  # with the tag at its end
            assert usage["completion_tokens"] == len(text) + 1
        deltas = [event["choices"][0]["delta"] for event in events[:-2]]
        assert not any(delta.get("content") and "reasoning_content" in delta for delta in deltas)


async def test_an_answer_cut_in_its_thought_has_said_nothing() -> None:
    async with inside(Loaded(says(THOUGHT))) as client:
        found = await ask(client, max_tokens=12)
        message = found["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("", "Hm,")
        assert found["choices"][0]["finish_reason"] == "length"
        assert found["usage"]["completion_tokens_details"]["reasoning_tokens"] == 12


@pytest.mark.parametrize(
    "wish", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}]
)
async def test_thinking_can_be_switched_off(wish: dict[str, Any]) -> None:
    async with inside(Loaded(says("Yes."), template=THINKING), max_tokens=None) as client:
        message = (await ask(client, max_tokens=None, **wish))["choices"][0]["message"]
        assert message["content"] == "Yes."
        assert "reasoning_content" not in message


# The template.


async def test_variables_reach_the_template() -> None:
    template = ChatTemplate("{{ mood }}|{{ reasoning_effort }}|" + CHATML, bos="<s>", eos="</s>")
    async with inside(Loaded(template=template)) as client:
        body = chat(chat_template_kwargs={"mood": "good"}, reasoning_effort="low")
        rendered = (await client.post("/apply-template", json=body)).json()["prompt"]
        assert rendered.startswith("good|low|<|im_start|>user")
        tokens = (await client.post(CHAT + "/input_tokens", json=body)).json()["input_tokens"]
        assert (await ask(client, **body))["usage"]["prompt_tokens"] == tokens


async def test_an_answer_that_is_begun_is_gone_on_with() -> None:
    async with inside(Loaded(says("Once upon a time")), max_tokens=None) as client:
        messages = [
            {"role": "user", "content": "Tell me."},
            {"role": "assistant", "content": "Once upon"},
        ]
        found = await ask(client, messages=messages, max_tokens=None)
        assert text_of(found) == " a time"


# Failures.


async def test_a_failure_in_a_stream_is_an_event_and_its_end() -> None:
    loaded = Loaded()
    async with inside(loaded) as client:
        loaded.model.hold()
        asking = asyncio.create_task(stream(client))
        loaded.model.let(3)
        await asyncio.to_thread(loaded.model.wait, 4)
        loaded.model.fail_next = BackendError("/home/user/model.gguf broke.")
        loaded.model.release()
        events = await asking
        assert len(said(events[:-1])) == 3
        assert events[-1]["error"] == {
            "message": "internal error; the server's log says more",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }
        assert text_of(await ask(client))


async def test_a_failure_of_a_whole_answer_is_a_500() -> None:
    loaded = Loaded()
    async with inside(loaded) as client:
        loaded.model.fail_next = BackendError("It broke.")
        assert (await refused(client, 500))["code"] == "internal_error"
        assert text_of(await ask(client))


async def test_a_failure_of_one_choice_ends_the_others_too() -> None:
    loaded = Loaded()
    async with inside(loaded) as client:
        loaded.model.hold()
        asking = asyncio.create_task(stream(client, n=2, max_tokens=2))
        loaded.model.let(3)
        await asyncio.to_thread(loaded.model.wait, 4)
        loaded.model.fail_next = BackendError("It broke.")
        loaded.model.release()
        events = await asking
        assert len(joined(events[:-1], "content", 0)) == 2
        assert "error" in events[-1]


async def test_an_engine_that_is_closed_is_told() -> None:
    loaded = Loaded()
    async with inside(loaded) as client:
        await asyncio.to_thread(loaded.engine.close)
        for streamed in (True, False):
            assert (await refused(client, 503, stream=streamed))["code"] == "unavailable"


async def test_a_full_queue_is_told_before_a_stream_begins() -> None:
    loaded = Loaded(max_sequences=1)
    async with inside(loaded, parallel=1, short_lane=False, queue=0) as client:
        loaded.model.hold()
        first = asyncio.create_task(ask(client))
        await asyncio.to_thread(loaded.model.wait)
        answer = await client.post(CHAT, json=chat(stream=True))
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        loaded.model.release()
        await first
