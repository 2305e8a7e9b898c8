"""The n-gram drafter: what followed the last few tokens when they occurred before.

An index per sequence, over prompt and own output alike, remembers where each run of tokens
ended. A draft copies what came after the earlier places whose left context matches the end of
the sequence; places that contradict the draft so far no longer count. No model, microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from edgespec.errors import OptionError
from edgespec.protocols import More
from edgespec.types import Draft, SamplingParams

RECENCY = 0.7
"""What a place counts for is match length cubed, times this for every nearer place. The exact
values hardly matter on real text, as long as the newest long match leads."""

Place: TypeAlias = tuple[int, int]
"""An earlier place, (end, length): the `length` tokens before `end` are the sequence's last."""


class NgramIndex:
    """The tokens of one sequence, and where each run of them ended before.

    Runs are looked up at two lengths, the anchors: `min_match`, and four times that. Per anchor,
    a dict knows where a run ended last and a list leads from there to the time before, so
    adding a token costs the same however long the sequence is.
    """

    __slots__ = ("_tables", "max_match", "places", "tokens")

    def __init__(self, min_match: int, max_match: int, places: int) -> None:
        self.tokens: list[int] = []
        self.max_match = max_match
        self.places = places
        anchors = [4 * min_match] * (4 * min_match <= max_match) + [min_match]
        # (anchor, hash of a run -> its latest end, end -> the end before of the same run or 0)
        self._tables: list[tuple[int, dict[int, int], list[int]]] = [
            (anchor, {}, [0] * anchor) for anchor in anchors
        ]

    def extend(self, added: Iterable[int]) -> None:
        """Append tokens to the sequence."""
        tokens = self.tokens
        start = len(tokens) + 1
        tokens.extend(added)
        for anchor, latest, before in self._tables:
            first = max(start, anchor)
            for end, run in enumerate(_hashes(tokens, first, anchor), first):
                before.append(latest.get(run, 0))
                latest[run] = end

    def shorten(self, count: int) -> None:
        """Take back the last `count` tokens."""
        tokens = self.tokens
        for anchor, latest, before in self._tables:
            for end in range(len(tokens), max(anchor, len(tokens) - count + 1) - 1, -1):
                latest[hash(tuple(tokens[end - anchor : end]))] = before.pop()
        del tokens[len(tokens) - count :]

    def find(self) -> list[Place]:
        """Earlier places that match the end of the sequence, the most recent first.

        They come from the longer anchor if it has any, so that a long match is found however
        often its last few tokens occurred since.
        """
        for anchor, _, before in self._tables:
            if len(self.tokens) >= anchor and before[-1] and (found := self._walk(anchor, before)):
                return found
        return []

    def _walk(self, anchor: int, before: list[int]) -> list[Place]:
        tokens = self.tokens
        longest = tokens[-self.max_match :]
        tail = tokens[-anchor:]
        found = []
        end = before[-1]
        for _ in range(self.places):
            # Comparing whole slices settles most places without a loop over tokens.
            if tokens[max(0, end - self.max_match) : end] == longest:
                found.append((end, len(longest)))
            elif tokens[end - anchor : end] == tail:
                found.append((end, self._length(end, anchor)))
            end = before[end]
            if not end:
                break
        return found

    def _length(self, end: int, known: int) -> int:
        tokens = self.tokens
        shift = len(tokens) - end
        at, stop = end - known - 1, max(0, end - self.max_match)
        while at >= stop and tokens[at] == tokens[at + shift]:
            at -= 1
        return end - at - 1


def _hashes(tokens: list[int], first: int, anchor: int) -> Iterable[int]:
    # Hashes instead of the runs keep the index small; `find` compares the tokens anyway.
    if len(tokens) - first < 64:
        ends = range(first, len(tokens) + 1)
        return [hash(tuple(tokens[end - anchor : end])) for end in ends]
    last = tokens[first - anchor :]
    return map(hash, zip(*[last[shift:] for shift in range(anchor)], strict=False))


class NgramDrafter:
    """Drafts by copying what followed earlier occurrences of the sequence's last tokens.

    For every sequence it looks up to `places` earlier places whose left context matches the end
    of the sequence in at least `min_match` tokens (counted up to `max_match`), the most recent
    first. They vote token by token, weighed by match length and recency; those that contradict
    the draft drop out. The draft ends where no place is left: at its limit, or when the copied
    text reaches the end of the sequence. Only where the end repeats itself (the match is at
    least as long as the distance back to it, as in "ab ab ab") it goes on in the same period.

    In a draft, `confidence` is, per token, the weight of the places that agree with the draft up
    to and including it, over the weight of all places found except those that agreed until
    their text ended. It never rises along a draft, and is 1.0 where no place disagrees.
    `match_length` is the longest match, `candidates` the number of places found.

    The default of 2 for `min_match` suits a policy that trims by this evidence. With fixed draft
    lengths 3 is better: two matching tokens continue alike in about one case of three.

    Raises OptionError unless 1 <= min_match <= max_match and places >= 1.
    """

    name = "n-gram"
    copies = True

    def __init__(self, *, min_match: int = 2, max_match: int = 32, places: int = 4) -> None:
        if not 1 <= min_match <= max_match:
            raise OptionError(
                f"n-gram matches need 1 <= min_match <= max_match, not {min_match} and {max_match}."
            )
        if places < 1:
            raise OptionError(f"The n-gram drafter needs at least one place, not {places}.")
        self._options = (min_match, max_match, places)
        self._running: dict[int, NgramIndex] = {}
        self._ended: dict[int, NgramIndex] = {}

    def begin(
        self,
        sequence: int,
        tokens: Sequence[int],
        params: SamplingParams,
        prediction: Sequence[int] = (),
    ) -> None:
        """Index the prompt; the old index of this sequence is kept if the prompt extends it."""
        index = self._running.pop(sequence, None) or self._ended.pop(sequence, None)
        prompt = list(tokens)
        if index is None or prompt[: len(index.tokens)] != index.tokens:
            index = NgramIndex(*self._options)
        index.extend(prompt[len(index.tokens) :])
        self._running[sequence] = index

    def propose(self, limits: Mapping[int, int], more: More | None = None) -> dict[int, Draft]:
        """Drafts for the sequences that have evidence. Raises KeyError before `begin`."""
        drafts = {}
        for sequence, limit in limits.items():
            index = self._running[sequence]
            if limit > 0 and (found := index.find()):
                drafts[sequence] = _vote(index.tokens, found, limit)
        return drafts

    def after(self, sequence: int, tail: Sequence[int], limit: int) -> Draft | None:
        """What it would propose if the sequence went on with `tail`. Raises KeyError before
        `begin`."""
        index = self._running[sequence]
        index.extend(tail)
        found = index.find()
        draft = _vote(index.tokens, found, limit) if found else None
        index.shorten(len(tail))
        return draft

    def observe(self, sequence: int, emitted: Sequence[int]) -> None:
        """Index the emitted tokens. Raises KeyError before `begin`."""
        self._running[sequence].extend(emitted)

    def unread(self, sequence: int) -> int:
        """Nothing: looking up is free."""
        return 0

    def knows_all(self, sequence: int) -> bool:
        """It looks everywhere."""
        return True

    def end(self, sequence: int) -> None:
        """Stop drafting; the index stays for a next prompt that goes on from here."""
        if (index := self._running.pop(sequence, None)) is not None:
            self._ended[sequence] = index

    def forget(self) -> None:
        """Let go of the indexes of ended requests."""
        self._ended.clear()


def _vote(tokens: list[int], found: list[Place], limit: int) -> Draft:
    weights, runs, recency = [], [], 1.0
    for end, length in found:
        weights.append(length * length * length * recency)
        runs.append(_run(tokens, end, length, limit))
        recency *= RECENCY
    draft, confidence = _majority(weights, runs)
    best = max([length for _, length in found])
    return Draft(tuple(draft), NgramDrafter.name, tuple(confidence), best, len(found))


def _run(tokens: list[int], end: int, length: int, limit: int) -> list[int]:
    run = tokens[end : end + limit]
    period = len(tokens) - end
    if period < limit and length >= period:
        run = (run * (limit // period + 1))[:limit]
    return run


def _majority(weights: list[float], runs: list[list[int]]) -> tuple[list[int], list[float]]:
    draft: list[int] = []
    confidence: list[float] = []
    whole = sum(weights)
    while runs.count(runs[0]) < len(runs):
        agreed = _agreed(runs)
        draft += runs[0][:agreed]
        confidence += [min(1.0, sum(weights) / whole)] * agreed
        support: dict[int, float] = {}
        for weight, run in zip(weights, runs, strict=True):
            if agreed < len(run):
                support[run[agreed]] = support.get(run[agreed], 0.0) + weight
            else:
                whole -= weight  # its text ended: no evidence for or against
        token = max(support, key=support.__getitem__)  # the most recent place wins a tie
        kept = [at for at, run in enumerate(runs) if agreed < len(run) and run[agreed] == token]
        weights = [weights[at] for at in kept]
        runs = [runs[at][agreed:] for at in kept]
    confidence += [min(1.0, sum(weights) / whole)] * len(runs[0])
    return draft + runs[0], confidence


def _agreed(runs: list[list[int]]) -> int:
    length = 0
    for column in zip(*runs, strict=False):
        if column.count(column[0]) < len(column):
            break
        length += 1
    return length
