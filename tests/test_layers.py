"""Imports point only downward, and each foreign library has one home (DESIGN section 3)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

# What each layer of edgespec may import of the others. A layer may always import itself.
_RECORDS = {"errors", "types"}
_SEAMS = _RECORDS | {"protocols"}
_BELOW_ENGINE = _SEAMS | {"decoding", "text"}
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "types": {"errors"},
    "protocols": _RECORDS,
    "compatibility": set(),
    "decoding": _SEAMS,
    "drafters": _SEAMS | {"decoding"},
    "text": _SEAMS,
    "llama": _SEAMS | {"compatibility"},
    "catalog": {"errors", "compatibility"},
    "generation": _BELOW_ENGINE,
    "policies": _SEAMS | {"decoding"},
    "requests": _RECORDS | {"policies"},
    "prompts": _SEAMS | {"requests", "text"},
    "engine": _BELOW_ENGINE | {"generation", "policies", "requests", "prompts"},
    "measuring": _BELOW_ENGINE | {"llama", "catalog"},
    "model_text": {"errors", "text", "llama"},
    "load_options": {"errors", "llama", "catalog", "policies"},
    "prefixes": {"errors"},
    "placing": _RECORDS | {"llama", "catalog"},
    "assembly": _BELOW_ENGINE
    | {"drafters", "llama", "catalog", "policies", "engine", "measuring", "placing"}
    | {"model_text", "load_options", "prefixes"},
    "loading": _SEAMS | {"llama", "catalog", "engine", "measuring", "assembly", "load_options"},
    "diagnosis": _RECORDS | {"llama", "catalog", "loading"},
    "explaining": _SEAMS | {"decoding", "drafters"},
    # Measures through the engine and the seams; the parts of a pair come from loading.
    "bench": _BELOW_ENGINE | {"drafters", "catalog", "policies", "engine", "loading"},
    # The command line shows, it does not compute: no model, no scheduler.
    "cli": _RECORDS
    | {"decoding.stats", "catalog", "generation", "engine", "measuring", "loading", "bench"}
    | {"explaining", "diagnosis", "placing", "compatibility", "server", "tui", ""},
    "server": _SEAMS | {"generation", "policies", "requests", "engine", "text", ""},
    "tui": _RECORDS | {"generation", "engine", "catalog", ""},
    "": _RECORDS | {"engine", "loading"},  # edgespec/__init__.py: the public names
    "__main__": {"cli"},
}

# Where a library outside Python's own may be imported, as prefixes of module names.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "llama_cpp": ("llama",),
    "numpy": ("decoding", "drafters", "llama", "protocols", "bench"),
    "huggingface_hub": ("catalog.hub",),
    "platformdirs": ("catalog.paths",),
    "psutil": ("catalog.hardware",),
    "pydantic": ("bench", "server"),
    "starlette": ("server",),
    "uvicorn": ("server.running", "server.protocol"),
    "h11": ("server.protocol",),
    "pydantic_core": ("server.bodies",),
    "prometheus_client": ("server.metrics",),
    "jinja2": ("text.template",),
    "rich": ("cli", "tui"),
    "typer": ("cli",),
    "click": ("cli",),
    "textual": ("tui",),
}

# The core is pure: all it needs of the world comes in as arguments.
PURE = ("decoding", "drafters", "protocols", "types", "errors")
PURE_IMPORTS = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "functools",
    "heapq",
    "itertools",
    "math",
    "numbers",
    "numpy",
    "operator",
    "statistics",
    "types",
    "typing",
}


class Import(NamedTuple):
    """One import: the module it stands in and the module it names, both without "edgespec."."""

    importer: str
    imported: str
    internal: bool
    line: int


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module of the package, named as inside edgespec; the package itself is ""."""
    for package, prefix in (("edgespec", ""), ("tui", "tui")):
        for path in sorted((root / package).rglob("*.py")):
            parts = [prefix] if prefix else []
            parts += path.relative_to(root / package).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(root: Path) -> list[Import]:
    """Also those inside functions and under TYPE_CHECKING: they tie modules together as well."""
    known = {name for name, _ in modules(root)}
    found = []
    for importer, path in modules(root):
        package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for name in _named(node, package, known):
                internal = name == "edgespec" or name.startswith("edgespec.")
                imported = name.removeprefix("edgespec").removeprefix(".") if internal else name
                found.append(Import(importer, imported, internal, getattr(node, "lineno", 0)))
    return found


def _named(node: ast.AST, package: str, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            above = ["edgespec", *filter(None, package.split("."))]
            above = above[: len(above) - node.level + 1]
            module = ".".join([*above, *filter(None, [module])])
        for alias in node.names:
            inner = f"{module}.{alias.name}"
            # `from edgespec.llama import library` names a module, not something in one.
            yield inner if inner.removeprefix("edgespec.") in known else module


def layer(module: str) -> str:
    return module.split(".")[0]


def within(module: str, prefixes: tuple[str, ...] | set[str]) -> bool:
    return any(module == one or (one and module.startswith(f"{one}.")) for one in prefixes)


def faults(root: Path) -> list[str]:
    """What is wrong with the imports below `root`, one line each."""
    return [
        f"{one.importer or '__init__'}, line {one.line}: {fault}"
        for one in imports(root)
        if (fault := _fault(one))
    ]


def _fault(one: Import) -> str:
    own = layer(one.importer)
    if own not in LAYERS:
        return f"there is no layer {own}: add it to the table"
    if one.internal:
        if layer(one.imported) == own or within(one.imported, LAYERS[own]):
            return ""
        return f"{own or 'edgespec'} must not import edgespec.{one.imported}"
    name = one.imported.split(".")[0]
    if within(one.importer, PURE) and name not in PURE_IMPORTS:
        return f"{own} is pure and must not import {one.imported}"
    if name in sys.stdlib_module_names:
        return ""
    if name not in LIBRARIES:
        return f"{name} is no library of edgespec"
    if not within(one.importer, LIBRARIES[name]):
        return f"{name} is imported in {' and '.join(LIBRARIES[name])} only"
    return ""


def test_imports_point_downward() -> None:
    assert faults(ROOT) == []


def test_every_layer_of_the_table_exists_and_is_looked_at() -> None:
    assert {layer(name) for name, _ in modules(ROOT)} == set(LAYERS)
    looked_at = {one.importer for one in imports(ROOT)}
    for name in ("llama.context", "decoding.scheduler", "cli.main", "catalog.paths", "loading"):
        assert name in looked_at


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("edgespec/types.py", "from edgespec.protocols import Row", "types must not import"),
        ("edgespec/text/stops.py", "import edgespec.engine", "text must not import"),
        ("edgespec/text/stops.py", "from edgespec.llama import library", "edgespec.llama.library"),
        ("edgespec/llama/model.py", "from edgespec.catalog.paths import x", "llama must not"),
        ("edgespec/llama/model.py", "from ..catalog import paths", "edgespec.catalog.paths"),
        ("edgespec/catalog/paths.py", "from .. import engine", "edgespec.engine"),
        ("edgespec/catalog/paths.py", "from edgespec import engine", "edgespec.engine"),
        ("edgespec/catalog/paths.py", "import edgespec.types", "catalog must not"),
        ("edgespec/decoding/noise.py", "def f():\n    import edgespec.drafters", "decoding must"),
        ("edgespec/engine.py", "from edgespec.loading import load", "engine must not"),
        (
            "edgespec/engine.py",
            "if TYPE_CHECKING:\n    import edgespec.cli.main",
            "engine must not",
        ),
        ("edgespec/engine.py", "import llama_cpp", "llama_cpp is imported in llama only"),
        ("edgespec/cli/main.py", "from llama_cpp import x", "llama_cpp is imported in llama only"),
        ("edgespec/cli/main.py", "import edgespec.llama.library", "cli must not"),
        ("edgespec/cli/main.py", "import edgespec.decoding.scheduler", "cli must not"),
        ("edgespec/catalog/lock.py", "import platformdirs", "in catalog.paths only"),
        ("edgespec/cli/main.py", "from textual.app import App", "textual is imported in tui only"),
        ("edgespec/text/stops.py", "import numpy as np", "numpy is imported in decoding"),
        ("edgespec/decoding/noise.py", "import time", "decoding is pure"),
        ("edgespec/decoding/noise.py", "from os import path", "decoding is pure"),
        ("edgespec/decoding/noise.py", "import random", "decoding is pure"),
        ("edgespec/drafters/ngram.py", "import logging", "drafters is pure"),
        ("edgespec/engine.py", "import requests", "requests is no library of edgespec"),
        ("edgespec/extra.py", "import math", "there is no layer extra"),
        ("tui/app.py", "from edgespec.decoding.stats import merge", "tui must not"),
        ("tui/app.py", "from edgespec.loading import load", "tui must not"),
    ],
)
def test_a_wrong_import_is_found(module: str, line: str, fault: str, tmp_path: Path) -> None:
    _made_up(tmp_path)
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"from __future__ import annotations\n{line}\n", encoding="utf-8")
    found = faults(tmp_path)
    assert len(found) >= 1
    assert all(fault in one for one in found)
    assert found[0].startswith(module.removeprefix("edgespec/")[:-3].replace("/", "."))


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("edgespec/engine.py", "from edgespec.generation import Generation"),
        ("edgespec/loading.py", "from edgespec.llama import library\nimport time"),
        ("edgespec/llama/model.py", "import llama_cpp\nimport numpy\nfrom . import library"),
        ("edgespec/catalog/paths.py", "import platformdirs\nfrom ..errors import CatalogError"),
        ("edgespec/decoding/noise.py", "from collections.abc import Callable\nimport numpy as np"),
        ("edgespec/cli/main.py", "from edgespec.decoding import stats\nfrom edgespec import load"),
        ("tui/app.py", "import textual\nfrom edgespec import Engine, load\nimport time"),
    ],
)
def test_a_right_import_is_let_through(module: str, line: str, tmp_path: Path) -> None:
    _made_up(tmp_path)
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{line}\n", encoding="utf-8")
    assert faults(tmp_path) == []


def _made_up(root: Path) -> None:
    """A tree with the modules that the made-up imports name."""
    for name in ("__init__", "engine", "llama/library", "llama/__init__", "catalog/paths"):
        path = root / "edgespec" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    stats = root / "edgespec" / "decoding" / "stats.py"
    stats.parent.mkdir()
    stats.touch()
