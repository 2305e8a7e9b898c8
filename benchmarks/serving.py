"""What `edgespec serve` gives: several streams at once, long chats, hours of mixed load.

    python -m benchmarks.serving throughput --target Q4_K_M-x8 --draft Q4_0
    python -m benchmarks.serving turns
    python -m benchmarks.serving soak --minutes 30

Every run starts a server of its own, and talks to it over HTTP as clients do. Targets and drafts
are names of benchmarks.pairs, or left out for the default pair.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Any

import httpx
import psutil

from benchmarks.lossless import file_of
from edgespec.bench.suite import load_suite

_PATIENCE_S = 900.0
_SHORT = (
    "Write a Python function that reverses a list.",
    "Explain how a bicycle stays upright.",
    "Write a JSON object for each of five planets, with name and diameter.",
    "Write a short story about a lighthouse.",
    "List the months of the year with the number of their days.",
    "Write a SQL table for books and three insert statements.",
    "Explain recursion to a child.",
    "Write a haiku about rivers.",
)


class Served:
    """A server that runs, and a client for it."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.client = httpx.AsyncClient(base_url=address, timeout=_PATIENCE_S)
        self.process = process

    async def chat(self, messages: Sequence[dict[str, str]], **more: Any) -> dict[str, Any]:
        """One answer. Raises httpx.HTTPStatusError."""
        body = {"messages": list(messages), "temperature": 0, **more}
        reply = await self.client.post("/v1/chat/completions", json=body)
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def memory(self) -> int:
        """Bytes of RAM it holds."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextlib.asynccontextmanager
async def served(arguments: Sequence[str]) -> AsyncIterator[Served]:
    """Start a server, wait until it answers, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "edgespec", "serve", "--port", str(port), *arguments]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONSAFEPATH": "1"})
    one = Served(f"http://127.0.0.1:{port}", process)
    try:
        await _ready(one)
        yield one
    finally:
        await one.client.aclose()
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def _ready(one: Served) -> None:
    while True:
        if one.process.poll() is not None:
            raise SystemExit("the server did not start")
        with contextlib.suppress(httpx.TransportError):
            if (await one.client.get("/health")).is_success:
                return
        await asyncio.sleep(0.2)


def _questions(count: int) -> list[list[dict[str, str]]]:
    prompts = load_suite("standard").prompts[:count]
    return [[{"role": "user", "content": prompt.turns[0]}] for prompt in prompts]


# Throughput.


async def throughput(chosen: argparse.Namespace) -> None:
    """Tokens per second of requests one after the other, and all at once, in turns.

    The questions are short: reading prompts costs the same in both ways.
    """
    questions = [[{"role": "user", "content": text}] for text in _SHORT[: chosen.streams]]
    async with served(_arguments(chosen)) as one:
        ratios = []
        for turn in range(chosen.repetitions):
            speeds: dict[str, float] = {}
            for way in ("alone", "together") if turn % 2 == 0 else ("together", "alone"):
                speeds[way] = await _speed(one, questions, chosen.tokens, way == "together")
            ratios.append(speeds["together"] / speeds["alone"])
            print(
                f"alone {speeds['alone']:6.1f} tok/s   {chosen.streams} together "
                f"{speeds['together']:6.1f}   ratio {ratios[-1]:.2f}",
                flush=True,
            )
        print(f"median ratio {median(ratios):.2f}")


async def _speed(
    one: Served, questions: Sequence[Sequence[dict[str, str]]], tokens: int, together: bool
) -> float:
    asked = [one.chat(question, max_tokens=tokens) for question in questions]
    began = time.monotonic()
    answers = await asyncio.gather(*asked) if together else [await each for each in asked]
    written = sum(answer["usage"]["completion_tokens"] for answer in answers)
    return float(written / (time.monotonic() - began))


# Turns of one chat.


async def turns(chosen: argparse.Namespace) -> None:
    """A long chat: what every turn reads anew."""
    text = " ".join(prompt.turns[0] for prompt in load_suite("standard").prompts)
    messages = [{"role": "user", "content": _long(text, chosen.words) + "\n\nSay hello."}]
    async with served(_arguments(chosen)) as one:
        for turn in range(4):
            began = time.monotonic()
            answer = await one.chat(messages, max_tokens=24)
            usage, timings = answer["usage"], answer["timings"]
            print(
                f"turn {turn + 1}: prompt {usage['prompt_tokens']} tokens, cached "
                f"{usage['prompt_tokens_details']['cached_tokens']}, read {timings['prompt_n']}, "
                f"{time.monotonic() - began:.2f} s",
                flush=True,
            )
            messages.append(answer["choices"][0]["message"])
            messages.append({"role": "user", "content": f"And once more, number {turn}."})


def _long(text: str, words: int) -> str:
    found = text.split()
    return " ".join((found * (words // len(found) + 1))[:words])


# Soak.


async def soak(chosen: argparse.Namespace) -> None:
    """Mixed load with clients that leave: no error, no leak."""
    counts: Counter[str] = Counter()
    async with served(_arguments(chosen)) as one:
        began = time.monotonic()
        end = began + 60 * chosen.minutes
        workers = [
            asyncio.create_task(_worker(one, random.Random(seed), end, counts))
            for seed in range(chosen.clients)
        ]
        warm = 0  # once all slots have been in use
        while time.monotonic() < end:
            await asyncio.sleep(min(60.0, max(0.1, end - time.monotonic())))
            if not warm and time.monotonic() - began >= 60 * chosen.minutes / 6:
                warm = one.memory()
            print(f"{dict(counts)} rss {one.memory() / 2**20:.1f} MiB", flush=True)
        await asyncio.gather(*workers)
        busy = [slot for slot in (await one.client.get("/slots")).json() if slot["is_processing"]]
        growth = one.memory() / warm - 1
        print(f"slots busy {len(busy)}, memory growth {100 * growth:.2f} % since the first sixth")
        await one.chat([{"role": "user", "content": "Hello"}], max_tokens=4)


async def _worker(one: Served, chance: random.Random, end: float, counts: Counter[str]) -> None:
    questions = _questions(24)
    while time.monotonic() < end:
        kind = chance.choice(("chat", "stream", "leave", "completion", "bad", "list"))
        try:
            await _act(one, kind, chance, chance.choice(questions))
        except httpx.HTTPStatusError as error:
            counts[f"{kind}: {error.response.status_code}"] += 1
        except Exception as error:  # noqa: BLE001  counted, whatever it is
            counts[f"{kind}: {type(error).__name__}"] += 1
        else:
            counts[kind] += 1
        await asyncio.sleep(chance.expovariate(2.0))


async def _act(
    one: Served, kind: str, chance: random.Random, question: Sequence[dict[str, str]]
) -> None:
    tokens = chance.randint(1, 64)
    if kind == "chat":
        await one.chat(question, max_tokens=tokens, temperature=0.8)
    elif kind == "list":
        (await one.client.get("/v1/models")).raise_for_status()
    elif kind == "bad":
        reply = await one.client.post("/v1/chat/completions", content=b'{"messages": [')
        assert reply.status_code == 400, reply.text
    elif kind == "completion":
        body = {"prompt": question[0]["content"], "max_tokens": tokens}
        (await one.client.post("/v1/completions", json=body)).raise_for_status()
    else:
        await _stream(one, question, tokens, chance.random() if kind == "leave" else None)


async def _stream(
    one: Served, question: Sequence[dict[str, str]], tokens: int, leave_after: float | None
) -> None:
    body = {"messages": question, "max_tokens": tokens, "stream": True}
    began = time.monotonic()
    async with one.client.stream("POST", "/v1/chat/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            assert '"error"' not in line, line
            if leave_after is not None and time.monotonic() - began > leave_after:
                return


def _arguments(chosen: argparse.Namespace) -> list[str]:
    found: list[str] = []
    if chosen.target:
        found += ["--target", str(file_of(chosen.target)), "--draft"]
        found += [str(file_of(chosen.draft)) if chosen.draft else "none"]
    return [*found, *chosen.serve]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("throughput", "turns", "soak"))
    parser.add_argument("--target")
    parser.add_argument("--draft")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--words", type=int, default=4000, help="of the long chat")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="for the server")
    chosen = parser.parse_args()
    asyncio.run({"throughput": throughput, "turns": turns, "soak": soak}[chosen.what](chosen))


if __name__ == "__main__":
    main()
