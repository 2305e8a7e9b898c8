"""How often a draft token is accepted: shared noise against the draft's favourite token.

    python -m benchmarks.acceptance --target Q8_0 --draft Q4_0

Both drafters verify against the same target stream (same seeds), in one run.
"""

from __future__ import annotations

import argparse

from benchmarks.laboratory import Laboratory
from benchmarks.lossless import file_of
from benchmarks.prompts import PROMPTS
from edgespec.types import SamplingParams

DRAFTERS = {"model": "coupled (shared noise)", "argmax": "argmax draft"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.8])
    parser.add_argument("-k", nargs="+", type=int, default=[1])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--tokens", type=int, default=96)
    chosen = parser.parse_args()
    lab = Laboratory(file_of(chosen.target), file_of(chosen.draft))
    print("| drafts | T | k | drafted | accepted | rate |")
    for temperature in chosen.temperatures:
        for k in chosen.k:
            for drafter, title in DRAFTERS.items():
                drafted, accepted = _measure(lab, drafter, k, temperature, chosen)
                rate = accepted / drafted
                print(f"| {title} | {temperature} | {k} | {drafted} | {accepted} | {rate:.3f} |")
    lab.close()


def _measure(
    lab: Laboratory, drafter: str, k: int, temperature: float, chosen: argparse.Namespace
) -> tuple[int, int]:
    drafted = accepted = 0
    for i, text in enumerate(PROMPTS[: chosen.prompts]):
        params = SamplingParams(temperature=temperature, seed=i)
        steps = lab.generate(
            lab.prompt(text), params, k=k, drafter=drafter, max_tokens=chosen.tokens
        )
        drafted += sum(step.drafted for step in steps)
        accepted += sum(step.accepted for step in steps)
    return drafted, accepted


if __name__ == "__main__":
    main()
