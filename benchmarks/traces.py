"""Records what a target writes and what a draft model would propose at every place of it.

    python -m benchmarks.traces --target Q8_0 --draft Q4_0

Policies can then be tried on the record in seconds (benchmarks.replay), against any cost curve.
N-gram drafts need no recording: they follow from the tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.laboratory import Laboratory, tokens_of
from benchmarks.lossless import file_of
from edgespec.bench.suite import load_suite
from edgespec.catalog.paths import cache_dir
from edgespec.drafters.model import ModelDrafter
from edgespec.types import Draft, SamplingParams


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the draft model proposes at one place."""

    tokens: tuple[int, ...]
    confidence: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One prompt and its plain answer. proposals[i] follows the first i + 1 tokens of the answer;
    empty without a draft model."""

    name: str
    category: str
    temperature: float
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    proposals: tuple[Proposal, ...]


def load_traces(file: Path) -> list[Trace]:
    """What `main` wrote."""
    with file.open(encoding="utf-8") as lines:
        return [_trace(json.loads(line)) for line in lines]


def _trace(record: dict[str, Any]) -> Trace:
    proposals = tuple(
        Proposal(tuple(tokens), tuple(confidence)) for tokens, confidence in record["proposals"]
    )
    answer, prompt = tuple(record["answer"]), tuple(record["prompt"])
    return Trace(
        record["name"],
        record["category"],
        record["temperature"],
        prompt,
        answer,
        proposals,
    )


def record(
    lab: Laboratory, suite: str, *, temperature: float, depth: int, most: int, window: int
) -> Iterator[Trace]:
    """One Trace for every first turn of the suite."""
    for number, prompt in enumerate(load_suite(suite).prompts):
        tokens = lab.prompt(prompt.turns[0])
        params = SamplingParams(temperature=temperature, seed=number)
        if len(tokens) + most >= lab.context.n_ctx:
            continue
        answer = tokens_of(lab.generate(tokens, params, k=0, max_tokens=most))
        proposals = (
            tuple(_proposals(lab, tokens, answer, params, depth, window))
            if lab.draft_context
            else ()
        )
        yield Trace(
            prompt.question_id, prompt.category, temperature, tokens, tuple(answer), proposals
        )


def _proposals(
    lab: Laboratory,
    prompt: Sequence[int],
    answer: Sequence[int],
    params: SamplingParams,
    depth: int,
    window: int,
) -> Iterator[Proposal]:
    assert lab.draft_context is not None
    lab.draft_context.drop(0)
    drafter = ModelDrafter(lab.draft_context, lab.model.vocabulary.size, window=window)
    drafter.begin(0, prompt, params)
    for token in answer[:-1]:
        drafter.observe(0, [token])
        drafts: Mapping[int, Draft] = {}
        while not drafts:  # a long prompt is read in pieces
            drafts = drafter.propose({0: depth})
        yield Proposal(drafts[0].tokens, drafts[0].confidence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--suite", default="standard")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--depth", type=int, default=7, help="tokens of a proposal")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--window", type=int, default=0, help="prompt tokens the draft reads")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    draft = file_of(chosen.draft) if chosen.draft else None
    lab = Laboratory(file_of(chosen.target), draft, repack=False, mixed_cache=True, n_ctx=2048)
    name = f"{chosen.target}-{chosen.draft}-{chosen.temperature:g}-{chosen.window}.jsonl"
    output = chosen.output or cache_dir() / "traces" / name
    output.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with output.open("w", encoding="utf-8") as file:
        for count, trace in enumerate(
            record(
                lab,
                chosen.suite,
                temperature=chosen.temperature,
                depth=chosen.depth,
                most=chosen.tokens,
                window=chosen.window,
            ),
            1,
        ):
            line = asdict(trace) | {
                "proposals": [[p.tokens, p.confidence] for p in trace.proposals]
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(f"{count} {trace.name} {time.monotonic() - began:.0f} s", flush=True)
    print(output)
    lab.close()


if __name__ == "__main__":
    main()
