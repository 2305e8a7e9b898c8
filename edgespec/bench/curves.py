"""Measures what passes of the target and of the draft model cost, before anything else is run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from edgespec.bench.journal import Curves
from edgespec.bench.records import Curve
from edgespec.bench.subject import Subject
from edgespec.decoding.calibration import WIDTHS, Measurement
from edgespec.decoding.costs import CostCurve
from edgespec.drafters.model import CATCH_UP
from edgespec.protocols import TokenModel

DEPTH, SHALLOW = 512, 64
_ROUNDS = 12
_AT_LEAST = 2
# The draft model passes one token at a time, two after a draft that was accepted whole, and
# reads prompts in pieces.
_DRAFT_WIDTHS = (1, 2, CATCH_UP)

Report = Callable[[str, float], None]


def measure_curves(
    subject: Subject,
    texts: Sequence[str],
    *,
    limit_s: float,
    clock: Callable[[], float],
    report: Report,
) -> Curves:
    """Both curves on real text, in `limit_s` seconds or what two rounds take."""
    tokens = _tokens(subject, texts, DEPTH + max(*WIDTHS, *_DRAFT_WIDTHS))

    def measured(what: str, model: TokenModel, widths: Sequence[int]) -> Curve:
        return _measure(what, model, tokens, widths, limit_s, clock, report)

    def both() -> Curves:
        target = measured("cost curve of the target", subject.target, WIDTHS)
        draft = None
        if subject.draft is not None:
            draft = measured("cost of the draft model", subject.draft, _DRAFT_WIDTHS)
        return Curves(target=target, draft=draft)

    return subject.engine.exclusively(both)


def _measure(
    what: str,
    model: TokenModel,
    tokens: Sequence[int],
    widths: Sequence[int],
    limit_s: float,
    clock: Callable[[], float],
    report: Report,
) -> Curve:
    began = clock()
    known = [min(token, model.n_vocab - 1) for token in tokens]
    deep, shallow = [
        Measurement(model, known, depth=depth, widths=widths, clock=clock)
        for depth in (DEPTH, SHALLOW)
    ]
    report(what, 0.0)
    for done in range(1, _ROUNDS + 1):
        for measurement in (deep, shallow):
            deque(measurement.rounds(1), maxlen=0)
        report(what, done / _ROUNDS)
        spent = clock() - began
        if done >= _AT_LEAST and spent * (done + 1) / done > limit_s:
            break
    report(what, 1.0)
    return _as_record(deep.curve(), shallow.curve())


def as_cost_curve(curve: Curve) -> CostCurve:
    """The record as what can be asked for T(n)."""
    return CostCurve(
        curve.depth,
        dict(zip(curve.widths, curve.seconds, strict=True)),
        dict(zip(curve.widths, curve.spread, strict=True)),
        dict(zip(curve.widths, curve.growth, strict=False)),
    )


def _as_record(deep: CostCurve, shallow: CostCurve) -> Curve:
    growth = []
    if further := deep.depth - shallow.depth:
        growth = [(s - shallow.seconds[n]) / further for n, s in deep.seconds.items()]
    return Curve(
        depth=deep.depth,
        widths=list(deep.seconds),
        seconds=list(deep.seconds.values()),
        spread=[deep.spread[width] for width in deep.seconds],
        growth=growth,
    )


def _tokens(subject: Subject, texts: Sequence[str], count: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < count:
        for text in texts:
            tokens += subject.tokenizer.tokenize(text, add_special=False, parse_special=False)
            if len(tokens) >= count:
                break
        if not tokens:
            raise ValueError("the texts have no tokens")
    return tokens[:count]
