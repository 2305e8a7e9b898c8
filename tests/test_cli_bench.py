"""`edgespec bench` on tiny models: what it prints and saves, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from edgespec.catalog.lock import locked
from edgespec.catalog.paths import cache_dir
from tests.command import PATIENCE_S, Outcome, outcome, run_here, start
from tests.tiny_gguf import write_tiny_gguf

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", n_ctx_train=4096)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Two short prompts, in the manner of MT-Bench."""
    path = tmp_path / "two.jsonl"
    lines = [
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Shorter."], "ref": []},
        {"question_id": 82, "category": "coding", "turns": ["Code."]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def bench(capfd: Capture, model: Path, *more: str) -> Outcome:
    fast = ("--exact", "off", "--threads", "1", "-r", "1", "-n", "8")
    return run_here(capfd, "bench", "--target", str(model), *fast, *more)


def record(capfd: Capture, model: Path, *more: str) -> dict[str, Any]:
    done = bench(capfd, model, *more, "-o", "json")
    assert done.code == 0, done
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_report_on_stdout(tiny: Path, prompts: Path, capfd: Capture) -> None:
    done = bench(capfd, tiny, "--suite", str(prompts))
    assert (done.code, done.err) == (0, "")
    assert "| native " in done.out
    assert "## Cost curve" in done.out
    assert "Not comparable" in done.out


def test_json_follows_its_schema(tiny: Path, prompts: Path, capfd: Capture) -> None:
    found = record(capfd, tiny, "--draft", str(tiny), "--suite", str(prompts), "--modes", "off,2")
    schema = json.loads(run_here(capfd, "bench", "schema").out)
    jsonschema.validate(found, schema)
    assert found["settings"]["modes"] == ["off", "k=2"]
    assert [cell["question_id"] for cell in found["cells"]] == ["81", "81", "82", "82"]
    assert {cell["turns"] for cell in found["cells"] if cell["question_id"] == "81"} == {2}
    drafted = [cell for cell in found["cells"] if cell["mode"] == "k=2"]
    assert all(set(cell["by_drafter"]) == {"model"} for cell in drafted)
    # The target drafts for itself.
    assert all(cell["accepted"] == cell["drafted"] for cell in drafted)
    assert found["draft"]["name"] == "tiny.gguf"
    assert found["target_curve"]["widths"][:3] == [1, 2, 3]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_other_formats(form: str, tiny: Path, prompts: Path, capfd: Capture) -> None:
    done = bench(capfd, tiny, "--suite", str(prompts), "--modes", "off,auto", "-o", form)
    assert done.code == 0
    if form == "jsonl":
        cells = [json.loads(line) for line in done.out.splitlines()]
        assert [cell["mode"] for cell in cells] == ["off", "auto", "auto", "off"]
    else:
        rows = list(csv.DictReader(io.StringIO(done.out)))
        assert {(row["mode"], row["category"]) for row in rows} >= {("auto", "all"), ("off", "all")}


def test_save_show_and_compare(tiny: Path, prompts: Path, tmp_path: Path, capfd: Capture) -> None:
    folders = tmp_path / "a", tmp_path / "new" / "b"
    for folder in folders:
        done = bench(capfd, tiny, "--suite", str(prompts), "--save", str(folder), "--watts", "30")
        assert done.code == 0
        assert str(folder / "report.md") in done.err
        files = {file.name for file in folder.iterdir()}
        assert files >= {"report.md", "result.json", "cells.jsonl", "summary.csv", "cost_curve.svg"}
        assert "journal.jsonl" not in files
        for svg in folder.glob("*.svg"):
            ElementTree.parse(svg)
            assert f"({svg.name})" in (folder / "report.md").read_text(encoding="utf-8")
    first, second = (str(folder / "result.json") for folder in folders)
    shown = run_here(capfd, "bench", "show", first)
    assert shown.code == 0
    assert "## Cost curve" in shown.out
    assert (
        run_here(capfd, "bench", "show", first, "-o", "json").out.rstrip()
        == Path(first).read_text(encoding="utf-8").rstrip()
    )
    compared = run_here(capfd, "bench", "compare", first, second)
    assert compared.code == 0
    assert "| off " in compared.out


def test_different_suites_are_not_compared(
    tiny: Path, prompts: Path, tmp_path: Path, capfd: Capture
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"question_id": 1, "category": "c", "turns": ["Hi."]}\n', encoding="utf-8")
    for name, suite in (("a", prompts), ("b", other)):
        bench(capfd, tiny, "--suite", str(suite), "--save", str(tmp_path / name))
    results = [str(tmp_path / name / "result.json") for name in "ab"]
    assert "suite" in run_here(capfd, "bench", "compare", *results).complaint(1)


def test_a_directory_with_a_result_is_not_overwritten(
    tiny: Path, prompts: Path, tmp_path: Path, capfd: Capture
) -> None:
    more = ("--suite", str(prompts), "--modes", "off", "--save", str(tmp_path / "a"))
    assert bench(capfd, tiny, *more).code == 0
    assert "--restart" in bench(capfd, tiny, *more).complaint(2)
    assert bench(capfd, tiny, *more, "--restart").code == 0


def test_a_directory_that_cannot_be_written_is_told_before_anything_runs(
    prompts: Path, tmp_path: Path, capfd: Capture
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    missing = tmp_path / "no-such-model.gguf"
    for folder in (tmp_path / "file", tmp_path / "file" / "sub"):
        done = bench(capfd, missing, "--suite", str(prompts), "--save", str(folder))
        assert str(folder) in done.complaint(1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--modes", "of"), "no mode 'of'"),
        (("--quick", "--suite", "standard"), "not both"),
        (("--suite", "standrad"), "standard"),
        (("--category", "poetry"), "poetry"),
        (("--budget", "soon"), "write 90s, 10m or 1h"),
        (("--budget", "0"), "--budget must be above 0"),
        (("--precision", "fine"), "write 2%"),
        (("--price-kwh", "0.3"), "--price-kwh needs --watts"),
        (("-o", "xml"), "md, json, jsonl, csv"),
        (("--temperature", "0.5"), "leave native out"),
        (("--pair", "default"), "not both"),
        (("--modes", ""), "no mode ''"),
        (("--restart",), "--save"),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, ...], said: str, capfd: Capture) -> None:
    done = bench(capfd, Path("no-such-model.gguf"), *options)
    assert done.code in (1, 2)
    assert said in done.complaint(done.code)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no prompts"),
        ("nonsense", "line 1"),
        ('{"question_id": 1, "category": "", "turns": ["a"]}', "category"),
        ('{"question_id": 1, "category": "c", "turns": ["a"]}\n' * 2, "taken already by"),
    ],
)
def test_suites_that_cannot_be_read(text: str, said: str, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")
    done = bench(capfd, Path("no-such-model.gguf"), "--suite", str(path))
    assert said in done.complaint(1)
    assert "bad.jsonl" in done.err


def test_results_that_cannot_be_shown(tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "r.json"
    assert "r.json" in run_here(capfd, "bench", "show", str(path)).complaint(1)
    path.write_text('{"schema_version": 99, "cells": []}', encoding="utf-8")
    assert "99" in run_here(capfd, "bench", "show", str(path)).complaint(1)


def test_a_prompt_beyond_the_context_is_skipped_and_shown(
    tiny: Path, tmp_path: Path, capfd: Capture
) -> None:
    path = tmp_path / "long.jsonl"
    lines = [
        {"question_id": "long", "category": "c", "turns": ["word " * 500]},
        {"question_id": "short", "category": "c", "turns": ["Hi."]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = record(capfd, tiny, "--suite", str(path), "--ctx", "200", "--modes", "off,auto")
    assert [skipped["question_id"] for skipped in found["skipped"]] == ["long"]
    assert {cell["question_id"] for cell in found["cells"]} == {"short"}
    assert any("skipped" in note for note in found["notes"])


def test_native_and_plain_give_the_same_answers(tiny: Path, prompts: Path, capfd: Capture) -> None:
    found = record(capfd, tiny, "--suite", str(prompts), "--modes", "native,off", "--strict")
    by_prompt: dict[str, set[str]] = {}
    for cell in found["cells"]:
        by_prompt.setdefault(cell["question_id"], set()).add(cell["token_sha256"])
    assert [len(answers) for answers in by_prompt.values()] == [1, 1]


def test_the_same_mode_twice(tiny: Path, prompts: Path, capfd: Capture) -> None:
    found = record(capfd, tiny, "--suite", str(prompts), "--modes", "off,off")
    assert found["settings"]["modes"] == ["off", "off (2)"]


def test_a_mode_without_its_drafter_is_refused_before_anything_is_measured(
    tiny: Path, prompts: Path, capfd: Capture
) -> None:
    done = bench(capfd, tiny, "--suite", str(prompts), "--modes", "off,model:3")
    assert "Nobody can draft for mode model:3" in done.complaint(2)


def test_two_benchmarks_at_once_are_refused(
    tiny: Path, prompts: Path, tmp_path: Path, capfd: Capture
) -> None:
    lock = cache_dir() / "bench.lock"
    lock.parent.mkdir(parents=True)
    with locked(lock, lambda: None):
        done = bench(capfd, tiny, "--suite", str(prompts), "--save", str(tmp_path / "a"))
    assert "Another benchmark is running" in done.complaint(1)
    assert bench(capfd, tiny, "--suite", str(prompts), "--modes", "off").code == 0


def test_a_directory_stands_for_the_result_in_it(
    tiny: Path, prompts: Path, tmp_path: Path, capfd: Capture
) -> None:
    folder = str(tmp_path / "a")
    bench(capfd, tiny, "--suite", str(prompts), "--modes", "off", "--save", folder)
    assert run_here(capfd, "bench", "show", folder).code == 0
    assert run_here(capfd, "bench", "compare", folder, folder).code == 0
    assert "cannot be read" in run_here(capfd, "bench", "show", str(tmp_path)).complaint(1)


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_prints_what_is_done_and_the_same_command_goes_on(
    tiny: Path, tmp_path: Path
) -> None:
    suite, folder = tmp_path / "many.jsonl", tmp_path / "save"
    lines = [
        json.dumps({"question_id": i, "category": "c", "turns": [f"Question {i}"]})
        for i in range(40)
    ]
    suite.write_text("\n".join(lines), encoding="utf-8")
    command = (
        *("bench", "--target", str(tiny), "--suite", str(suite), "--save", str(folder)),
        *("--exact", "off", "--threads", "1", "-r", "1", "-n", "200", "--modes", "native,off,auto"),
    )
    process = start(*command)
    journal = folder / "journal.jsonl"
    deadline = time.monotonic() + PATIENCE_S
    while not journal.exists() or journal.read_text(encoding="utf-8").count("\n") < 4:
        assert time.monotonic() < deadline, "nothing was done"
        assert process.poll() is None, outcome(process)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stopped = outcome(process)
    assert stopped.code == 130
    assert "stopped early" in stopped.out
    done = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert done["stopped_by"] == "ctrl-c"
    assert 3 <= len(done["cells"]) < 120
    again = outcome(start(*command, "--temperature", "0.5", "--modes", "off"))
    assert again.code == 1
    assert "other settings" in again.err
    finished = outcome(start(*command, "--budget", "1h"))
    assert finished.code == 0, finished
    whole = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert len(whole["cells"]) == 120
    assert whole["cells"][: len(done["cells"])] == done["cells"]
    assert any("taken up again" in note for note in whole["notes"])
    assert not journal.exists()
