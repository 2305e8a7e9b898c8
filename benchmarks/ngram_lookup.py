"""What a step of the n-gram drafter costs: `python -m benchmarks.ngram_lookup`.

Needs no model. Per kind of text and context length: microseconds of one step (propose, then
observe what the target emitted), median and 99th percentile, and milliseconds to index the
prompt. The budget is 20 us a step and 50 ms a prompt at 32k tokens (DESIGN section 11).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from edgespec.drafters.ngram import NgramDrafter
from edgespec.types import SamplingParams

CONTEXTS = (1_024, 8_192, 32_768, 131_072)
STEPS = 1_000
LIMIT = 16  # draft length asked for
EMITTED = 4  # tokens the target emits per step


def random_text(length: int) -> list[int]:
    """No structure at all: hardly a match."""
    draw = random.Random(1)
    return [draw.randrange(32_000) for _ in range(length)]


def prose_like_text(length: int) -> list[int]:
    """Words with Zipf frequencies, and now and then a phrase that was there before."""
    draw = random.Random(2)
    words = range(1, 20_001)
    fresh = draw.choices(words, [1 / word for word in words], k=length)
    text: list[int] = []
    while len(text) < length:
        text += fresh[len(text) : len(text) + draw.randrange(5, 40)]
        start = draw.randrange(len(text))
        text += text[start : start + draw.randrange(2, 20)]
    return text[:length]


def two_letter_text(length: int) -> list[int]:
    """Two tokens at random: every place is matched, at many lengths, and the votes split."""
    draw = random.Random(3)
    return [draw.randrange(2) for _ in range(length)]


def repeated_phrase_text(length: int) -> list[int]:
    """One phrase of 7 tokens over and over."""
    return [token % 7 for token in range(length)]


def equal_text(length: int) -> list[int]:
    """One token over and over."""
    return [5] * length


KINDS: dict[str, Callable[[int], list[int]]] = {
    "random": random_text,
    "prose-like": prose_like_text,
    "two letters": two_letter_text,
    "repeated phrase": repeated_phrase_text,
    "all equal": equal_text,
}


def measure(text: list[int], context: int) -> tuple[float, list[float]]:
    """Seconds of `begin` on the first `context` tokens, and of every step over the rest."""
    drafter = NgramDrafter()
    start = time.perf_counter()
    drafter.begin(0, text[:context], SamplingParams(seed=0))
    begun = time.perf_counter() - start
    steps = []
    for at in range(context, len(text), EMITTED):
        emitted = text[at : at + EMITTED]
        start = time.perf_counter()
        drafter.propose({0: LIMIT})
        drafter.observe(0, emitted)
        steps.append(time.perf_counter() - start)
    return begun, steps


def main() -> None:
    print(f"n-gram lookup: limit {LIMIT}, {EMITTED} tokens emitted per step, {STEPS} steps\n")
    print(f"{'text':<16} {'context':>8} {'median us':>10} {'p99 us':>8} {'begin ms':>9}")
    for kind, make in KINDS.items():
        for context in CONTEXTS:
            begun, steps = measure(make(context + STEPS * EMITTED), context)
            median = statistics.median(steps) * 1e6
            high = statistics.quantiles(steps, n=100)[98] * 1e6
            print(f"{kind:<16} {context:>8} {median:>10.1f} {high:>8.1f} {begun * 1e3:>9.1f}")


if __name__ == "__main__":
    main()
