"""What a run has done so far, on disk: an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from edgespec.bench.records import Cell, Curve, ModelFile, Record, Settings, Skipped
from edgespec.errors import BenchError

NAME = "journal.jsonl"

T = TypeVar("T", bound=Record)


# What may differ when a run is continued: no cell depends on it.
_INCIDENTAL = (
    *("budget_s", "precision", "watts", "price_kwh"),
    *("hardware_price", "hardware_years"),
)


class Plan(Record):
    """The first line of a journal. Only a run of the same plan may be continued."""

    target: ModelFile
    draft: ModelFile | None
    settings: Settings

    def differences(self, other: Plan) -> list[str]:
        """Why the cells of both do not belong together; nothing if they do."""
        found = [
            name for name in ("target", "draft") if getattr(self, name) != getattr(other, name)
        ]
        return found + [
            name
            for name in Settings.model_fields
            if name not in _INCIDENTAL
            and getattr(self.settings, name) != getattr(other.settings, name)
        ]


class Curves(Record):
    """The second line: trace times of one run must not come from two measurements."""

    target: Curve
    draft: Curve | None


class Prompted(Record):
    """One line for each prompt: its cells, or why it was skipped."""

    cells: list[Cell] = Field(default_factory=list)
    skipped: Skipped | None = None

    @property
    def question_id(self) -> str:
        """Which prompt it is."""
        return self.skipped.question_id if self.skipped else self.cells[0].question_id


class Journal:
    """One file in the directory where the report will be. Whole prompts only: a prompt that was
    interrupted is run again in all modes, since only cells run back to back can be compared."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.curves: Curves | None = None
        self.prompts: list[Prompted] = []

    @property
    def exists(self) -> bool:
        """Whether there is anything to take up."""
        return self._path.exists()

    def begin(self, plan: Plan) -> None:
        """Start, or take up what is there. Raises BenchError when that is another run's."""
        lines = self._read()
        if not lines:
            self._path.unlink(missing_ok=True)
            self._append(plan)
            return
        found = _parse(Plan, lines[0])
        others = ["what cannot be read"] if found is None else found.differences(plan)
        if others:
            raise BenchError(
                f"{self._path} belongs to an unfinished run with other settings "
                f"({', '.join(others)}): save elsewhere, or drop it with --restart."
            )
        self.curves = _parse(Curves, lines[1]) if len(lines) > 1 else None
        if self.curves:
            self.prompts = [one for line in lines[2:] if (one := _parse(Prompted, line))]

    def add_curves(self, curves: Curves) -> None:
        """Remember the cost curves."""
        self.curves = curves
        self._append(curves)

    def add(self, prompt: Prompted) -> None:
        """Remember what came of a prompt."""
        self.prompts.append(prompt)
        self._append(prompt)

    def end(self) -> None:
        """The result is written: nothing is left to take up."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[str]:
        """The complete lines; what was being written when the machine died is dropped."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise BenchError(f"{self._path} cannot be read ({error}): use --restart.") from None
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._path.write_text(whole, encoding="utf-8")
        return whole.splitlines()

    def _append(self, record: Record) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(record.model_dump_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BenchError(
                f"{self._path} cannot be written: {error.strerror or error}. Make room, then "
                "start the same command again: it goes on where it stopped."
            ) from None


def _parse(kind: type[T], line: str) -> T | None:
    try:
        data: Any = json.loads(line)
        return kind.model_validate(data)
    except (ValueError, ValidationError):
        return None
