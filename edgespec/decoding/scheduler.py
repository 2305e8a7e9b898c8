"""The loop over all running sequences: draft, one target pass, verify, rewind, hand out Steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgespec.decoding.logprobs import logprob
from edgespec.decoding.sequence import Request, Running
from edgespec.decoding.slots import Slots
from edgespec.decoding.verify import verify
from edgespec.errors import CannotRewindError, ContextFullError, NoRoomError
from edgespec.protocols import Drafter, DraftPolicy, Logits, Plan, Row, TokenModel
from edgespec.types import MAX_DRAFT_TOKENS, NO_DRAFT, TARGET, Step, TokenLogprob

PREFILL_CHUNK = 256
_OLDEST_EVERY = 4  # passes over prompts: the oldest is not put off for ever by shorter ones
_PREFILL = Plan(NO_DRAFT, 0, "reading the prompt")


@dataclass(slots=True)
class _Share:
    """One sequence's part of one pass."""

    running: Running
    plan: Plan
    rows: int
    wants: int  # rows with logits: none inside a prompt, else draft length + 1
    started_at: int
    held_after: int  # what memory holds once the pass succeeded
    emitted: list[int] = field(default_factory=list)
    accepted: int = 0
    ended: bool = False
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def prefilled(self) -> int:
        return self.rows if self.plan is _PREFILL else 0


class Scheduler:
    """Runs requests on one model. Not thread-safe: one thread owns it and its model.

    `clock` returns seconds; it is an argument so that tests are exact.
    `step()` may raise what the model raises; memory is then as before the pass.
    """

    def __init__(
        self,
        model: TokenModel,
        drafters: Mapping[str, Drafter],
        policy: DraftPolicy,
        clock: Callable[[], float],
        prefill_chunk: int = PREFILL_CHUNK,
    ) -> None:
        self._model = model
        self._drafters = drafters
        self.policy = policy
        self._clock = clock
        self._chunk = min(prefill_chunk, model.max_rows)
        self._waiting: deque[Running] = deque()
        self._parked: list[Running] = []  # until somebody who runs is done
        self._running: dict[int, Running] = {}  # by slot
        self.slots = Slots(model)
        self._prompt_passes = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._parked or self._running)

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ContextFullError when its prompt leaves no room."""
        if len(request.prompt) >= self._model.n_ctx:
            raise ContextFullError(
                f"The prompt has {len(request.prompt)} tokens but the context holds "
                f"{self._model.n_ctx}: shorten it or start with a larger --ctx.",
                len(request.prompt),
                self._model.n_ctx,
            )
        self._waiting.append(Running(request, self._model.n_ctx))

    def cancel(self, request_id: int) -> None:
        """Drop a request, running or not; unknown ids are ignored. Call between steps."""
        self._waiting = deque(r for r in self._waiting if r.request.id != request_id)
        self._parked = [r for r in self._parked if r.request.id != request_id]
        for running in list(self._running.values()):
            if running.request.id == request_id:
                self._release(running)

    def step(self) -> list[Step]:
        """One target pass for all running sequences; one Step for each sequence in it."""
        started = self._clock()
        self._admit()
        prompts = self._next_of_a_prompt()
        drafting = self._clock()
        plans = self._plan(sum(prompts.values()))
        drafted = self._clock()
        shares = self._share_out(plans, prompts)
        if not shares:
            return []
        try:
            logits = self._pass(shares)
            decoded = self._clock()
            self._verify(shares, logits)
            verified = self._clock()
        finally:
            self._settle(shares)
        for share in shares:
            if share.emitted:
                for drafter in self._drafters.values():
                    drafter.observe(share.running.slot, share.emitted)
        seconds = (drafted - drafting, decoded - drafted, verified - decoded)
        steps = self._steps(shares, seconds, self._clock() - started)
        self._tell_policies(shares, steps)
        return steps

    def forget(self) -> None:
        """Empty the memory of all slots, so that no prompt finds a prefix. Call while not busy."""
        assert not self.busy, "a running sequence needs its memory"
        self.slots.forget()
        for drafter in self._drafters.values():
            drafter.forget()

    def _admit(self) -> None:
        while self._waiting and self.slots.any_free and not self._parked:
            running = self._waiting.popleft()
            held = {slot: other.tokens[: other.kept] for slot, other in self._running.items()}
            # Whoever wants the logits of the whole prompt has all of it read.
            known = running.tokens[: running.scored + 1] if running.unscored else running.tokens
            if not running.request.cache_prompt:
                known = []
            running.enter(*self.slots.take(known, held))
            self._running[running.slot] = running
            self._begin_drafting(running)

    def _begin_drafting(self, running: Running) -> None:
        request = running.request
        emitted = running.tokens[len(request.prompt) :]
        for drafter in self._drafters.values():
            drafter.begin(running.slot, request.prompt, request.params, request.prediction)
            if emitted:  # it was parked
                drafter.observe(running.slot, emitted)

    def _pass(self, shares: list[_Share]) -> Logits:
        """Decode. While memory is full, old prefixes are let go, then the latest comers wait.

        Nobody may be left: the others read longer prompts, and go on in the next pass.
        """
        while shares:
            rows = [row for share in shares for row in _rows(share)]
            try:
                if len(rows) > self._model.max_rows and self._park(shares):
                    continue
                return self._model.decode(rows)
            except NoRoomError:
                if not self.slots.evict() and not self._park(shares):
                    raise
        return np.empty((0, self._model.n_vocab), np.float32)

    def _park(self, shares: list[_Share]) -> bool:
        """Take the slot of the latest comer; False when nobody else runs."""
        if len(self._running) < 2:
            return False
        latest = max(self._running.values(), key=lambda running: running.request.id)
        parked, self._parked = [latest, *self._parked], []
        self._release(latest)
        self._parked = parked
        shares[:] = [share for share in shares if share.running is not latest]
        return True

    def _next_of_a_prompt(self) -> dict[int, int]:
        """The slot whose prompt is read in this pass, and how many tokens of it.

        One prompt at a time, in fixed chunks: where a chunk ends must not depend on speculation
        or company, or the same prompt could give other logits. The shortest goes first.
        """
        reading = [running for running in self._running.values() if running.pending > 1]
        if not reading:
            return {}
        self._prompt_passes += 1
        if self._prompt_passes % _OLDEST_EVERY:
            running = min(reading, key=lambda one: one.pending)
        else:
            running = min(reading, key=lambda one: one.request.id)
        chunk = self._chunk
        if running.unscored:  # no more logits fit into one pass
            chunk = min(chunk, MAX_DRAFT_TOKENS + 1)
        return {running.slot: min(running.pending, chunk)}

    def _plan(self, reading: int) -> dict[int, Plan]:
        """A plan for every decoding sequence, by its own policy or the common one."""
        rooms: dict[DraftPolicy, dict[int, int]] = {}
        depth = self._model.rewind_depth
        for slot, running in self._running.items():
            if running.pending == 1:
                # The last token is never drafted.
                most = int(min(running.room - 1, depth))
                rooms.setdefault(self._policy_of(running), {})[slot] = most
        plans: dict[int, Plan] = {}
        rows = reading + sum(map(len, rooms.values()))
        for policy, room in rooms.items():
            made = policy.plan(room, self._drafters, rows - len(room))
            plans.update(made)
            rows += sum(len(plan.draft) for plan in made.values())
        return plans

    def _tell_policies(self, shares: list[_Share], steps: list[Step]) -> None:
        told: dict[DraftPolicy, list[Step]] = {}
        for share, step in zip(shares, steps, strict=True):
            told.setdefault(self._policy_of(share.running), []).append(step)
        for policy, its in told.items():
            policy.observe(its)

    def _policy_of(self, running: Running) -> DraftPolicy:
        return running.request.policy or self.policy

    def _share_out(self, plans: Mapping[int, Plan], prompts: Mapping[int, int]) -> list[_Share]:
        shares = []
        for slot, running in self._running.items():
            if slot in plans:
                rows = len(plans[slot].draft) + 1
                shares.append(_share(running, plans[slot], rows, rows))
            elif rows := prompts.get(slot, 0):
                last = int(rows == running.pending)
                wants = rows if running.unscored else last
                shares.append(_share(running, _PREFILL, rows, wants))
        return shares

    def _verify(self, shares: list[_Share], logits: Logits) -> None:
        at = 0
        for share in shares:
            running = share.running
            mine = logits[at : at + share.wants]
            at += share.wants
            running.begun = True
            if share.prefilled and running.unscored:
                share.prompt_logprobs = _of_prompt(share, mine)
            if share.rows == running.pending + len(share.plan.draft):
                mine = mine[-1 - len(share.plan.draft) :]
                verdict = verify(
                    share.plan.draft.tokens,
                    mine,
                    running.sampler,
                    running.tokens,
                    running.request.ends,
                )
                share.emitted, share.accepted, share.ended = verdict
                if running.request.logprobs is not None:
                    share.logprobs = tuple(
                        logprob(row, token, running.request.logprobs)
                        for row, token in zip(mine, share.emitted, strict=False)
                    )
            running.kept += share.rows - len(share.plan.draft) + share.accepted
            # The last token of an answer is never in memory, whoever proposed it.
            running.kept = min(running.kept, len(running.tokens) - 1)

    def _settle(self, shares: list[_Share]) -> None:
        """Make memory hold what is kept and nothing else, also after a failed pass."""
        for share in shares:
            running = share.running
            if share.held_after == running.kept:
                continue
            try:
                self._model.rewind(running.slot, running.kept)
            except CannotRewindError:
                self._model.drop(running.slot)
                running.kept = 0

    def _steps(
        self,
        shares: list[_Share],
        seconds: tuple[float, float, float],
        total: float,
    ) -> list[Step]:
        pass_rows = sum(share.rows for share in shares)
        draft_s, verify_s, sample_s = seconds
        steps = []
        for share in shares:
            part = share.rows / pass_rows
            finish_reason = None
            if share.emitted:
                finish_reason = share.running.finish_reason(share.ended)
            if finish_reason:
                self._release(share.running)
            steps.append(
                Step(
                    sequence=share.running.slot,
                    request=share.running.request.id,
                    position=share.started_at,
                    cached=share.running.cached,
                    k=share.plan.k,
                    drafter=share.plan.draft.source if share.plan.draft else "",
                    drafted=len(share.plan.draft),
                    accepted=share.accepted,
                    draft_passes=share.plan.draft.passes,
                    rejected=share.plan.draft.tokens[share.accepted :],
                    tokens=tuple(share.emitted),
                    sources=_sources(share),
                    prefilled=share.prefilled,
                    rows=share.rows,
                    pass_rows=pass_rows,
                    sequences=len(shares),
                    draft_s=draft_s * part,
                    verify_s=verify_s * part,
                    sample_s=sample_s * part,
                    other_s=(total - draft_s - verify_s - sample_s) * part,
                    reason=share.plan.reason,
                    finish_reason=finish_reason,
                    logprobs=share.logprobs,
                    prompt_logprobs=share.prompt_logprobs,
                )
            )
        return steps

    def _release(self, running: Running) -> None:
        del self._running[running.slot]
        self.slots.give_back(running.slot, running.tokens[: running.kept])
        for drafter in self._drafters.values():
            drafter.end(running.slot)
        self._waiting.extendleft(reversed(self._parked))
        self._parked = []


def _share(running: Running, plan: Plan, rows: int, wants: int) -> _Share:
    return _Share(running, plan, rows, wants, len(running.tokens), running.kept + rows)


def _rows(share: _Share) -> list[Row]:
    running = share.running
    start = running.kept
    tokens = [*running.tokens[start : start + share.rows], *share.plan.draft.tokens]
    first_wanted = len(tokens) - share.wants
    return [
        Row(running.slot, start + i, token, i >= first_wanted) for i, token in enumerate(tokens)
    ]


def _of_prompt(share: _Share, logits: Logits) -> tuple[TokenLogprob, ...]:
    """Of the tokens that follow the share's, as far as they are not known already."""
    running = share.running
    following = running.request.prompt[running.scored + 1 : running.kept + share.rows + 1]
    rows = logits[running.scored - running.kept :]
    running.scored += len(following)
    top = running.request.logprobs or 0
    return tuple(logprob(row, token, top) for row, token in zip(rows, following, strict=False))


def _sources(share: _Share) -> tuple[str, ...]:
    drafted = tuple(share.plan.draft.by(i) for i in range(share.accepted))
    return drafted + (TARGET,) * (len(share.emitted) - share.accepted)
