"""Keeps every test away from the user's files, and gives tests marked `model` the real model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.catalog.download import pull
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import load_registry
from edgespec.decoding.calibration import Costs
from edgespec.decoding.costs import CostCurve

# Found before any test moves EDGESPEC_HOME: a model is not pulled anew for every test.
_MODELS = Path(os.environ.get("EDGESPEC_TEST_MODELS") or models_dir()).absolute()
_OTHER_PROGRAMS = (
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"),
    *("LLAMA_CACHE", "LOCALAPPDATA"),
)


@pytest.fixture(scope="session", autouse=True)
def home_of_all_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where fixtures that outlive a test keep what they measure and learn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGESPEC_HOME", str(tmp_path_factory.mktemp("home-of-all-tests")))
        yield


@pytest.fixture(autouse=True)
def edgespec_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory below which this test's configuration, models, cache and state lie.

    The user's own home is out of sight, too: models of other programs would be found there.
    """
    home = tmp_path / "edgespec-home"
    monkeypatch.setenv("EDGESPEC_HOME", str(home))
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "user-home"))
    for variable in _OTHER_PROGRAMS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("edgespec.catalog.places._OLLAMA_SERVICE", tmp_path / "no-service")
    return home


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's file, pulled when it is absent. For tests marked `model` only."""
    with pytest.MonkeyPatch.context() as patch:
        # An own models.toml of whoever runs the tests must not change which model is tested.
        patch.setenv("EDGESPEC_HOME", str(_MODELS / "no-user-file"))
        registry = load_registry()
    return pull(registry.model(registry.pair("default").target), _MODELS)


@pytest.fixture
def equally_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model costs the same: tiny ones are too quick for their costs to be told apart."""
    costs = Costs(CostCurve(0, {1: 0.01, 2: 0.015, 32: 0.2}, {}), 0.0, 0.0)
    monkeypatch.setattr("edgespec.measuring.calibrate", lambda *arguments, **options: costs)
    monkeypatch.setattr("edgespec.assembly.adjust", lambda *arguments: None)


@pytest.fixture
def sizes_alone_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promises are made for tiny models as they are for large ones of the same proportions."""
    monkeypatch.setattr("edgespec.catalog.pairing._OVERHEAD", 0)
