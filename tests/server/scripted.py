"""A server on the fake engine, whose model says what it is told to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np

from edgespec.protocols import Logits
from edgespec.server.app import create_app
from edgespec.server.settings import Settings
from edgespec.text.template import ChatTemplate
from tests.fake_engine import Loaded
from tests.fakes import FakeTokenizer, Table
from tests.server.asgi import PATIENCE
from tests.server.live import Connection, head, serving
from tests.tiny_gguf import CHATML

TURN = "<|im_start|>assistant\n"
OPENED = "<think>\n"

# It begins a thought itself, unless it is told not to. Tools are shown.
THINKING = ChatTemplate(
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    + CHATML.replace(
        "assistant\n{% endif %}",
        "assistant\n{% if enable_thinking is not defined or enable_thinking %}"
        + OPENED
        + "{% endif %}{% endif %}",
    ),
    bos="<s>",
    eos="</s>",
)


def says(text: str, after: str = TURN) -> Table:
    """A model that answers with this text, wherever its turn begins. Without a doubt."""
    script, start = text.encode(), after.encode()

    def logits(tokens: Sequence[int]) -> Logits:
        # What is no byte of a text is none of the start either.
        read = bytes(token if token < 256 else 0 for token in tokens)
        said = len(read) - (read.rindex(start) + len(start))
        row = np.full(FakeTokenizer.size, -100.0, np.float32)
        row[script[said] if said < len(script) else FakeTokenizer.END] = 100.0
        return row

    return logits


class Served:
    """A running server."""

    def __init__(self, loaded: Loaded, port: int) -> None:
        self.loaded = loaded
        self.model = loaded.model
        self.url = f"http://127.0.0.1:{port}"
        self.port = port

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=PATIENCE)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE)

    def tokens(self, *messages: dict[str, Any], **options: Any) -> int:
        """How many the prompt of such a chat has."""
        return len(self.loaded.engine.tokenize(None, messages, **options))

    def hang_up_on(self, path: str, body: dict[str, Any], begun: bytes) -> int:
        """Read a stream until it has begun, and go away during the pass over the prompt.

        Returns how many passes were made all the same.
        """
        before = self.model.passes
        self.model.hold()
        try:
            raw = json.dumps({**body, "stream": True}).encode()
            with Connection(self.port) as connection:
                connection.send(head("POST", path, content_length=str(len(raw))) + raw)
                connection.until(begun)
                self.model.wait()
            self._wait_until_idle()
        finally:
            self.model.release()
        self.loaded.engine.forget()  # refused while anything runs
        return self.model.passes - before

    def _wait_until_idle(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while any(slot["is_processing"] for slot in self.get("/slots").json()):
            assert time.monotonic() < deadline, "an answer goes on"
            time.sleep(0.005)


@contextmanager
def served(
    text: str = "Hello there.",
    *,
    after: str = TURN,
    heartbeat: float = 10.0,
    template: ChatTemplate | None = None,
    n_ctx: int = 2048,
) -> Iterator[Served]:
    """A server whose model says this."""
    loaded = Loaded(says(text, after), template=template, n_ctx=n_ctx)
    settings = Settings(model="fake", parallel=2, heartbeat=heartbeat)
    with loaded.engine, serving(create_app(loaded.engine, settings)) as port:
        yield Served(loaded, port)


def named_events(stream: str) -> list[dict[str, Any]]:
    """The events of a stream, each checked against its name."""
    found = []
    for block in stream.strip().split("\n\n"):
        name, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found
