"""One running generation: its tokens, how much of them the model's memory holds, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgespec.decoding.sampling import Sampler
from edgespec.protocols import DraftPolicy
from edgespec.types import FinishReason, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller wants generated. `params.seed` is set.

    ends: asked once for every emitted token, in order; True ends the answer with that token.
    policy: decides on this request's drafts; None for the scheduler's policy.
    prediction: what the answer is expected to be, for drafts. logprobs: report those of every
    token, with so many of the best beside it; None for none. prompt_logprobs: those of the
    prompt's tokens as well, which are all read anew for that. cache_prompt: use what is in memory.
    """

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    ends: Callable[[int], bool]
    policy: DraftPolicy | None = None
    prediction: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: bool = False
    cache_prompt: bool = True


class Running:
    """A request at work, in one slot of the model's memory unless it waits for one.

    tokens: prompt and what was emitted. kept: how many of them are in memory; all but the last
    while decoding, fewer while the prompt is read. begun: a pass was made for it. cached: how many
    tokens of the prompt were there before. scored: for how many of the prompt's tokens after the
    first the log-probability was reported.
    """

    def __init__(self, request: Request, n_ctx: int) -> None:
        self.request = request
        self.slot = -1
        self.tokens = list(request.prompt)
        self.cached = 0
        self.kept = 0
        self.begun = False
        self.scored = 0
        self.sampler = Sampler(request.params)
        self._end = min(len(self.tokens) + request.max_tokens, n_ctx)
        self._n_ctx = n_ctx

    def enter(self, slot: int, cached: int) -> None:
        """Run in `slot`, which holds so many of the tokens."""
        self.slot, self.kept = slot, cached
        if not self.begun:  # else it goes on after being parked
            self.cached = cached

    @property
    def unscored(self) -> bool:
        """Whether log-probabilities of the prompt are still to be reported."""
        return self.request.prompt_logprobs and self.scored < len(self.request.prompt) - 1

    @property
    def pending(self) -> int:
        """Tokens that are not in memory yet; 1 while decoding."""
        return len(self.tokens) - self.kept

    @property
    def room(self) -> int:
        """Tokens that may still be emitted."""
        return self._end - len(self.tokens)

    def finish_reason(self, ended: bool) -> FinishReason | None:
        """Why the sequence is over after its last token, None when it is not."""
        if ended:
            return "stop"
        if self.room > 0:
            return None
        return "context" if len(self.tokens) >= self._n_ctx else "length"


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    low, high = 0, length  # first[:low] is equal, first[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
