"""`edgespec models`: what it prints where, and that errors pass through to the central handler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgespec.catalog import download
from edgespec.catalog.model_file import ModelFile
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model, load_registry, user_file
from edgespec.cli.models import app
from edgespec.errors import CatalogError, UnknownModelError


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def output(*arguments: str) -> str:
    """What a run that succeeds writes to stdout; it writes nothing to stderr."""
    result = run(*arguments)
    assert result.exception is None
    assert result.exit_code == 0
    assert result.stderr == ""
    return result.stdout


def install(name: str) -> Path:
    """A file as a pull leaves it, without a download."""
    file = ModelFile(models_dir(), name)
    file.directory.mkdir(parents=True, exist_ok=True)
    with file.path.open("wb") as made:
        made.truncate(98_362_432)  # of the right size, without taking up disk space
    file.record("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
    return file.path


def own_model(tmp_path: Path) -> Path:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    user_file().parent.mkdir(parents=True)
    text = f"[models.own]\nsource = '{own}'\nnote = 'a [bold]note[/bold]'\n"
    user_file().write_text(text, encoding="utf-8")
    return own


def test_without_a_command_it_helps() -> None:
    result = run()
    for command in ("list", "show", "pull", "remove"):
        assert command in result.output


def test_list(tmp_path: Path) -> None:
    own_model(tmp_path)
    install("smollm2-135m")
    lines = output("list").splitlines()
    [smollm2] = [line for line in lines if line.startswith("smollm2-135m")]
    assert "98.4 MB" in smollm2
    assert "Apache-2.0" in smollm2
    assert " yes " in smollm2
    assert " checked " in smollm2
    [gemma] = [line for line in lines if line.startswith("gemma3-270m")]
    assert " no " in gemma
    [coder] = [line for line in lines if line.startswith("qwen2.5-coder-0.5b")]
    assert " ~531 MB " in coder
    assert " not checked here " in coder
    [own] = [line for line in lines if line.startswith("own")]
    assert "a [bold]note[/bold]" in own
    assert "checked" not in own
    [pair] = [line for line in lines if line.startswith("default")]
    assert pair.split() == ["default", "smollm2-135m", "none"]
    assert lines[-1].endswith(str(user_file()))


def test_list_as_json() -> None:
    path = install("smollm2-135m")
    record = json.loads(output("list", "--json"))
    models = {model["name"]: model for model in record["models"]}
    assert models["smollm2-135m"]["installed"] == str(path)
    assert models["smollm2-135m"]["size"] == 98_362_432
    assert models["smollm2-135m"]["checked"] is True
    assert models["gemma3-270m"]["installed"] is None
    coder = models["qwen2.5-coder-0.5b"]
    assert (coder["size"], coder["approx_size"]) == (None, "531 MB")
    assert coder["checked"] is False
    pairs = {pair["name"]: pair for pair in record["pairs"]}
    assert pairs["default"] == {
        "name": "default",
        "target": "smollm2-135m",
        "draft": None,
        "note": "",
    }
    assert pairs["gemma3-12b-with-1b"]["note"]
    assert record["user_file"] == str(user_file())


def test_show_a_model() -> None:
    text = output("show", "gemma3-270m")
    assert "license:   Gemma\n" in text
    assert "installed: -\n" in text
    assert "size:      253.1 MB\n" in text
    assert "checked:   checked\n" in text
    assert text.count("files:") == 4
    text = output("show", "qwen2.5-coder-0.5b")
    assert "size:      ~531 MB\n" in text
    assert "checked:   not checked here\n" in text


def test_show_a_pair_and_as_json() -> None:
    assert "target:    smollm2-135m\n" in output("show", "default")
    assert json.loads(output("show", "default", "--json"))["draft"] is None
    assert json.loads(output("show", "smollm2-135m", "--json"))["license"] == "Apache-2.0"


def test_an_unknown_name_reaches_the_central_handler() -> None:
    for command in ("show", "pull", "remove"):
        result = run(command, "smolm2-135m")
        assert isinstance(result.exception, UnknownModelError)
        assert "Did you mean" in str(result.exception)
        assert result.output == ""


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    calls: list[tuple[str, bool]] = []

    def pull(
        model: Model, directory: Path, progress: download.Progress, *, force: bool = False
    ) -> Path:
        progress(0, None, "waiting")
        progress(1, 2, "downloading")
        progress(2, 2, "joining")
        calls.append((model.name, force))
        return directory / f"{model.name}.gguf"

    monkeypatch.setattr(download, "pull", pull)
    return calls


def test_pull_prints_only_the_paths(pulls: list[tuple[str, bool]]) -> None:
    text = output("pull", "gemma3-270m", "smollm2-135m")
    assert text.splitlines() == [
        str(models_dir() / "gemma3-270m.gguf"),
        str(models_dir() / "smollm2-135m.gguf"),
    ]
    assert pulls == [("gemma3-270m", False), ("smollm2-135m", False)]


def test_a_pairs_name_pulls_its_models_once(pulls: list[tuple[str, bool]]) -> None:
    output("pull", "default", "smollm2-135m")
    assert pulls == [("smollm2-135m", False)]


def test_pull_by_force_as_json(pulls: list[tuple[str, bool]]) -> None:
    [record] = json.loads(output("pull", "--force", "--json", "gemma3-270m"))
    assert record == {"name": "gemma3-270m", "path": str(models_dir() / "gemma3-270m.gguf")}
    assert pulls == [("gemma3-270m", True)]


def test_a_misspelt_name_fails_before_any_download(pulls: list[tuple[str, bool]]) -> None:
    assert isinstance(run("pull", "gemma3-270m", "qqqq").exception, UnknownModelError)
    assert pulls == []


def test_the_bar_is_drawn_on_a_terminal(
    pulls: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what Rich takes for a terminal
    monkeypatch.setenv("TERM", "xterm")
    result = run("pull", "gemma3-270m")
    assert "gemma3-270m: joining" in result.stderr
    assert result.stdout == f"{models_dir() / 'gemma3-270m.gguf'}\n"


def test_remove_asks_first() -> None:
    path = install("smollm2-135m")
    result = run("remove", "smollm2-135m", stdin="n\n")
    assert result.exit_code == 1
    assert f"Delete {path}?" in result.stderr
    assert result.stdout.strip() in ("", "n")  # the terminal's echo, at most
    assert path.exists()
    assert run("remove", "smollm2-135m", stdin="y\n").exit_code == 0
    assert not path.exists()


def test_remove_without_asking() -> None:
    path = install("smollm2-135m")
    assert output("remove", "--yes", "smollm2-135m") == (f"Deleted {path}, which freed 98.4 MB\n")
    assert not path.exists()
    path = install("smollm2-135m")
    record = json.loads(output("remove", "--yes", "--json", "smollm2-135m"))
    assert record == {"name": "smollm2-135m", "path": str(path), "freed": 98_362_432}


def test_addresses_stand_for_models(
    pulls: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    output("pull", "hf:owner/repo/a.gguf", "hf:owner/other/a.gguf", "https://example.org/b.gguf")
    assert [name[:2] for name, _ in pulls] == ["a", "a", "b-"]
    assert "source:    hf:owner/repo@v1\n" in output("show", "hf:owner/repo@v1/a.gguf")
    for address in ("hf:owner/repo/a.gguf", "https://example.org/b.gguf"):
        assert "nothing to remove" in str(run("remove", "--yes", address).exception)
    assert "does not name a file" in str(run("pull", "hf:owner/repo").exception)


def test_remove_from_the_shared_cache_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deleted: list[str] = []
    found = download.Removal(tmp_path / "a.gguf", 5_000_000, lambda: deleted.append("a"))
    monkeypatch.setattr(download, "removal", lambda model, directory: found)
    result = run("remove", "hf:owner/repo/a.gguf", stdin="y\n")
    assert "from the cache that other programs may use too? This frees 5.0 MB." in result.stderr
    assert "which freed 5.0 MB" in result.stdout
    assert deleted == ["a"]


def test_remove_what_models_toml_no_longer_names() -> None:
    path = install("forgotten")
    output("remove", "--yes", "forgotten")
    assert not path.exists()


def test_remove_never_touches_files_of_the_user(tmp_path: Path) -> None:
    own = own_model(tmp_path)
    result = run("remove", "--yes", "own")
    assert isinstance(result.exception, CatalogError)
    assert "is your own file" in str(result.exception)
    assert own.exists()
    by_hand = models_dir() / "smollm2-135m.gguf"
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(b"by hand")
    result = run("remove", "--yes", "smollm2-135m")
    assert "nothing to remove" in str(result.exception)
    assert by_hand.exists()


def test_a_file_of_the_wrong_size_is_not_installed() -> None:
    path = install("smollm2-135m")
    model = load_registry().model("smollm2-135m")
    assert download.installed(model) == path
    path.write_bytes(b"GGUF")
    assert download.installed(model) is None
