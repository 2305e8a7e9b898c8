"""Running sums: over the Steps of one answer, and over the answers of a session. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from statistics import fmean

from edgespec.types import Step

POSITIONS = 9  # of a draft; the last stands for all from there on
ENOUGH = 8  # steps before a ratio is told, and plain ones before their mean counts

_HISTORY = 32  # steps, and cells of the rate's history
_WINDOW_S = 1.5  # of the rate
_CELL_S = 0.5


def time_of(step: Step) -> float:
    """All seconds of a step."""
    return max(step.draft_s + step.verify_s + step.sample_s + step.other_s, 0.0)


def mean(total: float, count: float) -> float | None:
    """None of nothing."""
    return total / count if count else None


class Speed:
    """Tokens per second: lately, and in cells of half a second."""

    def __init__(self) -> None:
        self.cells: deque[float] = deque(maxlen=_HISTORY)
        self._window: deque[tuple[float, int]] = deque()
        self._window_s = 0.0
        self._cell_s = 0.0
        self._cell_tokens = 0.0

    def add(self, seconds: float, tokens: int) -> None:
        """A step. It stays in the window as a whole, or leaves it."""
        self._window.append((seconds, tokens))
        self._window_s += seconds
        while len(self._window) > 1 and self._window_s > _WINDOW_S:
            self._window.popleft()
            # Anew: what differences leave over is little, but a rate divides by it.
            self._window_s = sum(seconds for seconds, _ in self._window)
        self._fill(seconds, tokens)

    def _fill(self, seconds: float, tokens: float) -> None:
        """Cells share the tokens of a step that reaches over their borders."""
        while seconds and seconds >= _CELL_S - self._cell_s:
            part_s = _CELL_S - self._cell_s
            part = tokens * part_s / seconds
            self.cells.append((self._cell_tokens + part) / _CELL_S)
            self._cell_s = self._cell_tokens = 0.0
            seconds, tokens = seconds - part_s, tokens - part
        self._cell_s += seconds
        self._cell_tokens += tokens

    @property
    def rate(self) -> float | None:
        """Over the last 1.5 seconds."""
        return mean(sum(tokens for _, tokens in self._window), self._window_s)


class Tally:
    """One answer.

    tokens: all; decoded: without the one that ends the prompt. steps, decode_s, drafted and
    accepted are of decoding. read_s: seconds spent reading the prompt. ttft_s: engine time to
    the first token, until someone knows better.
    """

    def __init__(self, prompt_tokens: int = 0) -> None:
        self.prompt_tokens = prompt_tokens
        self.cached = self.prefilled = 0
        self.tokens = self.decoded = self.steps = 0
        self.drafted = self.accepted = 0
        self.read_s = self.decode_s = 0.0
        self.ttft_s: float | None = None
        self.peak_rate: float | None = None
        self.drafters: dict[str, None] = {}  # in order of their first draft
        self.recent: deque[Step] = deque(maxlen=_HISTORY)
        self.speed = Speed()
        self._positions = [[0, 0] for _ in range(POSITIONS)]

    def add(self, step: Step) -> None:
        """One more, in order."""
        seconds = time_of(step)
        # A Step of the prompt has all of it before it, and so has the first one that decodes.
        self.prompt_tokens = self.prompt_tokens or step.position
        self.cached = step.cached
        if step.prefilled:
            self.prefilled += step.prefilled
            self.read_s += seconds
        else:
            self._decode(step, seconds)
        self.tokens += len(step.tokens)
        if self.tokens and self.ttft_s is None:
            self.ttft_s = self.read_s + self.decode_s

    def _decode(self, step: Step, seconds: float) -> None:
        self.steps += 1
        self.decoded += len(step.tokens)
        self.decode_s += seconds
        self.drafted += step.drafted
        self.accepted += step.accepted
        self.recent.append(step)
        self.speed.add(seconds, len(step.tokens))
        if self.steps >= ENOUGH and self.speed.rate is not None:
            self.peak_rate = max(self.speed.rate, self.peak_rate or 0.0)
        for i in range(step.drafted):
            place = self._positions[min(i, POSITIONS - 1)]
            place[0] += i < step.accepted
            place[1] += 1
        if step.drafted:
            self.drafters.update(dict.fromkeys(step.drafter.split("+")))

    @property
    def last(self) -> Step | None:
        """The last step that decoded."""
        return self.recent[-1] if self.recent else None

    @property
    def mean_rate(self) -> float | None:
        return mean(self.decoded, self.decode_s)

    @property
    def step_s(self) -> float | None:
        return mean(self.decode_s, self.steps)

    @property
    def tokens_per_step(self) -> float | None:
        return mean(self.decoded, self.steps)

    @property
    def acceptance(self) -> float | None:
        return mean(self.accepted, self.drafted)

    def positions(self) -> tuple[tuple[int, int], ...]:
        """(accepted, drafted) by place in the draft."""
        return tuple((accepted, drafted) for accepted, drafted in self._positions)

    def parts(self) -> tuple[float, float, float] | tuple[None, None, None]:
        """Mean seconds of the last steps: drafting, verifying, and the rest."""
        if not self.recent:
            return None, None, None
        return (
            fmean(step.draft_s for step in self.recent),
            fmean(step.verify_s for step in self.recent),
            fmean(step.sample_s + step.other_s for step in self.recent),
        )


@dataclass(frozen=True, slots=True)
class Session:
    """Some answers. weight: the tokens of those whose speed-up is known."""

    turns: int = 0
    tokens: int = 0
    weight: int = 0
    weighted: float = 0.0
    saved_s: float = 0.0

    def plus(self, answer: Tally, speedup: float | None) -> Session:
        """With one more; one without a token is none."""
        if not answer.tokens:
            return self
        more = replace(self, turns=self.turns + 1, tokens=self.tokens + answer.tokens)
        if speedup is None:
            return more
        return replace(
            more,
            weight=self.weight + answer.tokens,
            weighted=self.weighted + answer.tokens * speedup,
            saved_s=self.saved_s + answer.decode_s * (speedup - 1),
        )
