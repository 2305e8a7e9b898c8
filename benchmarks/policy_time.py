"""What deciding costs: `python -m benchmarks.policy_time --traces FILE --target Q8_0 --draft Q4_0`.

Replays recorded traces (benchmarks.traces) and prints the microseconds the adaptive policy itself
takes per step, its drafters not counted: median, mean and 99th percentile. The budget is 50 us.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.replay import measured, replay
from benchmarks.traces import load_traces
from edgespec.decoding.adaptive import Adaptive
from edgespec.decoding.costs import LiveCosts
from edgespec.decoding.knowledge import Knowledge
from edgespec.protocols import Drafter, More, Plan
from edgespec.types import Draft, SamplingParams, Step


class Watched:
    """A drafter whose own time, less what it asks the policy, is added up."""

    def __init__(self, drafter: Drafter, watch: Watch) -> None:
        self._drafter = drafter
        self._watch = watch
        self.name, self.copies = drafter.name, drafter.copies

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> Mapping[int, Draft]:
        began, asked = time.perf_counter(), 0.0

        def timed(sequence: int, tokens: Sequence[int], confidence: Sequence[float]) -> bool:
            nonlocal asked
            started = time.perf_counter()
            answer = more is None or more(sequence, tokens, confidence)
            asked += time.perf_counter() - started
            return answer

        drafts = self._drafter.propose(limits, timed)
        self._watch.drafting += time.perf_counter() - began - asked
        return drafts

    def after(self, sequence: int, tail: Sequence[int], limit: int) -> Draft | None:
        began = time.perf_counter()
        draft: Draft | None = self._drafter.after(sequence, tail, limit)  # type: ignore[attr-defined]
        self._watch.drafting += time.perf_counter() - began
        return draft

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        self._drafter.begin(sequence, tokens, params)

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        self._drafter.observe(sequence, emitted)

    def unread(self, sequence: int) -> int:
        return self._drafter.unread(sequence)

    def knows_all(self, sequence: int) -> bool:
        return self._drafter.knows_all(sequence)

    def end(self, sequence: int) -> None:
        self._drafter.end(sequence)

    def forget(self) -> None:
        self._drafter.forget()


class Watch:
    """An adaptive policy with a stop watch."""

    def __init__(self, policy: Adaptive) -> None:
        self._policy = policy
        self.drafting = 0.0
        self.seconds: list[float] = []

    def plan(
        self, room: Mapping[int, int], drafters: Mapping[str, Drafter], others: int
    ) -> Mapping[int, Plan]:
        watched = {name: Watched(drafter, self) for name, drafter in drafters.items()}
        self.drafting = 0.0
        began = time.perf_counter()
        plans = self._policy.plan(room, watched, others)
        self.seconds.append(time.perf_counter() - began - self.drafting)
        return plans

    def observe(self, steps: Sequence[Step]) -> None:
        began = time.perf_counter()
        self._policy.observe(steps)
        if self.seconds and not steps[0].prefilled:
            self.seconds[-1] += time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    chosen = parser.parse_args()
    machine = measured(chosen.target, chosen.draft)()
    draft = LiveCosts(machine.draft) if machine.draft else None
    watch = Watch(Adaptive(Knowledge(LiveCosts(machine.target), draft), clock=machine))
    names = ("n-gram", "model") if draft else ("n-gram",)
    replay(load_traces(chosen.traces), machine, watch, names, window=64)
    micros = sorted(1e6 * seconds for seconds in watch.seconds)
    last = micros[int(0.99 * len(micros))]
    print(f"{len(micros)} steps, us a step: median {statistics.median(micros):.0f}, ", end="")
    print(f"mean {statistics.mean(micros):.0f}, 99th percentile {last:.0f}")


if __name__ == "__main__":
    main()
