"""Results as files: JSON, which can be read again, JSONL and CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgespec.bench.records import SCHEMA_VERSION, Interval, Result, Summary, Worst
from edgespec.errors import BenchError

LARGEST = 256 * 1024**2
"""Bytes of a result; a run of days stays below."""

_READS = f"It reads files of `edgespec bench -o json`, schema version {SCHEMA_VERSION}."
_SHOWN = 80

# A list of numbers alone. Inside of texts JSON has no line breaks, so that none can match.
_NUMBER = r"(?:-?\d[\d.eE+-]*|null)"
_NUMBERS = re.compile(rf"\[\n\s*({_NUMBER}(?:,\n\s*{_NUMBER})*)\n\s*\]")


def to_json(result: Result) -> str:
    """Indented, a list of numbers on one line; the same for the same result."""
    text = result.model_dump_json(indent=1)
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def to_jsonl(result: Result) -> str:
    """One cell per line."""
    return "".join(f"{cell.model_dump_json()}\n" for cell in result.cells)


def to_csv(result: Result) -> str:
    """One summary per line, without what is no single figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_header())
    writer.writerows(list(_row(summary)) for summary in result.summaries)
    return text.getvalue()


def read_result(path: Path) -> Result:
    """Raises BenchError when the file is not a result that this version reads."""
    data = _read(path)
    try:
        result = Result.model_validate_json(data)
    except ValidationError as error:
        raise BenchError(_why_not(path, data, error)) from None
    if result.schema_version != SCHEMA_VERSION:
        raise BenchError(_other_version(path, result.schema_version))
    return result


def write(path: Path, text: str) -> None:
    """All of it or nothing: the file is replaced when the new one is complete."""
    try:
        target = path.resolve()  # a link stays one
        if target.exists() and not target.is_file():
            raise BenchError(f"{path} cannot be written: it is not a file. Choose another name.")
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
        try:
            with open(temporary, "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, zero bytes
        raise BenchError(
            f"{path} cannot be written: {_reason(error)}. Choose another place."
        ) from None


def check_directory(path: Path) -> None:
    """Make the directory if needed and prove that it can be written to, or raise BenchError."""
    probe = path / f".edgespec.{secrets.token_hex(4)}.tmp"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.write_text("probe", encoding="utf-8")
        probe.unlink()
    except (OSError, ValueError) as error:
        raise BenchError(
            f"Nothing can be saved in {path}: {_reason(error)}. Choose another directory."
        ) from None


def schema() -> dict[str, Any]:
    """The JSON schema of what `to_json` writes."""
    made = Result.model_json_schema()
    made["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": "Result of edgespec bench",
        "description": "A benchmark run: machine, settings, every cell, and what they add up to. "
        "Seconds are seconds, sizes are bytes, temperatures are degrees Celsius; null is unknown.",
        "version": SCHEMA_VERSION,
    }


def _header() -> Iterator[str]:
    for name, field in Summary.model_fields.items():
        kind = str(field.annotation)
        if Interval.__name__ in kind:
            yield from (name, f"{name}_low", f"{name}_high")
        elif Worst.__name__ in kind:
            yield from ("worst_question_id", "worst_speedup")
        elif "list" not in kind and "dict" not in kind:
            yield name


def _row(summary: Summary) -> Iterator[object]:
    flat: dict[str, object] = {}
    for name in Summary.model_fields:
        value = getattr(summary, name)
        if isinstance(value, Interval):
            value = {"": value.value, "_low": value.low, "_high": value.high}
            flat.update({f"{name}{suffix}": figure for suffix, figure in value.items()})
        elif isinstance(value, Worst):
            flat |= {"worst_question_id": value.question_id, "worst_speedup": value.speedup}
        else:
            flat[name] = value
    return (flat.get(name) for name in _header())


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise BenchError(f"{path} cannot be read: it is not a file. {_READS}")
        size = path.stat().st_size
        if size > LARGEST:
            raise BenchError(
                f"{path} cannot be read: {size / 2**20:.0f} MiB are more than the "
                f"{LARGEST / 2**20:.0f} MiB of the largest result. {_READS}"
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BenchError(
            f"{path} cannot be read: {_reason(error)}. Check the name of the file."
        ) from None


def _why_not(path: Path, data: bytes, error: ValidationError) -> str:
    try:
        found = json.loads(data)
    except RecursionError:
        return f"{path} is no result of a benchmark: it is nested too deeply. {_READS}"
    except ValueError:
        return f"{path} is no result of a benchmark: it is not JSON. {_READS}"
    if not isinstance(found, dict) or "schema_version" not in found or "cells" not in found:
        return f"{path} is no result of a benchmark: it has no schema_version and cells. {_READS}"
    if found["schema_version"] != SCHEMA_VERSION:
        return _other_version(path, found["schema_version"])
    first = error.errors(include_url=False, include_input=False)[0]
    place = _line(".".join(map(str, first["loc"])))
    return f"{path} is damaged or was changed: {place}: {_line(first['msg'])}. Run it again."


def _other_version(path: Path, version: object) -> str:
    return (
        f"{path} has schema version {_line(str(version))}, made by another version of edgespec; "
        f"this one reads {SCHEMA_VERSION}. Use that version, or run the benchmark again."
    )


def _reason(error: Exception) -> str:
    return _line((error.strerror if isinstance(error, OSError) else None) or str(error))


def _line(text: str) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
