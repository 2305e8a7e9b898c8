"""`edgespec doctor`: what is installed, what this machine offers, what is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")]
Speed = Annotated[
    bool, typer.Option("--speed/--no-speed", help="Also time the default pair, about 10 seconds.")
]

_MARKS = {"ok": " ", "warning": "!", "problem": "x"}


def doctor(as_json: AsJson = False, speed: Speed = True) -> None:
    """Look at versions, build, devices, memory and models; say what is wrong and what to do."""
    from edgespec.cli.progress import loading_bar
    from edgespec.diagnosis import Finding, diagnose

    findings: list[Finding] = []
    section = ""
    with loading_bar() as report:
        for finding in diagnose(speed=speed, report=report):
            findings.append(finding)
            if as_json:
                continue
            if finding.section != section:
                section = finding.section
                typer.echo(f"{section}:")
            typer.echo(f" {_MARKS[finding.level]} {finding.name}: {finding.value}")
            if finding.advice:
                typer.echo(f"   -> {finding.advice}")
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in findings], indent=2, ensure_ascii=False))
    if any(one.level == "problem" for one in findings):
        raise typer.Exit(1)
