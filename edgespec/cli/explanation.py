"""An explanation of drafts, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgespec.explaining import Explanation


def explanation_lines(explained: Explanation) -> Iterator[str]:
    """The whole explanation."""
    yield ""
    behind = f"behind {explained.depth} tokens" if explained.depth else "at the start of a text"
    yield f"What passes cost {behind} (tokens in the pass, ms, as a multiple of one token's)"
    yield from _costs("target", explained.passes)
    yield from _costs("draft model", explained.draft_passes)
    if explained.chances:
        yield ""
        yield "How often drafted tokens stood, by evidence (share, observations remembered)"
        for chance in explained.chances:
            name = f"{chance.drafter}: {chance.kind}"
            yield f"  {name:<36} {chance.stood:5.2f} {chance.observations:7.0f}"
    if explained.askings:
        yield ""
        yield "What asking the draft model is worth (tokens a step; times asked since loading)"
        for asking in explained.askings:
            times = str(asking.times) if asking.times else "a guess"
            yield f"  {asking.situation:<36} {asking.value:+5.2f} {times:>7}"
    if explained.lengths:
        yield ""
        yield "Tokens drafted per step (length: steps)"
    for name, lengths in explained.lengths.items():
        counts = ", ".join(f"{length}: {steps}" for length, steps in lengths.items())
        yield f"  {name:<16} {counts}"
    yield from _verdict(explained)


def _costs(name: str, passes: Mapping[int, float]) -> Iterator[str]:
    if not passes:
        return
    one = passes[min(passes)]
    for n, seconds in passes.items():
        yield f"  {name:<12} {n:>3} {1e3 * seconds:9.1f} {seconds / one:6.2f}"


def _verdict(explained: Explanation) -> Iterator[str]:
    if explained.choices:
        yield ""
        yield "Seconds of decoding this answer on these costs, had one choice been made for good"
        for name, seconds in sorted(explained.choices.items(), key=lambda entry: entry[1]):
            yield f"  {name:<24} {seconds:8.3f}"
    regret = explained.regret
    if regret is not None:
        words = "more" if regret > 0 else "less"
        yield f"Choosing at every step took {abs(regret):.0%} {words} time than the best of these."
    if explained.draft_passes:
        share = explained.probing_s / max(explained.decoding_s, 1e-9)
        yield f"Probing the draft model took {explained.probing_s:.2f} s, {share:.1%} of decoding."
