"""The sentence a run ends with: every case, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.bench.judging.summary import summarise
from edgespec.bench.judging.verdict import verdict_sentence
from edgespec.bench.records import Interval, Summary
from tests.bench_records import baseline_summary, cells, summary

OFF = baseline_summary()
UNKNOWN: dict[str, Any] = {"speedup": None, "verdict": "not enough data"}


def judged(value: float, verdict: str, **overrides: Any) -> Summary:
    speedup = Interval(value=value, low=value - 0.1, high=value + 0.1)
    return summary(**{"speedup": speedup, "verdict": verdict, **overrides})


def category(name: str, value: float, verdict: str) -> Summary:
    return judged(value, verdict, category=name)


FASTER = judged(1.42, "faster")


@pytest.mark.parametrize(
    ("summaries", "sentence"),
    [
        (
            [
                OFF,
                FASTER,
                category("chat", 0.95, "slower"),
                category("code-write", 1.6, "faster"),
                category("code-edit", 1.9, "faster"),
                category("reason", 1.1, "not enough data"),
                category("extract", 1.0, "same"),
            ],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed; it pays for code-edit (1.90x), "
            "code-write (1.60x) and does not for extract (1.00x), chat (0.95x); "
            "not enough data for reason.",
        ),
        (
            [OFF, FASTER, category("a", 1.4, "not enough data"), category("b", 1.4, "faster")],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed; it pays for b (1.40x); "
            "not enough data for a.",
        ),
        (
            [OFF, FASTER, *(category(name, 1.4, "not enough data") for name in "ab")],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed; "
            "no category has enough data of its own.",
        ),
        (
            [OFF, FASTER, category("only", 1.42, "faster")],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed.",
        ),
        (
            [
                OFF,
                judged(0.85, "slower"),
                category("a", 0.8, "slower"),
                category("b", 0.9, "slower"),
            ],
            "auto decodes at 0.85x [0.75, 0.95] of plain speed, slower; "
            "it does not pay for b (0.90x), a (0.80x).",
        ),
        (
            [OFF, judged(1.0, "same")],
            "auto decodes at 1.00x [0.90, 1.10] of plain speed, the same within 3%.",
        ),
        (
            [OFF, judged(1.1, "not enough data", prompts=1)],
            "Not enough data to judge auto: 1.10x [1.00, 1.20] of plain speed over 1 prompt; "
            "more of them, or more repetitions, would tell.",
        ),
        (
            [OFF, FASTER, judged(1.45, "faster", mode="k=2"), judged(1.6, "faster", mode="k=4")],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed; k=4 was faster (1.60x).",
        ),
        (
            [OFF, FASTER, judged(1.6, "not enough data", mode="k=4")],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed.",
        ),
        (
            [OFF, FASTER, judged(1.45, "faster", mode="k=2")],
            "auto decodes at 1.42x [1.32, 1.52] of plain speed.",
        ),
        (
            [OFF, judged(1.2, "faster", mode="k=2"), judged(1.3, "faster", mode="n-gram:3")],
            "n-gram:3, the fastest of 2 modes, decodes at 1.30x [1.20, 1.40] of plain speed.",
        ),
        (
            [OFF, judged(1.2, "faster", mode="k=2"), judged(3.0, "faster", mode="native")],
            "k=2 decodes at 1.20x [1.10, 1.30] of plain speed.",
        ),
        (
            [OFF, judged(1.0, "same", mode="off (2)")],
            "off (2) decodes at 1.00x [0.90, 1.10] of plain speed, the same within 3%.",
        ),
        (
            [OFF, summary(mode="native", speedup=Interval(value=1.25, low=1.0, high=2.0))],
            "off decodes at 0.80x [0.50, 1.00] of the speed of native, llama.cpp's own loop; "
            "no mode with speculation was run.",
        ),
        ([OFF], "off decodes at 10.0 tokens/s; nothing to compare it with was measured."),
        (
            [summary(mode="native", speedup=None)],
            "native decodes at 16.0 tokens/s; nothing to compare it with was measured.",
        ),
        ([], "Nothing was measured."),
        ([baseline_summary(decode_tps=None, prompts=0)], "Nothing was measured."),
        (
            [summary(**UNKNOWN)],
            "There is no speed-up to judge: plain decoding (off) was not measured.",
        ),
        (
            [baseline_summary(prompts=0), summary(**UNKNOWN)],
            "There is no speed-up to judge: plain decoding (off) was not measured.",
        ),
        (
            [OFF, summary(prompts=0, **UNKNOWN)],
            "There is no speed-up to judge: no prompt succeeded in mode auto.",
        ),
        (
            [OFF, summary(prompts=1, **UNKNOWN)],
            "Not enough data to judge auto: a speed-up needs two prompts or more that succeeded "
            "in both modes.",
        ),
    ],
)
def test_sentences(summaries: list[Summary], sentence: str) -> None:
    assert verdict_sentence(summaries) == sentence
    assert sentence.isascii()


def test_the_sentence_of_made_up_cells() -> None:
    assert verdict_sentence(summarise(cells(), ["off", "auto"])) == (
        "auto decodes at 1.60x [1.60, 1.60] of plain speed; "
        "it pays for code-write (1.60x), chat (1.60x)."
    )
