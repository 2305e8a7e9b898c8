"""Whether an answer is the same alone and among others, and where not, by how little.

    python -m benchmarks.company --target Q4_1

Every prompt is answered alone and together with others, greedily and by seed. Where two answers
part, the smallest change of a logit that would have chosen the other token is given ("gap"), and
how much company changes the gap of the two best logits at all ("tau", 99.9th percentile): the same
texts are read alone, in passes with others, and with their tokens in another order in memory, which
is what others leave behind. A gap above tau would be a bug.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.lossless import file_of
from edgespec.bench.suite import load_suite
from edgespec.decoding.divergence import first_difference, least_change
from edgespec.decoding.sampling import Sampler
from edgespec.loading import LoadedPair, load_pair
from edgespec.protocols import Row
from edgespec.types import Completion, SamplingParams

_SCORED = 256  # tokens of a text, for tau


def compare(pair: LoadedPair, params: SamplingParams, count: int, tokens: int) -> None:
    """Print what differs."""
    engine = pair.engine
    prompts = [
        engine.tokenize(None, [{"role": "user", "content": prompt.turns[0]}])
        for prompt in load_suite("standard").prompts[:count]
    ]

    def ask(prompt: Sequence[int]) -> Completion:
        return engine.generate(prompt, params=params, max_tokens=tokens)

    alone = [ask(prompt) for prompt in prompts]
    running = [engine.submit(prompt, params=params, max_tokens=tokens) for prompt in prompts]
    together = [one.result() for one in running]
    texts = [[*prompt, *one.tokens] for prompt, one in zip(prompts, alone, strict=True)]
    tau = engine.exclusively(lambda: _tau(pair, texts))
    same = 0
    for prompt, one, other in zip(prompts, alone, together, strict=True):
        at = first_difference(one.tokens, other.tokens)
        if at is None:
            same += 1
            continue
        history = [*prompt, *one.tokens[:at]]
        work = partial(_gap, pair, params, history, one.tokens[at], other.tokens[at])
        gap = engine.exclusively(work)
        print(f"  parts at token {at}: gap {gap:.4f}, tau {tau:.4f}", flush=True)
    print(f"temperature {params.temperature:g}: {same} of {count} the same, tau {tau:.4f}")


def _gap(
    pair: LoadedPair,
    params: SamplingParams,
    history: list[int],
    own: int,
    other: int,
) -> float:
    logits = _logits(pair, [history])[0][-1]
    return least_change(logits, Sampler(params), history, own, other)


def _tau(pair: LoadedPair, texts: Sequence[Sequence[int]]) -> float:
    texts = [text[-_SCORED:] for text in texts[: pair.target_context.max_sequences]]
    alone = [_gaps(_logits(pair, [text])[0]) for text in texts]
    together = [_gaps(rows) for rows in _logits(pair, texts)]
    moved = [_gaps(_rearranged(pair, text)) for text in texts]
    changes = [np.abs(a - b) for a, b in zip(alone, together, strict=True)]
    changes += [np.abs(a[-len(b) :] - b) for a, b in zip(alone, moved, strict=True)]
    return float(np.percentile(np.concatenate(changes), 99.9))


def _logits(pair: LoadedPair, texts: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
    """Of the last tokens of each, a token of every text in each pass."""
    model = pair.target_context
    found: list[list[NDArray[np.float32]]] = [[] for _ in texts]
    for at in range(max(map(len, texts))):
        rows = [Row(i, at, text[at], True) for i, text in enumerate(texts) if at < len(text)]
        logits = model.decode(rows)
        for row, line in zip(rows, logits, strict=True):
            found[row.sequence].append(line.copy())
            del found[row.sequence][:-_SCORED]
    for i in range(len(texts)):
        model.drop(i)
    return [np.array(lines) for lines in found]


def _rearranged(pair: LoadedPair, text: Sequence[int]) -> NDArray[np.float32]:
    """Of the last tokens of the text, when the later half lies before the earlier one in memory,
    as it comes where other answers have left holes: sums are made in another order then."""
    model = pair.target_context
    half = len(text) // 2
    model.decode([Row(1, i, token, False) for i, token in enumerate(text[:half])])
    found = []
    for at, token in enumerate(text):
        if at == half:
            model.drop(1)
        found.append(model.decode([Row(0, at, token, True)])[0].copy())
    model.drop(0)
    return np.array(found[half:])


def _gaps(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    best = np.sort(np.partition(logits, -2, axis=1)[:, -2:], axis=1)
    gaps: NDArray[np.float32] = best[:, 1] - best[:, 0]
    return gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--together", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    chosen = parser.parse_args()
    pair = load_pair(
        target=file_of(chosen.target),
        draft=file_of(chosen.draft) if chosen.draft else "none",
        n_ctx=8192,
        max_sequences=chosen.together,
    )
    with pair.engine:
        for temperature in (0.0, 0.8):
            params = SamplingParams(temperature=temperature, seed=7)
            compare(pair, params, chosen.prompts, chosen.tokens)


if __name__ == "__main__":
    main()
