"""What the words of a report mean; every report carries them."""

from __future__ import annotations

from edgespec.bench.judging.statistics import FASTER, MARGIN, MIN_PROMPTS, RESAMPLES, SLOWER

DEFINITIONS = (
    "plain, mode off: edgespec without a draft, k 0. native: llama.cpp's own loop. auto: edgespec "
    "chooses k. k=N, model:N, n-gram:N: N tokens drafted in every step, by the default drafter, "
    "the draft model, n-grams.",
    "accept, the acceptance rate: accepted / drafted tokens. The bonus token, the target's own "
    "after the last accepted one, is in neither.",
    "tokens/step, the mean acceptance length: (accepted + 1) per step, the bonus token included; "
    "steps without a draft count. Plain decoding has 1.",
    "tok/s: tokens after the first, by the seconds from the first to the last; median over "
    "prompts, of each the median over repetitions.",
    "speed-up: plain's seconds per token / the mode's, while decoding, by the wall clock. Every "
    "prompt is paired with itself, run at about the same time in both modes; geometric mean "
    "over prompts. Above 1 is faster.",
    f"[95 %]: confidence interval, for other prompts of the same kinds: {RESAMPLES} bootstrap "
    "resamples of the prompts within their categories, widened where prompts are few.",
    "predicted, the trace: the same ratio if each step took the seconds that the cost curves say, "
    "which keeps the machine's noise out. What the speed-up falls short of it is overhead, heat "
    "or other programs.",
    "e2e: the same ratio of the seconds from asking to the last token. TTFT: seconds to the first "
    "token, tokenization included. The draft model reads the prompt after the first token: that "
    "counts as decoding.",
    f"verdict: faster or slower if the whole interval is above {FASTER:.2f} or below "
    f"{SLOWER:.2f}; same if all of it is within {MARGIN * 100:.0f} % of 1; else, and below "
    f"{MIN_PROMPTS} prompts, not enough data.",
    "differing answers: those that are not token for token plain's. A near-tie is one where the "
    "target's two best tokens were closer than its own rounding.",
)
