"""Tries a policy on recorded traces: the real scheduler and drafters on a machine that counts.

    python -m benchmarks.replay --traces FILE --target Q4_K_M-x8 --draft Q4_0

Target and draft model are replaced by ones that know the record and cost virtual time, taken from
the cost curves of --target and --draft on this machine, which need not be those that were
recorded. What a policy would gain is known in seconds. The hindsight rows choose every draft
knowing what will be accepted: no policy can do better with the same drafts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.laboratory import Laboratory
from benchmarks.lossless import file_of
from benchmarks.traces import Proposal, Trace, load_traces
from edgespec.catalog.hardware import physical_cores
from edgespec.decoding.adaptive import Adaptive
from edgespec.decoding.calibration import DRAFT_WIDTHS, TARGET_WIDTHS
from edgespec.decoding.costs import CostCurve, LiveCosts
from edgespec.decoding.knowledge import Knowledge
from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.measuring import Measuring
from edgespec.protocols import Drafter, DraftPolicy, Logits, Row
from edgespec.types import SamplingParams, Step


@dataclass(slots=True)
class Machine:
    """Time as the cost curves have it. rebuild: seconds that a pass takes longer after one of
    another width."""

    target: CostCurve
    draft: CostCurve | None = None
    rebuild: float = 0.0
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class _Replay:
    """A TokenModel for one sequence that costs time by a curve."""

    max_sequences = 1
    max_rows = 512
    rewind_depth = math.inf

    def __init__(self, machine: Machine, curve: CostCurve, n_vocab: int, n_ctx: int) -> None:
        self.n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.held: list[int] = []
        self._machine = machine
        self._curve = curve
        self._width = 0

    def decode(self, rows: Sequence[Row]) -> Logits:
        width = len(rows)
        self._machine.now += self._curve.at(width) + self._machine.rebuild * (width != self._width)
        self._width = width
        logits = []
        for row in rows:
            assert row.position == len(self.held)
            self.held.append(row.token)
            if row.want_logits:
                logits.append(self._logits())
        return np.array(logits, np.float32).reshape(len(logits), self.n_vocab)

    def rewind(self, sequence: int, length: int) -> None:
        del self.held[length:]

    def drop(self, sequence: int) -> None:
        self.held.clear()

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        raise NotImplementedError("there is one sequence")

    def abort(self) -> None: ...

    def allow(self) -> None: ...

    def _logits(self) -> Logits:
        raise NotImplementedError


class _ReplayTarget(_Replay):
    """Writes the recorded answer."""

    def __init__(self, machine: Machine, stream: Sequence[int], n_vocab: int) -> None:
        super().__init__(machine, machine.target, n_vocab, len(stream) + 64)
        self._stream = list(stream)

    def _logits(self) -> Logits:
        length = len(self.held)
        known = length < len(self._stream) and self.held == self._stream[:length]
        return _sure_of(self._stream[length] if known else 0, 1.0, self.n_vocab)


class _ReplayDraft(_Replay):
    """Proposes as recorded, also along its own proposals; off that path it is unsure."""

    def __init__(
        self, machine: Machine, prompt: int, stream: Sequence[int],
        proposals: Sequence[Proposal], n_vocab: int,
    ) -> None:  # fmt: skip
        assert machine.draft is not None
        super().__init__(machine, machine.draft, n_vocab, len(stream) + 64)
        self._prompt = prompt
        self.start = 0  # where in the stream its memory begins
        self._stream = list(stream)
        self._proposals = proposals

    def _logits(self) -> Logits:
        return _sure_of(*self._guess(), self.n_vocab)

    def _guess(self) -> tuple[int, float]:
        held = [*self._stream[: self.start], *self.held]
        length = len(held)
        good = next(
            (i for i in range(length) if i >= len(self._stream) or held[i] != self._stream[i]),
            length,
        )
        # From the nearest place from which what is held since was proposed.
        for start in range(good, max(self._prompt, good - 8), -1):
            index = start - self._prompt - 1
            if not 0 <= index < len(self._proposals):
                continue
            proposal = self._proposals[index]
            beyond = length - start
            if beyond < len(proposal.tokens) and proposal.tokens[:beyond] == tuple(held[start:]):
                return proposal.tokens[beyond], proposal.confidence[beyond]
        return 0, 0.3


class _Windowed(ModelDrafter):
    """Tells the record where the draft model's memory begins."""

    _model: _ReplayDraft

    def _skip(self, sequence: int) -> None:
        super()._skip(sequence)
        self._model.start = self._mirrors[sequence].start


def _sure_of(token: int, confidence: float, n_vocab: int) -> Logits:
    """Logits whose best is `token`, with that probability."""
    row = np.full(n_vocab, -50.0, np.float32)
    confidence = min(max(confidence, 2.0 / n_vocab), 1.0)
    others = math.ceil((1.0 - confidence) / confidence) + 1
    if confidence < 1.0:
        rest = [other for other in range(others + 1) if other != token][:others]
        row[rest] = math.log((1.0 - confidence) / others)
    row[token] = math.log(confidence)
    return row


@dataclass(slots=True)
class Outcome:
    """What one trace took: seconds of decoding, and the Steps."""

    trace: Trace
    seconds: float
    steps: list[Step] = field(repr=False)


def replay(
    traces: Sequence[Trace],
    machine: Machine,
    policy: DraftPolicy,
    drafters: Sequence[str],
    window: int = 0,
) -> list[Outcome]:
    """Run `policy` over the traces one after the other; it may learn from one for the next."""
    return [_answer(trace, machine, policy, drafters, window) for trace in traces]


def _answer(
    trace: Trace, machine: Machine, policy: DraftPolicy, names: Sequence[str], window: int
) -> Outcome:
    ids: dict[int, int] = {}
    stream = [ids.setdefault(token, len(ids)) for token in (*trace.prompt, *trace.answer)]
    proposals = [
        Proposal(tuple(ids.setdefault(t, len(ids)) for t in p.tokens), p.confidence)
        for p in trace.proposals
    ]
    n_vocab = max(len(ids), 64)
    target = _ReplayTarget(machine, stream, n_vocab)
    drafters: dict[str, Drafter] = {}
    if "n-gram" in names:
        drafters["n-gram"] = NgramDrafter()
    if "model" in names:
        draft = _ReplayDraft(machine, len(trace.prompt), stream, proposals, n_vocab)
        drafters["model"] = _Windowed(draft, n_vocab, window=window)
    scheduler = Scheduler(target, drafters, policy, machine)
    request = Request(
        id=0,
        prompt=tuple(stream[: len(trace.prompt)]),
        params=SamplingParams(temperature=0.0),
        max_tokens=len(trace.answer),
        ends=lambda token: False,
    )
    scheduler.submit(request)
    steps: list[Step] = []
    began = machine.now
    while scheduler.busy:
        made = scheduler.step()
        if made[0].prefilled:
            began = machine.now
        steps += made
    written = [token for step in steps for token in step.tokens]
    assert written == stream[len(trace.prompt) :], "the scheduler changed the answer"
    return Outcome(trace, machine.now - began, steps)


def speedups(outcomes: Sequence[Outcome], plain: Sequence[Outcome]) -> Mapping[str, float]:
    """Geometric means of plain seconds over seconds, per category and for "all"."""
    logs: dict[str, list[float]] = {}
    for outcome, base in zip(outcomes, plain, strict=True):
        ratio = math.log(base.seconds / outcome.seconds)
        for key in ("all", outcome.trace.category):
            logs.setdefault(key, []).append(ratio)
    return {key: math.exp(sum(values) / len(values)) for key, values in logs.items()}


def hindsight(trace: Trace, machine: Machine, drafters: Sequence[str]) -> float:
    """Seconds of an answer with every draft chosen knowing what will be accepted.

    No policy can beat it with these drafts; reading the prompt with the draft model is free here.
    """
    answer, count = trace.answer, len(trace.answer)
    copier = NgramDrafter()
    copier.begin(0, trace.prompt, SamplingParams(seed=0))
    lengths: list[dict[str, int]] = []
    for at in range(count - 1):
        copier.observe(0, answer[at : at + 1])
        drafts = {}
        if "n-gram" in drafters and (draft := copier.propose({0: 32}).get(0)):
            drafts["n-gram"] = draft.tokens
        if "model" in drafters and trace.proposals:
            drafts["model"] = trace.proposals[at].tokens
        lengths.append({name: _stands(tokens, answer[at + 1 :]) for name, tokens in drafts.items()})
    best = [0.0] * count  # seconds from the token at this place to the end
    for at in range(count - 2, -1, -1):
        best[at] = machine.target.at(1) + best[at + 1]
        for name, length in lengths[at].items():
            for v in range(1, min(length, count - 2 - at) + 1):
                seconds = machine.target.at(v + 1)
                if name == "model":
                    assert machine.draft is not None
                    seconds += v * machine.draft.at(1)
                best[at] = min(best[at], seconds + best[at + v + 1])
    return best[0]


def _stands(draft: Sequence[int], truth: Sequence[int]) -> int:
    pairs = zip(draft, truth, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), len(draft))


def compare(traces: Sequence[Trace], machine: Callable[[], Machine], window: int) -> None:
    """Print speed-ups over plain decoding, of fixed choices, the adaptive policy and hindsight."""
    has_draft = machine().draft is not None and any(trace.proposals for trace in traces)
    names = ("n-gram", "model") if has_draft else ("n-gram",)
    plain = replay(traces, machine(), Fixed(0, ""), ())
    categories = ["all", *dict.fromkeys(trace.category for trace in traces)]
    print(f"{'':18}" + "".join(f"{category:>12}" for category in categories))

    def show(name: str, found: Mapping[str, float]) -> None:
        print(f"{name:18}" + "".join(f"{found[category]:12.3f}" for category in categories))

    for name in names:
        for k in (1, 2, 3, 4, 5, 6, 7):
            outcomes = replay(traces, machine(), Fixed(k, name), (name,), window)
            show(f"{name} {k}", speedups(outcomes, plain))
    for only in (*names, "") if has_draft else ("",):
        made = machine()
        draft = LiveCosts(made.draft) if made.draft and has_draft else None
        knowledge = Knowledge(LiveCosts(made.target), draft, rebuild=made.rebuild)
        policy = Adaptive(knowledge, clock=made, only=only)
        outcomes = replay(traces, made, policy, names, window)
        show(f"adaptive {only}", speedups(outcomes, plain))
    for some in [(name,) for name in names] + ([names] if has_draft else []):
        logs: dict[str, list[float]] = {}
        for outcome in plain:
            ratio = outcome.seconds / hindsight(outcome.trace, machine(), some)
            for key in ("all", outcome.trace.category):
                logs.setdefault(key, []).append(math.log(ratio))
        bound = {key: math.exp(sum(values) / len(values)) for key, values in logs.items()}
        show(f"hindsight {'+'.join(some)}"[:18], bound)


def measured(target: str, draft: str | None) -> Callable[[], Machine]:
    """Machines with the costs of these models here, measured once."""
    measuring = Measuring(threads=physical_cores(), gpu_layers=None, report=lambda what, done: None)
    lab = Laboratory(
        file_of(target), file_of(draft) if draft else None, repack=False, mixed_cache=True
    )
    costs = measuring.costs(lab.model, lab.context, TARGET_WIDTHS)
    draft_curve = None
    if lab.draft_model and lab.draft_context:
        draft_curve = measuring.costs(lab.draft_model, lab.draft_context, DRAFT_WIDTHS).curve
    lab.close()
    return lambda: Machine(costs.curve, draft_curve, rebuild=costs.rebuild)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--window", type=int, default=0, help="see ModelDrafter")
    chosen = parser.parse_args()
    compare(load_traces(chosen.traces), measured(chosen.target, chosen.draft), chosen.window)


if __name__ == "__main__":
    main()
