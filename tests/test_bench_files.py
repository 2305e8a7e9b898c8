"""Results as files: what is written can be read, and what cannot be used is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgespec.bench.records import ALL, Cell, Result
from edgespec.bench.report import files
from edgespec.errors import BenchError
from tests import bench_records as made

HOSTILE = 'a "b" <c> & d | e\nf,g;\u2028\u202e[1,\n 2]'


@pytest.fixture
def result() -> Result:
    return made.result(
        skipped=[{"question_id": HOSTILE, "category": HOSTILE, "reason": HOSTILE}],
        notes=[HOSTILE],
        values=[made.value()],
        cells=[
            *made.cells(),
            made.failed_cell(),
            made.drafting_cell(divergence=made.divergence(), energy_j=1.5),
        ],
    )


def test_what_is_written_can_be_read(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    files.write(path, files.to_json(result))
    assert files.read_result(path) == result


def test_json_is_stable_and_keeps_lists_of_numbers_on_one_line(result: Result) -> None:
    text = files.to_json(result)
    assert text == files.to_json(Result.model_validate_json(text))
    assert json.loads(text) == json.loads(result.model_dump_json())
    assert f'\n   "per_step_drafted": [{", ".join(["4"] * 20)}],\n' in text
    assert '"acceptance_by_position": [0.8, 0.75, 0.33, 1.0],' in text


def test_numbers_that_are_unknown_or_small_stay_what_they_are() -> None:
    positions = [None, 1e-300, 0.5, None]
    result = made.result(summaries=[made.summary(acceptance_by_position=positions)])
    text = files.to_json(result)
    assert "[null, 1e-300, 0.5, null]" in text
    assert Result.model_validate_json(text) == result


def test_jsonl_has_a_cell_per_line(result: Result) -> None:
    lines = files.to_jsonl(result).splitlines()
    assert [Cell.model_validate_json(line) for line in lines] == result.cells


def test_csv_has_a_summary_per_line_and_intervals_in_three_columns(result: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(files.to_csv(result))))
    assert [(row["mode"], row["category"]) for row in rows] == [
        (summary.mode, summary.category) for summary in result.summaries
    ]
    plain, auto = rows[0], rows[3]
    assert auto["category"] == ALL
    assert [auto[name] for name in ("speedup", "speedup_low", "speedup_high")] == [
        str(value) for value in (1.6, 1.6 * 0.95, 1.6 * 1.05)
    ]
    assert plain["speedup"] == plain["speedup_low"] == plain["worst_question_id"] == ""
    assert (auto["worst_question_id"], auto["worst_speedup"]) == ("chat-2", "0.93")
    assert auto["verdict"] == "faster"
    for name in ("by_drafter", "acceptance_by_position", "drafted_lengths", "worst"):
        assert name not in auto
    assert None not in auto


def test_csv_quotes_what_needs_it() -> None:
    text = files.to_csv(made.result(summaries=[made.summary(mode=HOSTILE, category="a,b")]))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["mode"], row["category"]) == (HOSTILE, "a,b")


def test_csv_of_nothing_has_a_header() -> None:
    assert files.to_csv(made.result(summaries=[])).startswith("mode,category,prompts,failed,")


def test_results_fit_the_schema(result: Result) -> None:
    schema = files.schema()
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    for one in (result, made.result(draft=None, draft_curve=None, cells=[], summaries=[])):
        validator(schema).validate(json.loads(files.to_json(one)))
    assert schema["version"] == 1
    assert "edgespec bench" in schema["title"]
    assert schema["description"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("machine"),
        lambda data: data.update(schema_version=2),
        lambda data: data.update(surplus=1),
        lambda data: data["cells"][0].update(steps="many"),
        lambda data: data["summaries"][0].update(verdict="best"),
    ],
)
def test_the_schema_refuses_what_is_no_result(
    change: Callable[[dict[str, Any]], object], result: Result
) -> None:
    data = json.loads(files.to_json(result))
    change(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(files.schema()).validate(data)


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(files.to_json(made.result())), **changes}).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is not JSON"),
        (b"| mode | category |", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"9" * 10_000, "it is not JSON"),
        (b"[]", "it has no schema_version and cells"),
        (b"null", "it has no schema_version and cells"),
        (b'{"a": 1}', "it has no schema_version and cells"),
        (made.cell().model_dump_json().encode() + b"\n", "it has no schema_version and cells"),
        (made.cell().model_dump_json().encode() * 2, "it is not JSON"),
        (changed(schema_version=2), "schema version 2, made by another version of edgespec; "),
        (changed(schema_version=2, cells={}), "this one reads 1"),
        (changed(schema_version="x\ny"), "schema version x y"),
        (changed(notes=1), "changed: notes: Input should be a valid array"),
        (changed(machine=None), "changed: machine: "),
        (changed(values=[{"mode": 1}]), "changed: values.0.mode: "),
        (changed(**{"a\nb": 1}), "changed: a b: Extra inputs are not permitted"),
        (changed(target_curve={**made.curve().model_dump(), "seconds": [float("nan")]}), "finite"),
    ],
)
def test_files_that_are_no_results_are_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(BenchError) as caught:
        files.read_result(path)
    message = str(caught.value)
    assert reason in message
    assert message.startswith(str(path))
    assert message.isprintable()
    assert len(message) < len(str(path)) + 300


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"no\.json cannot be read: No such file.* Check the name"):
        files.read_result(tmp_path / "no.json")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_impossible_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot be read"):
        files.read_result(tmp_path / name)
    with pytest.raises(BenchError, match="cannot be written"):
        files.write(tmp_path / name, "text")
    with pytest.raises(BenchError, match="Nothing can be saved"):
        files.check_directory(tmp_path / name)


def test_a_directory_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="it is not a file"):
        files.read_result(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BenchError, match="it is not a file"):
        files.read_result(tmp_path / "pipe")
    with pytest.raises(BenchError, match="it is not a file"):
        files.write(tmp_path / "pipe", "text")


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(files.LARGEST + 1)  # takes no room on disk
    with pytest.raises(BenchError, match="256 MiB are more than the 256 MiB of the largest"):
        files.read_result(path)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    monkeypatch.setattr(Path, "read_bytes", no_permission)
    with pytest.raises(BenchError, match=r"cannot be read: Permission denied\."):
        files.read_result(path)


def no_permission(*given: object, **named: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_writing_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    for text in ("first\r\n", "second, \u00e4\n"):
        files.write(path, text)
        assert path.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_written_files_can_be_read_by_whom_the_user_lets(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    files.write(tmp_path / "report.md", "text")
    usual, written = ((tmp_path / name).stat().st_mode for name in ("usual", "report.md"))
    assert stat.S_IMODE(written) == stat.S_IMODE(usual)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.md"
    files.write(path, "old")
    monkeypatch.setattr(Path, "replace", no_permission)
    with pytest.raises(BenchError, match=r"report\.md cannot be written: Permission denied\."):
        files.write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_text("old")
    try:
        (tmp_path / "link.md").symlink_to("real.md")
    except OSError:
        pytest.skip("no links here")
    files.write(tmp_path / "link.md", "new")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


@pytest.mark.parametrize("name", ["missing/report.md", "file/report.md", "."])
def test_places_that_cannot_be_written_to_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match="cannot be written: "):
        files.write(tmp_path / name, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_is_made_and_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    files.check_directory(path)
    files.check_directory(path)
    assert path.is_dir()
    assert not list(path.iterdir())


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "file/below"):
        with pytest.raises(
            BenchError, match=r"Nothing can be saved in .* Choose another directory"
        ):
            files.check_directory(tmp_path / name)


def test_a_directory_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_text", no_permission)
    with pytest.raises(BenchError, match=r"Permission denied\. Choose another directory"):
        files.check_directory(tmp_path)


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="nothing is forbidden to the superuser"
)
def test_permissions_of_the_system_are_heeded(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.mkdir(mode=0o500)
    with pytest.raises(BenchError, match="Permission denied"):
        files.check_directory(path)
    with pytest.raises(BenchError, match="Permission denied"):
        files.write(path / "report.md", "text")
