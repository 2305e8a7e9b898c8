"""The whole server on the fake engine, in a thread, as `edgespec serve` runs it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from edgespec.server.app import create_app
from edgespec.server.running import Server, listen
from edgespec.server.settings import Settings
from tests.fake_engine import Loaded
from tests.server.asgi import PATIENCE
from tests.server.live import Connection, head

CHAT = "/v1/chat/completions"
GREEDY: dict[str, Any] = {"temperature": 0}


class Whole:
    """A running server, and what is behind it."""

    def __init__(self, loaded: Loaded, server: Server, thread: threading.Thread, port: int) -> None:
        self.loaded = loaded
        self.model = loaded.model
        self.server = server
        self.port = port
        self.thread = thread
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)

    def __enter__(self) -> Whole:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        return self._client.post(path, json=body, headers=headers)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.ask("GET", path, **headers)

    def ask(self, method: str, path: str, **headers: str) -> httpx.Response:
        """A request without a body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.request(method, path, headers=named)

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """What a stream says, "[DONE]" as None."""
        answer = self.post(path, {**body, "stream": True})
        assert answer.status_code == 200, answer.text
        return parsed(answer.text)

    def open(self, path: str, body: dict[str, Any], **headers: str) -> Connection:
        """A connection of its own, on which this was sent."""
        raw = json.dumps(body).encode()
        connection = Connection(self.port)
        connection.send(head("POST", path, content_length=str(len(raw)), **headers) + raw)
        return connection

    def gauge(self, name: str) -> float:
        """A value without labels in /metrics."""
        found = re.search(rf"^edgespec_{name} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        assert found, name
        return float(found[1])

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.005)

    def until_idle(self) -> None:
        """Until nothing is answered any more, as far as clients are concerned."""
        self.until(lambda: self.gauge("requests_running") == 0)

    def engine_is_free(self) -> bool:
        """Whether the engine has nothing to do. It cannot tell during a pass, so this fails when a
        pass is held at the gate."""
        engine = self.loaded.engine
        return not engine.between(lambda: engine._scheduler.busy).result(PATIENCE)

    def connections(self) -> set[Any]:
        """Those that are open, as uvicorn's objects."""
        return set(self.server.server_state.connections)

    def stop(self) -> None:
        """What SIGTERM does."""
        self.server.should_exit = True


@contextmanager
def whole(loaded: Loaded | None = None, **settings: Any) -> Iterator[Whole]:
    """A server with these settings."""
    loaded = loaded or Loaded(max_sequences=5)
    with loaded.engine:
        app = create_app(loaded.engine, Settings(**{"model": "fake", **settings}))
        bound = listen("127.0.0.1", 0)
        ready = threading.Event()
        server = Server(app, "127.0.0.1", 0, lambda address: ready.set())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            assert ready.wait(PATIENCE)
            with Whole(loaded, server, thread, bound.getsockname()[1]) as running:
                yield running
        finally:
            loaded.model.release()
            server.should_exit = True
            thread.join(2 * PATIENCE)
            bound.close()
        assert not thread.is_alive()


def chat(text: str = "Hello", **options: Any) -> dict[str, Any]:
    """A request by one user."""
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, **GREEDY, **options}


def parsed(text: str) -> list[Any]:
    """The events of a whole stream, "[DONE]" as None."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [_value(block) for block in blocks]


def next_event(connection: Connection) -> Any:
    """The next event of a stream under way; comments are passed over."""
    while True:
        _, data, rest = connection.until(b"\n\n").partition(b"data: ")
        if data:
            return _value("data: " + rest.decode().strip())


def _value(block: str) -> Any:
    (line,) = [line for line in block.splitlines() if line.startswith("data: ")]
    return None if line == "data: [DONE]" else json.loads(line.removeprefix("data: "))


def said(events: list[Any]) -> str:
    """The text of the first choice in a chat's stream."""
    choices = [one["choices"][0] for one in events if one and one["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
