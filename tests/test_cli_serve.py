"""`edgespec serve`: what it refuses, what its options come to, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgespec.cli import serve as command
from edgespec.server.app import Application
from edgespec.server.running import listen
from edgespec.server.settings import Settings
from tests.command import PATIENCE_S, QUICK, Outcome, run_here, start
from tests.tiny_gguf import write_tiny_gguf

Capture = pytest.CaptureFixture[str]

needs_signals = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return write_tiny_gguf(path, n_ctx_train=4096)


class Served:
    """What would have been served, and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: Capture, tiny: Path) -> None:
        self._capfd = capfd
        self._tiny = str(tiny)
        self.where: tuple[str, int] | None = None
        self.app: Application | None = None
        monkeypatch.setattr("edgespec.server.running.serve", self._serve)

    def _serve(self, app: Application, host: str, port: int, ready: Any) -> None:
        self.app, self.where = app, (host, port)
        ready(f"http://{host}:{port}")

    def run(self, *arguments: str) -> Outcome:
        serve = ("serve", "--target", self._tiny, *QUICK, "--port", "0", *arguments)
        return run_here(self._capfd, *serve)

    def settings(self, *arguments: str) -> Settings:
        result = self.run(*arguments)
        assert result.code == 0, result
        assert self.app is not None
        return self.app._backend.settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, capfd: Capture, tiny: Path) -> Served:
    return Served(monkeypatch, capfd, tiny)


@pytest.fixture
def unloaded(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """No model may be loaded."""
    monkeypatch.setattr("edgespec.loading.load_pair", lambda *_, **__: pytest.fail("loaded"))
    return served


# What is refused.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "127.example.com"])
def test_other_machines_need_a_key(unloaded: Served, host: str) -> None:
    line = unloaded.run("--host", host).complaint(2)
    assert f"--host {host} can be reached from other machines" in line
    assert "--api-key" in line
    assert "--allow-anyone" in line
    assert unloaded.app is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "LOCALHOST", "::1"])
def test_this_machine_needs_none(host: str) -> None:
    command._check_reach(host, (), False)


@pytest.mark.parametrize("given", [["--api-key", "secret"], ["--allow-anyone"]])
def test_with_a_key_or_on_purpose_anybody_may_come(served: Served, given: list[str]) -> None:
    settings = served.settings("--host", "0.0.0.0", *given)
    assert served.where == ("0.0.0.0", 0)
    assert settings.host == "0.0.0.0"
    assert settings.keys == (("secret",) if "secret" in given else ())


def test_keys_may_come_from_the_environment(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESPEC_API_KEY", "one two")
    assert served.settings("--host", "0.0.0.0").keys == ("one", "two")
    assert served.settings("--api-key", "typed").keys == ("typed",)
    monkeypatch.setenv("EDGESPEC_API_KEY", "")
    assert served.settings().keys == ()


@pytest.mark.parametrize("key", ["", " ", " secret", "sec\tret"])
def test_a_key_that_is_none_is_not_passed_over(served: Served, key: str) -> None:
    line = served.run("--api-key", "right", "--api-key", key).complaint(2)
    assert "An API key is empty" in line
    assert "right" not in line


def test_a_port_in_use_is_told_before_a_model_is_loaded(unloaded: Served) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        line = unloaded.run("--port", port).complaint(2)
    assert f"127.0.0.1:{port} cannot be listened on" in line
    assert "another --port" in line


@pytest.mark.parametrize(
    "wrong",
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--parallel", "0"),
        ("--queue", "-1"),
        ("--host", "nowhere.invalid", "--allow-anyone"),
        ("--pair", "default"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(unloaded: Served, wrong: tuple[str, ...]) -> None:
    assert unloaded.run(*wrong).complaint(2)


@pytest.mark.parametrize(
    "wrong", [("--allow-origin", "not an origin"), ("--allow-host", "http://x/y")]
)
def test_wrong_names_are_told_in_a_line(served: Served, wrong: tuple[str, str]) -> None:
    assert wrong[1] in served.run(*wrong).complaint(2)


# What options come to.


def test_help_names_what_matters(capfd: Capture) -> None:
    result = run_here(capfd, "serve", "--help")
    assert result.code == 0
    shown = re.sub(r"[^\w-]+", " ", result.out)
    for option in ("host", "port", "api-key", "allow-anyone", "parallel", "target", "ctx"):
        assert f" --{option} " in shown
    assert "docs/clients.md" in result.out


def test_what_is_usual(served: Served, tiny: Path) -> None:
    settings = served.settings()
    assert settings.model == tiny.name
    assert settings.created > 1_700_000_000
    usual = Settings(model=tiny.name, created=settings.created)
    assert settings == usual


def test_options_reach_the_server(served: Served) -> None:
    settings = served.settings(
        *("--alias", "mine", "--parallel", "2", "--queue", "3", "-n", "50", "--strict-model"),
        *("--allow-host", "box.lan", "--allow-origin", "https://chat.example", "--ollama-compat"),
    )
    assert (settings.model, settings.parallel, settings.queue) == ("mine", 2, 3)
    assert (settings.max_tokens, settings.strict_model, settings.ollama) == (50, True, True)
    assert settings.hosts == ("box.lan",)
    assert settings.origins == ("https://chat.example",)
    assert served.app is not None
    # One sequence more than long answers: it is for short ones.
    assert served.app._backend.engine._model.max_sequences == 3


def test_the_address_is_told_and_nothing_else_on_stdout(served: Served, tiny: Path) -> None:
    result = served.run()
    assert result.out == ""
    assert result.err.splitlines()[-1] == f"{tiny.name} is served at http://127.0.0.1:0/v1"


# A process of its own.


class Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.lines: list[str] = []
        self.url = ""

    def wait_for_address(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.decode())
            if found := re.search(r"is served at (http://\S+)/v1\n", self.lines[-1]):
                self.url = found[1]
                return
        raise AssertionError(self.lines)

    def chat(self, text: str, **options: Any) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": text}], **options}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Exit code, stdout, and what is on stderr after the address."""
        self._process.send_signal(number)
        out, err = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, out.decode(), err.decode()


@contextmanager
def serving(path: Path, *arguments: str) -> Iterator[Process]:
    process = start("serve", "--target", str(path), *QUICK, "--port", "0", *arguments)
    try:
        running = Process(process)
        running.wait_for_address()
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@needs_signals
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_serves_until_it_is_told_to_stop_and_keeps_prompts(
    tiny: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    kept = tmp_path / "prompts"
    long = "a long prompt " * 40
    arguments = ("--prompt-cache", str(kept), "--ctx", "2048")
    with serving(tiny, *arguments) as process:
        found = process.chat(long, max_tokens=4)
        assert found["usage"]["completion_tokens"] > 0
        assert process.end(number) == (code, "", "")
    assert list(kept.glob("*.prefix"))
    with serving(tiny, *arguments) as process:
        again = process.chat(long, max_tokens=4)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 256
        process.end(number)


@needs_signals
@pytest.mark.model
def test_the_default_model_answers_and_ctrl_c_ends_it(default_model_path: Path) -> None:
    with serving(default_model_path, "--ctx", "1024", "-k", "4") as process:
        found = process.chat("What is the capital of France?", max_tokens=24, temperature=0)
        assert found["choices"][0]["message"]["content"].strip()
        assert process.end(signal.SIGINT) == (130, "", "")
