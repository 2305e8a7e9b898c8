"""Questions to the chat endpoint of a server in this process, and what the answers say."""

from __future__ import annotations

from typing import Any

import httpx

from tests.server.whole import CHAT, chat, parsed


async def ask(client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    answer = await client.post(CHAT, json=chat(**options))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def stream(client: httpx.AsyncClient, **options: Any) -> list[Any]:
    answer = await client.post(CHAT, json=chat(stream=True, **options))
    assert answer.status_code == 200, answer.text
    return parsed(answer.text)


async def refused(client: httpx.AsyncClient, status: int, **options: Any) -> dict[str, Any]:
    answer = await client.post(CHAT, json=chat(**options))
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


def text_of(answer: dict[str, Any]) -> str:
    content = answer["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def joined(events: list[Any], key: str, index: int = 0) -> str:
    """All that a choice has under this key of its deltas."""
    choices = [choice for event in events if event for choice in event["choices"]]
    deltas = [choice["delta"] for choice in choices if choice["index"] == index]
    return "".join(delta.get(key) or "" for delta in deltas)
