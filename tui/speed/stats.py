"""The figures on the screen, worked out from Steps. Pure: all time is the Steps' own seconds.

DESIGN section 2 and docs/architecture.md say what the words mean.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any, Literal, Self

from edgespec.tui.speed import draw
from edgespec.tui.speed.tally import ENOUGH, POSITIONS, Session, Tally, mean, time_of
from edgespec.types import Completion, Step

_PLAIN_AMONG = 64  # steps that are looked at for plain ones

_CLAIMS = {"identical": "same output as plain", "same distribution": "same distribution"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsView:
    """All figures at one moment; None where nothing is known.

    The answer's own unless they say session. plain_s, step_s: seconds of a plain token and of a
    step. rates: tokens per second in half seconds. positions: (accepted, drafted) by place in the
    draft. break_even: the acceptance at which drafting neither gains nor loses. k: asked for by
    the last step; ks: what was drafted. drafter: of the last step, "" when it was plain.
    """

    generating: bool = False
    tokens: int = 0
    steps: int = 0
    rate: float | None = None
    mean_rate: float | None = None
    peak_rate: float | None = None
    rates: tuple[float, ...] = ()
    plain_s: float | None = None
    step_s: float | None = None
    speedup: float | None = None
    measured: bool = False
    ttft_s: float | None = None
    prefill_rate: float | None = None
    prompt_tokens: int = 0
    cached: int = 0
    prefilled: int = 0
    drafted: int = 0
    accepted: int = 0
    acceptance: float | None = None
    tokens_per_step: float | None = None
    positions: tuple[tuple[int, int], ...] = ((0, 0),) * POSITIONS
    break_even: float | None = None
    k: int | None = None
    ks: tuple[int, ...] = ()
    drafter: str = ""
    reason: str = ""
    draft_s: float | None = None
    verify_s: float | None = None
    rest_s: float | None = None
    last_drafted: int = 0
    last_accepted: int = 0
    context_used: int = 0
    n_ctx: int = 0
    turns: int = 0
    session_tokens: int = 0
    session_speedup: float | None = None
    saved_s: float = 0.0

    @property
    def reading(self) -> bool:
        """Whether the prompt is still being read."""
        return self.generating and not self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStats:
    """What is kept with an answer. drafters: those that drafted."""

    tokens: int = 0
    rate: float | None = None
    speedup: float | None = None
    measured: bool = False
    acceptance: float | None = None
    ttft_s: float | None = None
    seed: int | None = None
    drafters: tuple[str, ...] = ()
    claim: Literal["identical", "same distribution"] = "same distribution"

    def line(self, glyphs: draw.Glyphs = draw.UNICODE) -> str:
        """Under an answer; what is not known is left out."""
        how = "measured" if self.measured else "est"
        parts = (
            (self.rate, f"{draw.rate(self.rate, glyphs)} tok/s"),
            (self.speedup, f"{draw.speedup(self.speedup, glyphs)} {how}"),
            (self.acceptance, f"{draw.percent(self.acceptance, glyphs)} accepted"),
            (self.tokens or None, f"{draw.tokens(self.tokens, glyphs)} tok"),
            (self.ttft_s, f"ttft {draw.seconds(self.ttft_s, glyphs)}"),
            (self.rate, _CLAIMS[self.claim]),
        )
        return f" {glyphs.dot} ".join(text for value, text in parts if value is not None)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        return asdict(self) | {"drafters": list(self.drafters)}

    @classmethod
    def from_dict(cls, kept: Any) -> Self:
        """What was kept by `to_dict`. Never raises: values that are not usable are left out."""
        if not isinstance(kept, Mapping):
            return cls()
        read = {name: _USABLE[name](kept.get(name)) for name in (f.name for f in fields(cls))}
        return cls(**{name: value for name, value in read.items() if value is not None})


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 2**64 else None


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable and 0 <= value < 1e18 else None


def _names(value: Any) -> tuple[str, ...] | None:
    listed = isinstance(value, list | tuple)
    return tuple(name for name in value if isinstance(name, str)) if listed else None


_USABLE: Mapping[str, Callable[[Any], Any]] = {
    "tokens": _count,
    "rate": _number,
    "speedup": _number,
    "measured": lambda value: value is True,
    "acceptance": _number,
    "ttft_s": _number,
    "seed": _count,
    "drafters": _names,
    "claim": lambda value: value if isinstance(value, str) and value in _CLAIMS else None,
}


class StatsModel:
    """Takes the Steps of answer after answer. `begin`, `add`..., `end`, and perhaps `compared`."""

    def __init__(self, n_ctx: int) -> None:
        self._n_ctx = n_ctx
        self._generating = False
        self._answer = Tally()
        self._measured: float | None = None
        self._earlier = Session()
        self._context_used = 0
        self._expected_s: float | None = None
        self._plain: list[float] = []  # seconds of the plain steps of this answer
        # And of the steps of all answers, None for those that were not plain.
        self._lately: deque[float | None] = deque(maxlen=_PLAIN_AMONG)

    def begin(self, prompt_tokens: int = 0) -> None:
        """A new answer. prompt_tokens: 0 when not known; the first Step tells as well."""
        self.end(None)
        self._earlier = self._session()
        self._answer = Tally(prompt_tokens)
        self._measured = None
        self._plain = []
        self._context_used = prompt_tokens or self._context_used
        self._generating = True

    def add(self, step: Step) -> None:
        """One more Step of the answer, in order."""
        self._context_used = step.position + len(step.tokens)
        if not step.prefilled:
            plain = not step.drafted and len(step.tokens) == 1
            # Without what it may have cost to find no draft: plain decoding does not look.
            seconds = time_of(step) - max(step.draft_s, 0.0)
            self._plain += [seconds] if plain else []
            self._lately.append(seconds if plain else None)
        self._answer.add(step)

    def end(self, completion: Completion | None) -> None:
        """The answer is over; None when there is no Completion, after a failure."""
        self._generating = False
        if completion is None:
            return
        answer = self._answer
        answer.prompt_tokens = completion.usage.prompt_tokens or answer.prompt_tokens
        answer.cached = completion.usage.cached_tokens
        if answer.tokens:
            answer.ttft_s = completion.time_to_first_token_s

    def expect_plain(self, token_s: float | None) -> None:
        """Seconds of a plain token by the engine's cost curve, until enough were seen."""
        self._expected_s = token_s if token_s and 0 < token_s < math.inf else None

    def compared(self, speedup: float) -> None:
        """Measured for this answer, against the same one without drafts.

        When this one had no drafts, it was made for the comparison, and is no turn.
        """
        if 0 < speedup < math.inf:
            self._measured = speedup

    def answer(self, completion: Completion) -> AnswerStats:
        """What to keep with the answer that has just ended."""
        answer = self._answer
        return AnswerStats(
            tokens=completion.usage.completion_tokens,
            rate=answer.mean_rate,
            speedup=self._speedup(),
            measured=self._measured is not None,
            acceptance=answer.acceptance,
            ttft_s=answer.ttft_s,
            seed=completion.seed,
            drafters=tuple(answer.drafters),
            claim=completion.claim,
        )

    def view(self) -> StatsView:
        """All figures as of now."""
        answer, last = self._answer, self._answer.last
        told = answer.steps >= ENOUGH or not self._generating
        session = self._session()
        draft_s, verify_s, rest_s = answer.parts()
        return StatsView(
            generating=self._generating,
            tokens=answer.tokens,
            steps=answer.steps,
            rate=answer.speed.rate,
            mean_rate=answer.mean_rate,
            peak_rate=answer.peak_rate,
            rates=tuple(answer.speed.cells),
            plain_s=self._plain_s(),
            step_s=answer.step_s,
            speedup=self._speedup(),
            measured=self._measured is not None,
            ttft_s=answer.ttft_s,
            prefill_rate=mean(answer.prefilled, answer.read_s),
            prompt_tokens=answer.prompt_tokens,
            cached=answer.cached,
            prefilled=answer.prefilled,
            drafted=answer.drafted,
            accepted=answer.accepted,
            acceptance=answer.acceptance if told else None,
            tokens_per_step=answer.tokens_per_step if told else None,
            positions=answer.positions(),
            break_even=self._break_even() if told else None,
            k=last.k if last else None,
            ks=tuple(step.drafted for step in answer.recent),
            drafter=last.drafter if last else "",
            reason=last.reason if last else "",
            draft_s=draft_s,
            verify_s=verify_s,
            rest_s=rest_s,
            last_drafted=last.drafted if last else 0,
            last_accepted=last.accepted if last else 0,
            context_used=self._context_used,
            n_ctx=self._n_ctx,
            turns=session.turns,
            session_tokens=session.tokens,
            session_speedup=mean(session.weighted, session.weight),
            saved_s=session.saved_s,
        )

    def _session(self) -> Session:
        """With this answer, when it is over."""
        for_comparison = self._measured is not None and not self._answer.drafted
        if self._generating or for_comparison:
            return self._earlier
        return self._earlier.plus(self._answer, self._speedup())

    def _plain_s(self) -> float | None:
        """As long as this answer's took, or those before it: a machine is faster and slower from
        minute to minute, and what is compared must be of the same minutes."""
        seen = self._plain
        if len(seen) < ENOUGH:
            seen = [seconds for seconds in self._lately if seconds is not None]
        if len(seen) < ENOUGH:
            return self._expected_s
        return fmean(seen) or None

    def _speedup(self) -> float | None:
        """Of the answer: tokens per step x plain token / step."""
        answer, plain_s = self._answer, self._plain_s()
        if self._measured is not None:
            return self._measured
        if plain_s is None or answer.steps < ENOUGH:
            return None
        return mean(answer.decoded * plain_s, answer.decode_s)

    def _break_even(self) -> float | None:
        """With 1 + acceptance x drafted tokens a step, a step may cost as many plain tokens."""
        answer, plain_s = self._answer, self._plain_s()
        if plain_s is None or answer.step_s is None or not answer.drafted:
            return None
        drafted = answer.drafted / answer.steps
        return max((answer.step_s / plain_s - 1) / drafted, 0.0)
