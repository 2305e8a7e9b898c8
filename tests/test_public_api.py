"""The public names, and that asking for them costs nothing before they are used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import edgespec
from edgespec import errors, types

HEAVY = ("llama_cpp", "numpy", "jinja2", "textual", "typer", "rich", "platformdirs", "asyncio")
# The file docs are read from: what type checkers and editors see.
SOURCE = Path(edgespec.__file__)


def loaded_after(code: str) -> set[str]:
    """The modules in memory once a new Python has run `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_all_is_sorted_and_without_repetition() -> None:
    assert edgespec.__all__ == sorted(set(edgespec.__all__))


@pytest.mark.parametrize("name", edgespec.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(importlib.import_module("edgespec"), name) is not None


def test_every_error_and_every_record_is_public() -> None:
    raised = {name for name, value in vars(errors).items() if isinstance(value, type)}
    records = {
        name
        for name, value in vars(types).items()
        if isinstance(value, type) and value.__module__ == types.__name__
    }
    assert raised | records | {"Engine", "load"} == set(edgespec.__all__)


def test_every_error_is_an_edgespec_error() -> None:
    for value in vars(errors).values():
        if isinstance(value, type):
            assert issubclass(value, edgespec.EdgespecError)
            assert value.__doc__


def test_what_is_imported_is_public() -> None:
    """A name brought into edgespec/__init__.py but left out of __all__ would be half public."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgespec")
        for alias in node.names
    }
    assert imported == set(edgespec.__all__)


def test_late_names_are_those_of_their_modules() -> None:
    from edgespec.engine import Engine
    from edgespec.loading import load

    assert edgespec.Engine is Engine
    assert edgespec.load is load


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'edgespec' has no attribute 'laod'"):
        _ = edgespec.laod


def test_import_loads_nothing_heavy() -> None:
    loaded = loaded_after("import edgespec")
    assert not loaded & set(HEAVY)
    ours = {name for name in loaded if name.split(".")[0] == "edgespec"}
    assert ours == {"edgespec", "edgespec.errors", "edgespec.types"}


def test_the_engine_needs_no_llama_cpp() -> None:
    assert "llama_cpp" not in loaded_after("from edgespec import Engine")


def test_the_command_line_starts_without_llama_cpp_and_numpy() -> None:
    loaded = loaded_after("import edgespec.cli.main")
    assert not loaded & {"llama_cpp", "textual"}


def test_version_from_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgespec", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"edgespec {edgespec.__version__}\n"


def test_the_types_are_shipped() -> None:
    assert (SOURCE.parent / "py.typed").is_file()
