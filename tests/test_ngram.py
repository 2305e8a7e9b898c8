"""The n-gram drafter against a plain reading of its own documentation."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.drafters.ngram import RECENCY, NgramDrafter
from edgespec.errors import OptionError
from edgespec.protocols import Drafter
from edgespec.types import Draft, SamplingParams

PARAMS = SamplingParams(seed=0)

texts = st.integers(2, 4).flatmap(lambda n: st.lists(st.integers(0, n - 1), max_size=60))
limits = st.integers(1, 12)


def drafter_on(tokens: list[int], **options: int) -> NgramDrafter:
    drafter = NgramDrafter(**options)
    drafter.begin(0, tokens, PARAMS)
    return drafter


def propose(drafter: NgramDrafter, limit: int, sequence: int = 0) -> Draft | None:
    return drafter.propose({sequence: limit}).get(sequence)


def match_length(tokens: list[int], end: int, most: int) -> int:
    length = 0
    while length < min(end, most) and tokens[end - 1 - length] == tokens[-1 - length]:
        length += 1
    return length


def reference_places(
    tokens: list[int], min_match: int, max_match: int, places: int
) -> list[tuple[int, int]]:
    """(end, match length) by looking at every earlier place, the most recent first."""
    lengths = {end: match_length(tokens, end, max_match) for end in range(1, len(tokens))}
    for least in (4 * min_match, min_match):
        fitting = [end for end in lengths if lengths[end] >= least]
        if fitting and least <= max_match:
            return [(end, lengths[end]) for end in sorted(fitting, reverse=True)[:places]]
    return []


def following(tokens: list[int], end: int, length: int, limit: int) -> list[int]:
    """What a place proposes: its text, and the same period again where the match reaches it."""
    period = len(tokens) - end
    count = limit if length >= period else min(limit, period)
    return [tokens[end + at % period] for at in range(count)]


def reference_draft(
    tokens: list[int], limit: int, min_match: int = 2, max_match: int = 32, places: int = 4
) -> Draft | None:
    found = reference_places(tokens, min_match, max_match, places)
    runs = [following(tokens, end, length, limit) for end, length in found]
    weights = [length**3 * RECENCY**rank for rank, (_, length) in enumerate(found)]
    draft: list[int] = []
    confidence = []
    while len(draft) < limit:
        agreeing = [at for at, run in enumerate(runs) if run[: len(draft)] == draft[: len(run)]]
        votes: dict[int, float] = {}
        for at in agreeing:
            if len(runs[at]) > len(draft):
                token = runs[at][len(draft)]
                votes[token] = votes.get(token, 0.0) + weights[at]
        if not votes:
            break
        ended = sum(weights[at] for at in agreeing if len(runs[at]) <= len(draft))
        draft.append(max(votes, key=lambda token: votes[token]))
        confidence.append(votes[draft[-1]] / (sum(weights) - ended))
    if not found:
        return None
    longest = max(length for _, length in found)
    return Draft(tuple(draft), "n-gram", tuple(confidence), longest, len(found))


def assert_same(draft: Draft | None, expected: Draft | None) -> None:
    if draft is None or expected is None:
        assert draft is expected
        return
    assert draft.confidence == pytest.approx(expected.confidence)
    assert draft.tokens == expected.tokens
    assert draft.source == expected.source
    assert (draft.match_length, draft.candidates) == (expected.match_length, expected.candidates)


@given(texts, limits, st.integers(1, 3), st.integers(0, 20), st.integers(1, 5))
def test_equals_the_brute_force_reference(
    tokens: list[int], limit: int, min_match: int, more: int, places: int
) -> None:
    options = {"min_match": min_match, "max_match": min_match + more, "places": places}
    draft = propose(drafter_on(tokens, **options), limit)
    assert_same(draft, reference_draft(tokens, limit, **options))


@given(texts, st.lists(st.integers(0, 60), max_size=5), limits)
def test_growing_in_pieces_equals_building_at_once(
    tokens: list[int], cuts: list[int], limit: int
) -> None:
    ends = [*sorted(cuts), len(tokens)]
    drafter = drafter_on(tokens[: ends[0]])
    for start, stop in pairwise(ends):
        drafter.observe(0, tokens[start:stop])
    assert propose(drafter, limit) == propose(drafter_on(tokens), limit)


def test_growing_a_long_text_equals_building_it_at_once() -> None:
    tokens = [(at * at) % 11 + at % 3 for at in range(500)]  # long enough for the bulk path
    drafter = drafter_on(tokens[:10])
    for at in range(10, 500, 3):
        drafter.observe(0, tokens[at : at + 3])
    draft = propose(drafter, 8)
    assert draft is not None
    assert draft == propose(drafter_on(tokens), 8)


@given(texts, limits)
def test_drafts_are_well_formed(tokens: list[int], limit: int) -> None:
    draft = propose(drafter_on(tokens), limit)
    if draft is None:
        return
    assert 1 <= len(draft) <= limit
    assert len(draft.confidence) == len(draft.tokens)
    assert all(0.0 < share <= 1.0 for share in draft.confidence)
    assert list(draft.confidence) == sorted(draft.confidence, reverse=True)
    assert draft.match_length >= 2
    assert 1 <= draft.candidates <= 4


@pytest.mark.parametrize("tokens", [[], [7], [7, 8], [1, 2, 3, 4, 5], [1, 2, 9, 2]])
def test_no_draft_without_evidence(tokens: list[int]) -> None:
    assert drafter_on(tokens).propose({0: 8}) == {}


def test_min_match_is_respected() -> None:
    tokens = [1, 2, 5, 9, 1, 2]
    assert propose(drafter_on(tokens, min_match=2), 1) == Draft((5,), "n-gram", (1.0,), 2, 1)
    assert propose(drafter_on(tokens, min_match=3), 1) is None


def test_draft_stops_where_the_copied_text_ends() -> None:
    draft = propose(drafter_on([1, 2, 3, 4, 9, 1, 2]), 50)
    assert draft is not None
    assert draft.tokens == (3, 4, 9, 1, 2)


def test_periodic_text_goes_on_in_its_period() -> None:
    draft = propose(drafter_on([1, 2, 1, 2, 1]), 7)
    assert draft is not None
    assert draft.tokens == (2, 1, 2, 1, 2, 1, 2)


def test_places_that_disagree_drop_out_and_lower_the_confidence() -> None:
    tokens = [1, 2, 5, 6, 1, 2, 5, 7, 1, 2]
    draft = propose(drafter_on(tokens), 3)
    assert draft is not None
    assert draft.tokens == (5, 7, 1)
    assert draft.confidence == pytest.approx((1.0, 1 / (1 + RECENCY), 1 / (1 + RECENCY)))
    assert (draft.match_length, draft.candidates) == (2, 2)


def test_the_most_recent_place_leads_when_two_match_alike() -> None:
    draft = propose(drafter_on([1, 2, 5, 1, 2, 6, 1, 2]), 1)
    assert draft is not None
    assert draft.tokens == (6,)


def test_a_long_match_is_found_behind_many_short_ones() -> None:
    phrase = [10, 11, 12, 13, 14, 15, 16, 17]
    noise = [token for at in range(40) for token in (100 + at, 16, 17, 200 + at)]
    draft = propose(drafter_on([*phrase, 99, *noise, *phrase]), 1)
    assert draft == Draft((99,), "n-gram", (1.0,), 8, 1)


def test_sequences_are_independent() -> None:
    drafter = NgramDrafter()
    drafter.begin(0, [1, 2, 3, 1, 2], PARAMS)
    drafter.begin(5, [1, 2, 4, 1, 2], PARAMS)
    drafter.observe(5, [4, 1])
    drafts = drafter.propose({0: 1, 5: 1})
    assert {sequence: draft.tokens for sequence, draft in drafts.items()} == {0: (3,), 5: (2,)}
    assert drafter.propose({5: 1}).keys() == {5}


def test_a_prompt_that_extends_the_old_tokens_keeps_the_index() -> None:
    drafter = drafter_on([1, 2, 3])
    drafter.observe(0, [4])
    drafter.end(0)
    index = drafter._ended[0]
    drafter.begin(0, (1, 2, 3, 4, 1, 2), PARAMS)
    assert drafter._running[0] is index
    assert propose(drafter, 9) == propose(drafter_on([1, 2, 3, 4, 1, 2]), 9)


@pytest.mark.parametrize("prompt", [[1, 2, 9, 1, 2], [1, 2], []])
def test_any_other_prompt_starts_afresh(prompt: list[int]) -> None:
    drafter = drafter_on([1, 2, 3, 1, 2, 3])
    drafter.begin(0, prompt, PARAMS)
    assert propose(drafter, 4) == propose(drafter_on(prompt), 4)


def test_what_is_forgotten_is_indexed_anew() -> None:
    tokens = [1, 2, 3, 4, 5] * 3
    drafter = drafter_on(tokens)
    before = propose(drafter, 4)
    drafter.end(0)
    drafter.forget()
    drafter.begin(0, tokens, PARAMS)
    assert propose(drafter, 4) == before


def test_ended_and_unknown_sequences_are_errors() -> None:
    drafter = drafter_on([1, 1, 1])
    drafter.end(0)
    drafter.end(0)
    drafter.end(3)
    with pytest.raises(KeyError):
        drafter.propose({0: 1})
    with pytest.raises(KeyError):
        drafter.observe(0, [1])


@pytest.mark.parametrize(
    "options", [{"min_match": 0}, {"min_match": 5, "max_match": 4}, {"places": 0}]
)
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        NgramDrafter(**options)


def test_implements_the_protocol() -> None:
    drafter: Drafter = NgramDrafter()
    assert drafter.name == "n-gram"


class Counted(int):
    """A token that counts how often it is hashed or compared."""

    work = 0

    def __hash__(self) -> int:
        Counted.work += 1
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Counted.work += 1
        return int.__eq__(self, other)


def step_work(length: int, period: int, limit: int) -> int:
    """Comparisons and hashes of one step after `length` tokens of periodic text."""
    drafter = drafter_on([Counted(at % period) for at in range(length)])
    Counted.work = 0
    assert propose(drafter, limit) is not None
    drafter.observe(0, [Counted((length + at) % period) for at in range(4)])
    return Counted.work


@pytest.mark.parametrize("period", [1, 2, 7])
def test_work_per_step_does_not_grow_with_the_text(period: int) -> None:
    short, long = step_work(200 * period, period, 16), step_work(2000 * period, period, 16)
    assert long == short
    assert long <= 4 * (32 + 16 + 16) + 4 * (2 + 8)  # places * (match, vote) + tokens * anchors


@given(texts, st.lists(st.integers(0, 3), max_size=6), limits)
def test_what_follows_a_tail_is_as_if_it_had_been_emitted(
    tokens: list[int], tail: list[int], limit: int
) -> None:
    drafter = drafter_on(tokens)
    found = drafter.after(0, tail, limit)
    assert_same(found, reference_draft([*tokens, *tail], limit))


@given(texts, st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=4), limits)
def test_asking_what_would_follow_leaves_no_trace(
    tokens: list[int], tails: list[list[int]], limit: int
) -> None:
    """Catches an index that remembers tokens which were never emitted."""
    drafter, untouched = drafter_on(tokens), drafter_on(tokens)
    for tail in tails:
        drafter.after(0, tail, limit)
    assert propose(drafter, limit) == propose(untouched, limit)
    drafter.observe(0, [1, 0, 1])
    untouched.observe(0, [1, 0, 1])
    assert propose(drafter, limit) == propose(untouched, limit)
