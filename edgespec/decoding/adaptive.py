"""The adaptive policy: every step, the drafts that give the most tokens per second here and now.

Copies of earlier text are looked up first, since that is free. The draft model is asked where
that has been worth more than it costs, goes on token by token while the next one is worth its
time, and hands over to a copy where one continues its draft. Which draft is verified, and how
much of it, is decided by value alone (`worth.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import cast

from edgespec.decoding.acceptance import Evidence, copied, modelled
from edgespec.decoding.knowledge import Knowledge, load_class, situation
from edgespec.decoding.worth import Worth
from edgespec.protocols import Copier, Drafter, Plan
from edgespec.types import MAX_DRAFT_TOKENS, NO_DRAFT, Draft, Step

_HARDLY = 0.02  # a survival that no row of a pass is worth
_LONGEST = 8  # tokens of a draft model in a row; beyond them chances are guesses on guesses
_AHEAD = 4  # tokens the draft model is imagined to go on
# Tokens of an answer for every asking that reading is written off by: it makes two or three at
# a time, is not asked at every step, and what it gains a copy might have gained a step later.
_CAUTION = 8
_LATELY = 0.1  # what the last draft counts for in "lately"


@dataclass(slots=True)
class _Option:
    """A draft, what speaks for its tokens, and the chances that they stand one after another."""

    draft: Draft = NO_DRAFT
    evidence: list[Evidence] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)

    @property
    def survival(self) -> list[float]:
        return list(accumulate(self.chances, mul))

    def then(self, other: _Option) -> _Option:
        return _Option(
            self.draft.then(other.draft),
            self.evidence + other.evidence,
            self.chances + other.chances,
        )


@dataclass(slots=True)
class _Sequence:
    """What is remembered of one sequence. The options are those of the step under way."""

    request: int = -1
    length: int = 0
    emitted: int = 0
    lately: dict[str, float] = field(default_factory=dict)  # drafter -> how often it began right
    copies: list[_Option] = field(default_factory=list)
    model: _Option = field(default_factory=_Option)
    joined: _Option = field(default_factory=_Option)  # the model's, then a copy of what followed
    copy: _Option = field(default_factory=_Option)  # the best of the copies
    gain: float = 0.0  # of that
    kind: int = 0  # of the situation, for the value of asking the draft model
    paid: float = 0.0  # for the draft model, and for verifying its draft instead of the copy


class Adaptive:
    """Chooses drafter and k for every step, by measured cost and live acceptance.

    knowledge: what is known of the pair and the machine; it goes on learning, and policies may
    share it. widths: the pass widths that may be used, None for all (exact mode). only: the one
    drafter to use, "" for all there are. clock: seconds.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        clock: Callable[[], float],
        widths: frozenset[int] | None = None,
        only: str = "",
    ) -> None:
        self._known = knowledge
        self._clock = clock
        self._widths = widths
        self._only = only
        self._most = max(widths) - 1 if widths else MAX_DRAFT_TOKENS
        self._sequences: dict[int, _Sequence] = {}
        self._last_width = 1
        self._depth = 0.0
        self._load = 0
        self._token_s = 0.0  # of the draft model
        self._copiers: list[Copier] = []
        self._room: Mapping[int, int] = {}
        self._worth = Worth(knowledge.target, knowledge.rate(1, 0.0), width=1, depth=0.0)

    def plan(
        self, room: Mapping[int, int], drafters: Mapping[str, Drafter], others: int
    ) -> Mapping[int, Plan]:
        running = {slot: self._sequences.setdefault(slot, _Sequence()) for slot in room}
        for sequence in running.values():
            sequence.copies, sequence.gain, sequence.paid = [], 0.0, 0.0
            sequence.copy = sequence.model = sequence.joined = _Option()
        self._set_worth(running, others)
        self._room = room
        limits = {slot: min(most, self._most) for slot, most in room.items()}
        limits = {slot: most for slot, most in limits.items() if most > 0}
        able = [d for d in drafters.values() if self._only in ("", d.name)]
        self._copiers = [cast(Copier, drafter) for drafter in able if drafter.copies]
        for copier in self._copiers:
            for slot, draft in copier.propose(limits).items():
                running[slot].copies.append(self._copied(running[slot], draft))
        for sequence in running.values():
            self._choose_copy(sequence)
        for drafter in able:
            if not drafter.copies and self._known.draft is not None:
                self._ask(drafter, limits)
        return self._choose(room)

    def _set_worth(self, running: Mapping[int, _Sequence], others: int) -> None:
        depth = sum(sequence.length for sequence in running.values()) / max(len(running), 1)
        self._depth = depth
        self._load = load_class(max(len(running), 1))
        self._worth = Worth(
            self._known.target,
            self._known.rate(max(len(running), 1), depth),
            width=len(running) + others,
            depth=depth,
            widths=self._widths,
            sharers=max(len(running), 1),
            last_width=self._last_width,
            rebuild=self._known.rebuild,
        )

    # Copies.

    def _copied(self, sequence: _Sequence, draft: Draft) -> _Option:
        acceptance = self._known.acceptance(draft.source, copies=True)
        option = _Option(draft)
        survival = 1.0
        for evidence in copied(draft, sequence.lately.get(draft.source, 0.5)):
            chance = acceptance.chance(evidence)
            survival *= chance
            option.evidence.append(evidence)
            option.chances.append(chance)
            if survival < _HARDLY:
                break
        return option

    def _choose_copy(self, sequence: _Sequence) -> None:
        for option in sequence.copies:
            gain = self._worth.best(option.survival)[1]
            if gain > sequence.gain or not sequence.copy.chances:
                sequence.copy, sequence.gain = option, gain

    # The draft model.

    def _ask(self, drafter: Drafter, limits: Mapping[int, int]) -> None:
        # All sequences draft in the same passes, so that each of them pays a share.
        self._token_s = self._known.drafting((len(limits),), self._depth) / max(len(limits), 1)
        for slot in limits:
            copy = self._sequences[slot].copy.chances
            knows_all = drafter.knows_all(slot)
            self._sequences[slot].kind = situation(copy[0] if copy else None, knows_all)
        asked = {
            slot: min(most, _LONGEST)
            for slot, most in limits.items()
            if self._is_worth_asking(drafter, slot)
        }
        if not asked:
            return
        self._token_s = self._known.drafting((len(asked),), self._depth) / len(asked)
        began = self._clock()
        drafts = drafter.propose(asked, self._goes_on)
        self._time_drafting(list(drafts.values()), self._clock() - began)
        for slot, draft in drafts.items():
            sequence = self._sequences[slot]
            sequence.model = self._modelled(sequence, draft)
            sequence.joined = self._joined(slot, sequence.model, limits[slot])
            self._doubt_copy(sequence)
            # Reading what was not read for long is an investment, not the price of this draft.
            passes = [min(rows, 2) for rows in draft.passes]
            share = self._token_s / self._known.drafting((1,), self._depth)
            sequence.paid = self._worth.rate * share * self._known.drafting(passes, self._depth)

    def _time_drafting(self, drafts: Sequence[Draft], seconds: float) -> None:
        if len(drafts) == 1:  # passes for several sequences are as wide as all of them together
            self._known.drafted(drafts[0].passes, self._depth, seconds)

    def _doubt_copy(self, sequence: _Sequence) -> None:
        """Where the draft model begins otherwise, it is right as often as it says."""
        model, copy = sequence.model, sequence.copy
        if model.chances and copy.chances and model.draft.tokens[0] != copy.draft.tokens[0]:
            first = min(copy.chances[0], 1.0 - model.chances[0])
            sequence.copy = _Option(copy.draft, copy.evidence, [first, *copy.chances[1:]])
            sequence.gain = self._worth.best(sequence.copy.survival)[1]

    def _is_worth_asking(self, drafter: Drafter, slot: int) -> bool:
        sequence = self._sequences[slot]
        value = self._known.value(sequence.kind, self._load)
        reading = self._known.drafting((drafter.unread(slot) + 1,), self._depth)
        reading -= self._known.drafting((1,), self._depth)
        steps = self._known.remaining(sequence.emitted, self._room[slot]) / _CAUTION
        if value * steps > self._worth.rate * reading:
            return True
        return self._known.may_probe(reading + 2 * self._token_s)

    def _modelled(self, sequence: _Sequence, draft: Draft) -> _Option:
        acceptance = self._known.acceptance(draft.source, copies=False)
        lately = sequence.lately.get(draft.source, 0.6)
        evidence = list(modelled(draft.tokens, draft.confidence, lately, sequence.copy.draft))
        return _Option(draft, evidence, [acceptance.chance(one) for one in evidence])

    def _joined(self, slot: int, option: _Option, most: int) -> _Option:
        """The model's draft, and what a copier has to add to it."""
        length = most - len(option.chances)
        if not option.chances or length < 1:
            return option
        sequence = self._sequences[slot]
        found = [copier.after(slot, option.draft.tokens, length) for copier in self._copiers]
        options = [option.then(self._copied(sequence, draft)) for draft in found if draft]
        return max(options, key=lambda o: self._worth.best(o.survival)[1], default=option)

    def _goes_on(self, slot: int, tokens: Sequence[int], confidence: Sequence[float]) -> bool:
        """Whether one more token of the draft model is worth its time."""
        sequence = self._sequences[slot]
        option = self._modelled(sequence, Draft(tuple(tokens), "model", tuple(confidence)))
        if len(tokens) > 1:
            self._known.followed(confidence[-2], option.chances[-1])
        joined = self._joined(slot, option, self._most)
        stopping = max(sequence.gain, self._worth.best(joined.survival)[1])
        survival = option.survival
        expected, chance = sum(survival), survival[-1]
        following = self._known.following(confidence[-1])
        length = len(tokens)
        for more in range(1, min(_AHEAD, self._most - length, _LONGEST - length) + 1):
            chance *= following
            expected += chance
            price = self._worth.price_each(length + more)
            price += self._worth.rate * more * self._token_s
            if expected - price > stopping:
                return True
        return False

    # The choice.

    def _choose(self, room: Mapping[int, int]) -> dict[int, Plan]:
        options = {}
        for slot in room:
            sequence = self._sequences[slot]
            gain = self._worth.best(sequence.joined.survival)[1]
            options[slot] = sequence.joined if gain > sequence.gain else sequence.copy
        lengths, _ = self._worth.share({slot: o.survival for slot, o in options.items()})
        return {
            slot: self._plan(self._sequences[slot], options[slot], lengths[slot]) for slot in room
        }

    def _plan(self, sequence: _Sequence, option: _Option, length: int) -> Plan:
        draft = option.draft.cut(length) if length else NO_DRAFT
        passes = sequence.model.draft.passes
        if length and option is sequence.joined:
            # The copy that follows would be there at the next step, too: it counts as one token.
            own = min(length, len(sequence.model.chances))
            sequence.paid += sequence.gain + self._worth.price_each(own)
        if draft.passes != passes:
            draft = replace(draft, passes=passes)
        return Plan(draft, length, self._reason(sequence, option, length))

    def _reason(self, sequence: _Sequence, option: _Option, length: int) -> str:
        if length:
            tokens = sum(option.survival[:length])
            price, many = self._worth.price(length), "s" * (length > 1)
            return f"{length} token{many}: {tokens:.2f} expected to stand, {price:.2f} to pay"
        if option.chances:
            return (
                f"plain: the {option.draft.source} draft stands with {option.chances[0]:.2f}, "
                f"{self._worth.price(1):.2f} needed"
            )
        if self._most == 0:
            return "plain: wider passes are not bit-identical here"
        if self._known.draft is None or self._only == "n-gram":
            return "plain: nobody has a draft"
        if sequence.model.draft.passes:
            return "plain: the draft model is still reading"
        mean, _ = self._known.asked(sequence.kind)
        return f"plain: asking the draft model is worth {mean:+.2f} tokens, besides the reading"

    # Learning.

    def observe(self, steps: Sequence[Step]) -> None:
        for step in steps:
            sequence = self._sequences.get(step.sequence)
            if sequence is None or sequence.request != step.request:
                sequence = self._sequences[step.sequence] = _Sequence(request=step.request)
            sequence.length = step.position + len(step.tokens)
            sequence.emitted += len(step.tokens)
            if not step.prefilled:
                self._score(sequence, step)
            if step.finish_reason:
                self._known.finished(sequence.emitted)
        decoding = [step for step in steps if not step.prefilled]
        if decoding:
            self._time(decoding)

    def _score(self, sequence: _Sequence, step: Step) -> None:
        """Every draft of the step, verified or not, against what the target emitted."""
        tokens = step.tokens
        if step.draft_passes:
            verified = step.drafter.startswith(sequence.model.draft.source)
            stood = min(step.accepted, len(sequence.model.chances) + 1) if verified else 0
            gain = stood - sequence.paid
            self._known.was_worth(sequence.kind, gain, self._load)
        for option in (*sequence.copies, sequence.model):
            if not option.chances:
                continue
            name = option.draft.source
            acceptance = self._known.acceptance(name, copies=option is not sequence.model)
            pairs = list(zip(option.evidence, option.draft.tokens, tokens, strict=False))
            for evidence, guess, token in pairs:
                if acceptance.learn(evidence, guess == token) and option is sequence.model:
                    self._known.draft_model_changed()
                if guess != token:
                    break
            before = sequence.lately.get(name, 0.5 if option is not sequence.model else 0.6)
            began_right = option.draft.tokens[0] == tokens[0]
            sequence.lately[name] = before + _LATELY * (began_right - before)

    def _time(self, steps: Sequence[Step]) -> None:
        first = steps[0]
        seconds = sum(s.draft_s + s.verify_s + s.sample_s + s.other_s for s in steps)
        depth = sum(step.position * step.rows for step in steps) / sum(step.rows for step in steps)
        self._known.passed(sum(len(step.tokens) for step in steps), seconds, len(steps), depth)
        if first.sequences == len(steps):  # else others had a part in it, a prompt perhaps
            pass_s = seconds - sum(step.draft_s for step in steps)
            self._known.target.observe(first.pass_rows, depth, pass_s)
        self._last_width = first.pass_rows
