"""Bad input: one line on stderr that says what, why and what to do, and a fitting exit code."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.catalog.paths import log_file
from edgespec.catalog.registry import user_file
from edgespec.cli import run
from tests import tiny_gguf
from tests.command import PATIENCE_S, QUICK, on, outcome, run_here, start

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def empty(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path, "There is no file {path}: check the path."),
        (directory, "{path} is a directory: give the .gguf file in it."),
        (empty, "{path} is empty"),
        (tiny_gguf.write_wrong_magic, "{path} is not a GGUF file"),
        (tiny_gguf.write_truncated, "model.gguf is incomplete or damaged"),
        (tiny_gguf.write_unsupported_architecture, "of architecture 'hovercraft', which this"),
    ],
    ids=["missing", "directory", "empty", "no GGUF", "truncated", "architecture"],
)
@pytest.mark.parametrize("option", ["--target", "--draft"])
def test_files_that_cannot_be_used(
    tmp_path: Path,
    tiny: Path,
    capfd: Capture,
    make: Callable[[Path], Path],
    expected: str,
    option: str,
) -> None:
    path = make(tmp_path / "model.gguf")
    arguments = on(path) if option == "--target" else on(tiny, "--draft", str(path))
    assert expected.format(path=path) in run_here(capfd, *arguments).complaint(1)


def test_a_draft_model_with_another_vocabulary(tmp_path: Path, tiny: Path, capfd: Capture) -> None:
    draft = tiny_gguf.write_changed_vocabulary(tmp_path / "draft.gguf")
    complaint = run_here(capfd, *on(tiny, "--draft", str(draft))).complaint(1)
    assert "The draft model does not fit the target" in complaint
    assert "leave --draft out" in complaint


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--temperature -1", "100, not -1."),
        ("--temperature nan", "100, not nan."),
        ("--temperature hot", "'--temperature'"),
        ("--top-p 2", "top_p must be between 0 and 1, not 2."),
        ("--top-k -5", "top_k must be at least 0, not -5."),
        ("--min-p 3", "min_p must be between 0 and 1, not 3."),
        ("--seed -1", "seed must be between 0 and"),
        ("--seed 1180591620717411303424", "seed must be between 0 and"),
        ("--ctx 0", "'--ctx'"),
        ("--ctx -5", "'--ctx'"),
        ("--ctx 1000000000000", "ctx must be between 1 and 2147483647"),
        ("--threads 0", "'--threads'"),
        ("--threads 100000", "threads must be between 1 and 512"),
        ("--gpu-layers -1", "--gpu-layers must be auto, all or a number, not '-1'."),
        ("--gpu-layers most", "--gpu-layers must be auto, all or a number, not 'most'."),
        ("-k -1", "-k must be auto or between 0 and 32, not -1."),
        ("-k 999", "-k must be auto or between 0 and 32, not 999."),
        ("-k abc", "-k must be auto or a number, not 'abc'."),
        ("-n -1", "'--max-tokens'"),
        ("-n many", "'--max-tokens'"),
        ("--exact maybe", "exact must be auto, on or off, not 'maybe'."),
        ("--drafter foo", "There is no drafter 'foo': choose auto, model, n-gram or none."),
        ("--pair default --target x.gguf", "Give either --pair or --target, not both."),
        ("--pair smollm2-135n", "Did you mean 'smollm2-135m'?"),
        ("--target smollm2-135n", "Did you mean 'smollm2-135m'?"),
        ("--raw --system x", "--raw has no place for --system"),
        ("--tempertaure 1", "--tempertaure"),
        ("another", "another"),
    ],
)
def test_options(capfd: Capture, arguments: str, expected: str) -> None:
    # Nothing is loaded: the default model, which is not below this EDGESPEC_HOME, is not pulled.
    complaint = run_here(capfd, "run", "abc", *arguments.split()).complaint(2)
    assert expected in complaint
    # The line ends with what is right or where to read about it.
    assert complaint.endswith((".\n", "?\n"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--debgu", "edgespec --help"),
        ("rum", "edgespec --help"),
        ("models lst", "edgespec models --help"),
        ("models show", "edgespec models show --help"),
        ("chat --plain --foo", "edgespec chat --help"),
    ],
)
def test_commands(capfd: Capture, arguments: str, expected: str) -> None:
    assert expected in run_here(capfd, *arguments.split()).complaint(2)


def test_options_that_the_model_or_machine_cannot_honour(tiny: Path, capfd: Capture) -> None:
    assert "without GPU support" in run_here(capfd, *on(tiny, "--gpu-layers", "4")).complaint(1)
    assert "add --draft PATH" in run_here(capfd, *on(tiny, "--drafter", "model")).complaint(2)
    assert "stop[0] is empty" in run_here(capfd, *on(tiny, "--stop", "")).complaint(2)


def test_a_prompt_longer_than_the_context(tiny: Path, capfd: Capture) -> None:
    arguments = on(tiny, "--ctx", "64", "--system", "many words " * 20)
    complaint = run_here(capfd, *arguments).complaint(1)
    assert "but the context holds 64" in complaint
    assert "--ctx" in complaint


def test_a_model_without_template(tmp_path: Path, capfd: Capture) -> None:
    path = tiny_gguf.write_tiny_gguf(tmp_path / "base.gguf", chat_template=None)
    assert "edgespec run --raw" in run_here(capfd, *on(path)).complaint(1)
    run_here(capfd, *on(path, "--raw")).statistics()
    chat = run_here(capfd, "chat", "--plain", "--target", str(path), *QUICK)
    assert "has no chat template" in chat.complaint(1)


@pytest.mark.parametrize("prompt", [[], [""], [" \n"]])
def test_no_prompt(capfd: Capture, monkeypatch: pytest.MonkeyPatch, prompt: list[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    assert "There is no prompt" in run_here(capfd, "run", *prompt).complaint(2)
    monkeypatch.setattr(sys, "stdin", None)
    assert "There is no prompt" in run_here(capfd, "run", *prompt).complaint(2)


def test_a_wrong_value_in_the_environment(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_SEED", "abc")
    assert "EDGESPEC_SEED in the environment" in run_here(capfd, "run", "x").complaint(2)


def test_a_bug_is_one_line_too_and_its_traceback_is_in_the_log(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(prompt: str | None) -> str:
        raise ZeroDivisionError("twice\nas bad")

    monkeypatch.setattr(run, "_question", explode)
    complaint = run_here(capfd, "run", "x").complaint(1)
    assert "Unexpected ZeroDivisionError: twice as bad. This is a bug" in complaint
    assert "edgespec --debug" in complaint
    assert "in explode" in log_file().read_text(encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        run_here(capfd, "--debug", "run", "x")


def test_a_damaged_models_toml(capfd: Capture) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[models", encoding="utf-8")
    assert "is not valid TOML" in run_here(capfd, "run", "x").complaint(1)


def test_as_a_process(tmp_path: Path, tiny: Path) -> None:
    """The same through the real entry point, with real streams."""
    path = tiny_gguf.write_truncated(tmp_path / "model.gguf")
    damaged, unknown = start(*on(path)), start("run", "x", "--foo")
    piped = start("run", *on(tiny)[2:], stdin=subprocess.PIPE)
    assert "incomplete or damaged" in outcome(damaged).complaint(1)
    assert "No such option: --foo" in outcome(unknown).complaint(2)
    assert "There is no prompt" in outcome(piped, b"").complaint(2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(tiny: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "edgespec", *on(tiny)],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
    assert process.returncode == 1
    [line] = process.stderr.splitlines()
    assert line.startswith(b"edgespec: No space left on device.")
