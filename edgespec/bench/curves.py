"""Measures what passes of the target and of the draft model cost, before anything else is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgespec.bench.journal import Curves
from edgespec.bench.records import Curve
from edgespec.bench.subject import Subject
from edgespec.decoding.calibration import WIDTHS, Measurement
from edgespec.decoding.costs import CostCurve
from edgespec.drafters.model import CATCH_UP
from edgespec.protocols import TokenModel

DEPTH = 512
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
    measurement = Measurement(model, known, depth=DEPTH, widths=widths, clock=clock)
    report(what, 0.0)
    for done in measurement.rounds(_ROUNDS):
        report(what, done / _ROUNDS)
        spent = clock() - began
        if done >= _AT_LEAST and spent * (done + 1) / done > limit_s:
            break
    report(what, 1.0)
    return _as_record(measurement.curve())


def as_cost_curve(curve: Curve) -> CostCurve:
    """The record as what can be asked for T(n)."""
    return CostCurve(
        curve.depth,
        dict(zip(curve.widths, curve.seconds, strict=True)),
        dict(zip(curve.widths, curve.spread, strict=True)),
    )


def _as_record(curve: CostCurve) -> Curve:
    return Curve(
        depth=curve.depth,
        widths=list(curve.seconds),
        seconds=list(curve.seconds.values()),
        spread=[curve.spread[width] for width in curve.seconds],
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
