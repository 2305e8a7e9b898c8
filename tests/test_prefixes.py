"""Prompts that survive a restart, on tiny real models."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.errors import BackendError, OptionError
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.loading import load
from edgespec.prefixes import SHORTEST, Prefixes
from edgespec.protocols import Row
from tests.tiny_gguf import write_tiny_gguf

TEXT = "the quick brown fox jumps over the lazy dog " * 40


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "m.gguf", n_ctx_train=2048)


def answer(model: Path, cache: Path | None, prompt: str = TEXT) -> tuple[str, int, int]:
    with load(target=model, draft="none", n_ctx=2048, max_sequences=3, prompt_cache=cache) as one:
        done = one.generate(prompt, max_tokens=8, temperature=0.0)
    return done.text, done.usage.cached_tokens, done.usage.prompt_tokens


def test_a_long_prompt_is_not_read_again_after_a_restart(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    text, cached, tokens = answer(model, cache)
    assert cached == 0
    assert tokens > SHORTEST
    assert answer(model, cache) == (text, tokens - 1, tokens)
    assert answer(model, None) == (text, 0, tokens)


def test_short_prompts_are_not_kept(model: Path, tmp_path: Path) -> None:
    answer(model, tmp_path / "cache", "hello")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("damage", ["byte", "cut", "empty", "name"])
def test_a_damaged_file_is_never_read(damage: str, model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    text, _, tokens = answer(model, cache)
    (kept,) = cache.iterdir()
    data = bytearray(kept.read_bytes())
    if damage == "byte":
        data[len(data) // 2] ^= 1
    elif damage == "name":
        kept = kept.rename(kept.with_name(kept.name.replace("prefix", "x.prefix")))
    kept.write_bytes(bytes(data[: {"cut": 100, "empty": 0}.get(damage, len(data))]))
    assert answer(model, cache) == (text, 0, tokens)
    assert len(list(cache.iterdir())) == 1  # replaced


def test_files_of_another_model_stay_and_what_was_killed_goes(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    answer(model, cache)
    other = write_tiny_gguf(tmp_path / "other.gguf", n_ctx_train=2048, seed=3)
    (key,) = {path.name.split("-")[0] for path in cache.iterdir()}
    (cache / f"{key}-1-0.part").write_bytes(b"half")
    assert answer(other, cache)[1] == 0
    assert answer(model, cache)[1] > SHORTEST
    assert len(list(cache.glob("*.prefix"))) == 2
    assert list(cache.glob("*.part")) == []


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="cannot keep prompts"):
        Prefixes(tmp_path / "file" / "cache", "key")


def test_what_does_not_fit_leaves_the_sequence_empty(model: Path, tmp_path: Path) -> None:
    weights = Model(model)
    large = Context(weights, n_ctx=512, threads=1)
    large.decode([Row(0, i, 7, False) for i in range(400)])
    large.save(0, [7] * 400, tmp_path / "one.prefix")
    small = Context(weights, n_ctx=256, max_sequences=2, threads=1)
    with pytest.raises(BackendError, match="could not be read"):
        small.restore(1, tmp_path / "one.prefix")
    assert small.length(1) == 0
    small.decode([Row(1, 0, 7, True)])
    small.close()
    large.close()
    weights.close()
