"""The default model: speculation changes nothing but the speed (DESIGN sections 1 and 6)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgespec import Completion, Engine, load

pytestmark = pytest.mark.model

PROMPTS = (
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "The three primary colours are red, yellow and blue. The three primary colours are",
    "Once upon a time, in a village by the sea, there lived",
)
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "warm": {"temperature": 0.8, "seed": 7},
}
TOKENS = 48
Answers = dict[tuple[str, str], Completion]


@pytest.fixture(scope="module", autouse=True)
def one_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the whole module: the widths are measured once."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGESPEC_HOME", str(home))
        yield home


@pytest.fixture(autouse=True)
def measured_once(one_home: Path, edgespec_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two kinds of cache the faster is taken: measured twice, it might not be the same one."""
    monkeypatch.setenv("EDGESPEC_HOME", str(one_home))


def start(path: Path, **options: Any) -> Engine:
    # One thread: llama.cpp's threads spin while they wait for each other, and crawl when another
    # process wants the cores.
    return load(target=path, n_ctx=512, threads=1, **options)


def answers(engine: Engine) -> Answers:
    return {
        (kind, prompt): engine.generate(prompt, max_tokens=TOKENS, **params)
        for kind, params in KINDS.items()
        for prompt in PROMPTS
    }


@pytest.fixture(scope="module")
def plain(one_home: Path, default_model_path: Path) -> Answers:
    with start(default_model_path, num_draft_tokens=0) as engine:
        return answers(engine)


def test_plain_answers_are_plain(plain: Answers) -> None:
    for answer in plain.values():
        assert answer.stats.drafted == 0
        assert answer.claim == "identical"
        assert math.isclose(answer.stats.mean_acceptance_length or 0.0, 1.0)
        assert answer.text.strip()


@pytest.mark.parametrize("drafter", ["n-gram", "model"])
def test_drafts_change_no_token(
    drafter: str, plain: Answers, one_home: Path, default_model_path: Path
) -> None:
    draft = default_model_path if drafter == "model" else None
    with start(default_model_path, draft=draft, drafter=drafter, num_draft_tokens=3) as engine:
        assert engine.info.exact_widths is not None, "Q4_1 is bit-identical at every width so far"
        got = answers(engine)
    assert sum(answer.stats.drafted for answer in got.values()) > 0
    for key, answer in got.items():
        assert answer.tokens == plain[key].tokens, key
        assert answer.text == plain[key].text
        assert answer.claim == "identical"
        if drafter == "model":
            # The target drafts for itself, with the same noise: it is always right.
            assert answer.stats.acceptance_rate == 1.0
            assert answer.stats.steps <= math.ceil(TOKENS / 4) + 1


def test_the_second_turn_of_a_chat_reads_only_what_is_new(
    one_home: Path, default_model_path: Path
) -> None:
    messages = [{"role": "user", "content": "Name three colours."}]
    with start(default_model_path) as engine:
        first = engine.generate(messages=messages, max_tokens=24, temperature=0.0)
        asked = len(engine.tokenize(None, messages))
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "And three more?"},
        ]
        second = engine.generate(messages=messages, max_tokens=8, temperature=0.0)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens >= asked
    assert second.stats.prefilled == second.usage.prompt_tokens - second.usage.cached_tokens
    assert second.stats.prefilled < 40
