"""Same seed, same tokens? Compares every k and drafter with plain decoding, token for token.

    python -m benchmarks.lossless --target Q8_0 --draft Q4_0

Where tokens differ, the plain run's gap between its two best tokens at that point is compared
with tau, the 99.9th percentile of how much such gaps change when the same text is scored in
passes as wide as those in use. A gap below tau is a near-tie of the target itself; a larger one
would be a bug (DESIGN section 6). At a temperature the gap is that of the noisy scores, times
the temperature, so that it is in units of logits too.
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
from edgespec.decoding.noise import gumbel
from edgespec.decoding.sampling import Sampler
from edgespec.llama.widths import probe_widths
from edgespec.protocols import Row
from edgespec.types import SamplingParams


class Divergence(NamedTuple):
    prompt: int
    at: int
    gap: float
    runner_up: bool  # the other token was the plain run's second


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
    at = next(
        (i for i, pair in enumerate(zip(plain, found, strict=False)) if pair[0] != pair[1]),
        min(len(plain), len(found)),
    )
    lab.generate(prompt, params, k=0, max_tokens=at + 1)
    row = lab.recorder.last[-1]
    order, scores = _ranking(row, params, [*prompt, *plain[:at]])
    gap = float(scores[0] - scores[1]) if len(scores) > 1 else float("inf")
    other = found[at] if at < len(found) else -1
    return Divergence(index, at, gap, len(order) > 1 and int(order[1]) == other)


def _ranking(
    row: np.ndarray, params: SamplingParams, history: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens from best to worst and their scores, in units of logits."""
    if params.temperature == 0.0:
        tokens, scores = np.arange(len(row)), row.astype(np.float64)
    else:
        # Before truncation: a token may also have fallen in or out at the edge of top-p.
        tokens = np.flatnonzero(row >= row.max() - 12.0)
        noise = gumbel(params.seed or 0, len(history), tokens)
        scores = row[tokens] + noise * params.temperature
        kept = Sampler(params).candidates(row, history).tokens
        scores[~np.isin(tokens, kept)] = -np.inf
    order = np.argsort(-scores, kind="stable")[:2]
    return tokens[order], scores[order]


def gap_change(lab: Laboratory, texts: Sequence[Sequence[int]], widths: Sequence[int]) -> float:
    """tau: the 99.9th percentile of the change of the top-2 gap from width 1 to wider passes."""
    changes: list[float] = []
    for text in texts:
        reference = _gaps(lab, text, 1)
        for width in widths:
            changes += list(np.abs(_gaps(lab, text, width) - reference))
    return float(np.quantile(changes, 0.999))


def _gaps(lab: Laboratory, text: Sequence[int], width: int) -> np.ndarray:
    lab.context.drop(0)
    gaps: list[np.ndarray] = []
    for start in range(0, len(text), width):
        piece = text[start : start + width]
        rows = [Row(0, start + i, token, True) for i, token in enumerate(piece)]
        best = np.sort(np.partition(lab.context.decode(rows), -2, axis=1)[:, -2:], axis=1)
        gaps.append(best[:, 1] - best[:, 0])
    return np.concatenate(gaps)


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
    parser.add_argument("--exact", action="store_true", help="only identical widths, no repacking")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    draft = file_of(chosen.draft) if chosen.draft else None
    started = time.time()
    lab = Laboratory(file_of(chosen.target), draft, repack=not chosen.exact, threads=chosen.threads)
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
        tau = gap_change(lab, texts[:20], [k + 1 for k in chosen.k])
        explained = [divergence for divergence in found if divergence.gap <= tau]
        summary |= {"tau": tau, "near_ties": len(explained)}
        print(
            f"tau {tau:.4f}; {len(explained)} near-ties (gap <= tau), largest gap "
            f"{max(divergence.gap for divergence in found):.4f}, "
            f"{sum(d.runner_up for d in found)} took the plain run's second token"
        )
    lab.close()
    if chosen.json:
        chosen.json.write_text(json.dumps(summary | {"results": results}), encoding="utf-8")


if __name__ == "__main__":
    main()
