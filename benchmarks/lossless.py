"""Same seed, same tokens? Compares every k and drafter with plain decoding, token for token.

    python -m benchmarks.lossless --target Q8_0 --draft Q4_0

Where tokens differ, the gap is by how much one logit of the plain run, that of its own token or
of the other, would have to change for the other token to be chosen: at temperature 0 the
distance of the two, else that of their noisy scores, or that to the edge of top-p or min-p. It
is compared with tau, the 99.9th percentile of how much the distance of the two best logits
changes when the same text is scored in passes as wide as those in use. A gap below tau is a
near-tie of the target itself; a larger one would be a bug.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.laboratory import Laboratory, tokens_of
from benchmarks.pairs import is_name, make
from benchmarks.prompts import PROMPTS
from edgespec.decoding.divergence import first_difference, gap_changes, least_change
from edgespec.decoding.sampling import Sampler
from edgespec.llama.widths import probe_widths
from edgespec.types import SamplingParams


class Divergence(NamedTuple):
    prompt: int
    at: int
    gap: float


class Result(NamedTuple):
    drafter: str
    k: int
    temperature: float
    answers: int
    tokens: int
    drafted: int
    accepted: int
    divergences: list[Divergence]


def file_of(name: str) -> Path:
    """A name of benchmarks.pairs, or a path."""
    return make(name) if is_name(name) else Path(name)


def compare(
    lab: Laboratory,
    temperatures: Sequence[float],
    ks: Sequence[int],
    drafters: Sequence[str],
    prompts: Sequence[str],
    max_tokens: int,
    widths: frozenset[int] | None,
) -> tuple[list[Result], list[list[int]]]:
    """All combinations against plain decoding; also returns the plain texts."""
    results, texts = [], []
    for temperature in temperatures:
        asked = [lab.prompt(text) for text in prompts]
        params = [SamplingParams(temperature=temperature, seed=i) for i in range(len(prompts))]
        plain = [
            tokens_of(lab.generate(prompt, how, k=0, max_tokens=max_tokens))
            for prompt, how in zip(asked, params, strict=True)
        ]
        texts += [[*prompt, *answer] for prompt, answer in zip(asked, plain, strict=True)]
        for drafter, k in itertools.product(drafters, ks):
            drafted = accepted = tokens = 0
            divergences = []
            for i, (prompt, how) in enumerate(zip(asked, params, strict=True)):
                steps = lab.generate(
                    prompt, how, k=k, drafter=drafter, max_tokens=max_tokens, widths=widths
                )
                drafted += sum(step.drafted for step in steps)
                accepted += sum(step.accepted for step in steps)
                found = tokens_of(steps)
                tokens += len(found)
                if found != plain[i]:
                    divergences.append(_classify(lab, i, prompt, how, plain[i], found))
            results.append(
                Result(
                    drafter, k, temperature, len(prompts), tokens, drafted, accepted, divergences
                )
            )
            _show(results[-1])
    return results, texts


def _classify(
    lab: Laboratory,
    index: int,
    prompt: Sequence[int],
    params: SamplingParams,
    plain: list[int],
    found: list[int],
) -> Divergence:
    at = first_difference(plain, found)
    assert at is not None
    lab.generate(prompt, params, k=0, max_tokens=at + 1)
    history = [*prompt, *plain[:at]]
    sampler = Sampler(params)
    row = lab.recorder.last[-1]
    assert sampler.sample(row, history) == plain[at], "plain decoding does not repeat itself"
    return Divergence(index, at, least_change(row, sampler, history, plain[at], found[at]))


def tau_of(lab: Laboratory, texts: Sequence[Sequence[int]], widths: Sequence[int]) -> float:
    """The 99.9th percentile of the change of the top-2 gap from width 1 to wider passes."""
    changes = [change for text in texts for change in gap_changes(lab.context, text, widths)]
    return float(np.quantile(changes, 0.999))


def _show(result: Result) -> None:
    rate = result.accepted / result.drafted if result.drafted else float("nan")
    print(
        f"| {result.drafter:7} | {result.k} | {result.temperature:3} | {result.answers:3} | "
        f"{result.tokens:6} | {rate:6.3f} | {len(result.divergences):3} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True, help="a file, or a name of benchmarks.pairs")
    parser.add_argument("--draft", help="likewise")
    parser.add_argument("--drafters", nargs="+", default=["model", "n-gram"])
    parser.add_argument("-k", nargs="+", type=int, default=[1, 3, 7])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.8])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument(
        "--exact", action="store_true", help="only identical widths, no repacking, mixed KV cache"
    )
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    draft = file_of(chosen.draft) if chosen.draft else None
    started = time.time()
    lab = Laboratory(
        file_of(chosen.target),
        draft,
        repack=not chosen.exact,
        mixed_cache=chosen.exact,
        threads=chosen.threads,
    )
    probe = probe_widths(lab.context, lab.model.vocabulary)
    print(f"{lab.model.description}, repacked: {lab.model.repack}")
    print(f"identical widths: {sorted(probe.identical)}")
    print("| drafter | k | T   | answers | tokens | accepted | differ |")
    widths = probe.identical if chosen.exact else None
    results, texts = compare(
        lab,
        chosen.temperatures,
        chosen.k,
        chosen.drafters,
        PROMPTS[: chosen.prompts],
        chosen.tokens,
        widths,
    )
    found = [divergence for result in results for divergence in result.divergences]
    answers = sum(result.answers for result in results)
    print(f"{answers} answers compared, {len(found)} differ, {time.time() - started:.0f} s")
    summary: dict[str, Any] = {"answers": answers, "divergences": len(found)}
    if found:
        tau = tau_of(lab, texts[:20], [k + 1 for k in chosen.k])
        explained = [divergence for divergence in found if divergence.gap <= tau]
        summary |= {"tau": tau, "near_ties": len(explained)}
        print(
            f"tau {tau:.4f}; {len(explained)} near-ties (gap <= tau), largest gap "
            f"{max(divergence.gap for divergence in found):.4f}"
        )
    lab.close()
    if chosen.json:
        chosen.json.write_text(json.dumps(summary | {"results": results}), encoding="utf-8")


if __name__ == "__main__":
    main()
