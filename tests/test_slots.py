"""Slots on the fake model: the longest prefix is found, and what is believed of memory is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.sequence import common_prefix
from edgespec.decoding.slots import Slots
from edgespec.protocols import Row
from tests.fakes import FakeModel, hashed_logits

V = 8
NOBODY: Mapping[int, Sequence[int]] = {}


def empty(sequences: int = 3, **options: float) -> tuple[Slots, FakeModel]:
    model = FakeModel(hashed_logits(V), V, max_sequences=sequences, **options)  # type: ignore[arg-type]
    return Slots(model), model


def read(model: FakeModel, slot: int, tokens: Sequence[int]) -> None:
    """Decode what the slot does not hold yet."""
    start = len(model.memory[slot])
    for position, token in enumerate(tokens[start:], start):
        model.decode([Row(slot, position, token, False)])


def filled(*texts: Sequence[int], sequences: int = 3) -> tuple[Slots, FakeModel]:
    """Texts in slots 0, 1, ...; the first of them is the least recently used."""
    slots, model = empty(sequences)
    for slot, text in enumerate(texts):
        assert slots.take(text, NOBODY) == (slot, 0)
        read(model, slot, text)
    for slot, text in enumerate(texts):
        slots.give_back(slot, list(text))
    return slots, model


def test_empty_memory_has_nothing_to_offer() -> None:
    slots, _ = empty(sequences=2)
    assert {slots.take([1, 2], NOBODY), slots.take([1, 2], NOBODY)} == {(0, 0), (1, 0)}
    assert not slots.any_free
    slots.give_back(1, [])
    assert slots.any_free


def test_a_text_goes_on_in_its_own_slot() -> None:
    slots, model = filled([1, 2, 3, 4], [5, 6])
    assert slots.take([1, 2, 3, 4, 7, 7], NOBODY) == (0, 4)
    assert model.memory[0] == [1, 2, 3, 4]


def test_the_last_token_is_decoded_anew() -> None:
    slots, model = filled([1, 2, 3, 4])
    assert slots.take([1, 2, 3], NOBODY) == (0, 2)
    assert model.memory[0] == [1, 2]


def test_half_of_a_text_is_worth_keeping_in_place() -> None:
    slots, model = filled([1, 2, 3, 4])
    assert slots.take([1, 2, 7, 7], NOBODY) == (0, 2)
    assert model.memory == {0: [1, 2], 1: [], 2: []}


def test_less_than_half_is_copied_and_the_rest_stays() -> None:
    slots, model = filled([1, 2, 3, 4, 5], [6, 6])
    assert slots.take([1, 2, 7, 7], NOBODY) == (2, 2)
    assert model.memory == {0: [1, 2, 3, 4, 5], 1: [6, 6], 2: [1, 2]}
    slots.give_back(2, [1, 2])
    assert slots.take([1, 2, 3, 4, 5, 6], NOBODY) == (0, 5)


def test_an_empty_slot_is_taken_before_anything_is_dropped() -> None:
    slots, model = filled([1, 2, 3, 4, 5], [6, 6])
    assert slots.take([7], NOBODY) == (2, 0)
    slots.give_back(2, [])  # nothing was read
    assert slots.take([1, 2, 7, 7], NOBODY) == (2, 2)
    assert model.memory == {0: [1, 2, 3, 4, 5], 1: [6, 6], 2: [1, 2]}


def test_a_prefix_is_copied_from_a_running_sequence() -> None:
    slots, model = filled([5, 6], sequences=2)
    slot, _ = slots.take([1, 2, 3, 4], NOBODY)
    read(model, slot, [1, 2, 3, 4])
    assert (slot, model.memory[0]) == (1, [5, 6])
    assert slots.take([1, 2, 3, 7], {1: [1, 2, 3, 4]}) == (0, 3)
    assert model.memory == {0: [1, 2, 3], 1: [1, 2, 3, 4]}


def test_a_free_slot_is_preferred_to_a_running_one() -> None:
    slots, model = filled([1, 2, 3])
    slot, cached = slots.take([1, 2, 3, 4, 5], NOBODY)
    assert (slot, cached) == (0, 3)
    read(model, 1, [1, 2, 3])
    slots.give_back(1, [1, 2, 3])
    assert slots.take([1, 2, 3, 7], {0: [1, 2, 3, 4, 5]}) == (1, 3)


def test_where_nothing_fits_the_least_recently_used_is_dropped() -> None:
    slots, model = filled([1, 1], [2, 2], [3, 3])
    assert slots.take([7, 7], NOBODY) == (0, 0)
    assert model.memory == {0: [], 1: [2, 2], 2: [3, 3]}


def test_to_be_used_again_is_to_be_recent() -> None:
    slots, model = filled([1, 1], [2, 2], [3, 3])
    assert slots.take([1, 1, 5], NOBODY) == (0, 2)
    slots.give_back(0, [1, 1])
    assert slots.take([7, 7], NOBODY) == (1, 0)
    assert model.memory[0] == [1, 1]


def test_a_beginning_that_all_have_protects_nobody() -> None:
    """Most prompts share a token or a system prompt."""
    slots, model = filled([1, 2, 3, 4, 5], [1, 2, 2], [1, 3, 3, 3])
    assert slots.take([1, 7, 7], NOBODY) == (0, 1)
    assert model.memory == {0: [1], 1: [1, 2, 2], 2: [1, 3, 3, 3]}


def test_of_two_with_the_same_prefix_the_one_with_nothing_else_goes_on() -> None:
    slots, model = filled([1, 2, 3, 4, 5], [1, 2], [3, 3])
    assert slots.take([1, 2, 7], NOBODY) == (1, 2)
    assert model.memory == {0: [1, 2, 3, 4, 5], 1: [1, 2], 2: [3, 3]}


def test_what_is_copied_stays_where_another_is_used_less() -> None:
    slots, model = filled([3, 3], [1, 2, 3, 4, 5], [2, 2])
    assert slots.take([1, 2, 7], NOBODY) == (0, 2)
    assert model.memory == {0: [1, 2], 1: [1, 2, 3, 4, 5], 2: [2, 2]}


def test_the_only_free_slot_is_cut_however_much_it_holds() -> None:
    slots, model = filled([1, 2, 3, 4, 5], sequences=1)
    assert slots.take([1, 7], NOBODY) == (0, 1)
    assert model.memory[0] == [1]


def test_what_cannot_be_cut_is_read_again() -> None:
    slots, model = empty(rewind_depth=0)
    slot, _ = slots.take([1, 2, 3], NOBODY)
    read(model, slot, [1, 2, 3])
    slots.give_back(slot, [1, 2, 3])
    assert slots.take([1, 2, 3, 4], NOBODY) == (slot, 3)
    slots.give_back(slot, [1, 2, 3])
    assert slots.take([1, 2, 7], NOBODY) == (slot, 0)
    assert model.memory[slot] == []


def test_what_cannot_be_copied_is_read_again() -> None:
    slots, model = empty(rewind_depth=0)
    slot, _ = slots.take([1, 2, 3], NOBODY)
    read(model, slot, [1, 2, 3])
    other, cached = slots.take([1, 2, 7], {slot: [1, 2, 3]})
    assert (other != slot, cached, model.memory[other]) == (True, 0, [])
    whole, cached = slots.take([1, 2, 3, 7], {slot: [1, 2, 3]})
    assert (cached, model.memory[whole]) == (3, [1, 2, 3])


def test_the_least_recently_used_is_evicted_first() -> None:
    slots, model = filled([1, 1], [2, 2])
    slots.take([3], NOBODY)
    read(model, 2, [3])
    assert slots.evict()
    assert model.memory == {0: [], 1: [2, 2], 2: [3]}
    assert slots.evict()
    assert model.memory == {0: [], 1: [], 2: [3]}
    assert not slots.evict()
    assert slots.take([2, 2, 2], NOBODY)[1] == 0


def test_what_is_forgotten_is_not_found() -> None:
    slots, model = filled([1, 1], [2, 2])
    slots.forget()
    assert not any(model.memory.values())
    assert slots.take([1, 1, 1], NOBODY)[1] == 0
    assert slots.take([2, 2, 2], NOBODY)[1] == 0


texts = st.lists(st.integers(0, 1), min_size=1, max_size=12)
programs = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), texts),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("evict")),
    ),
    max_size=25,
)


class Using:
    """Begins and ends texts as a scheduler does, and looks at all of memory meanwhile."""

    def __init__(self, sequences: int, rewind_depth: float) -> None:
        self.slots, self.model = empty(sequences, rewind_depth=rewind_depth)
        self.running: dict[int, list[int]] = {}
        self.exact = rewind_depth > 0

    def begin(self, prompt: list[int]) -> None:
        if not self.slots.any_free:
            return
        before = {slot: list(held) for slot, held in self.model.memory.items()}
        slot, cached = self.slots.take(prompt, self.running)
        assert slot not in self.running
        best = max(common_prefix(held, prompt[:-1]) for held in before.values())
        assert cached == best or (not self.exact and cached in (0, best))
        assert self.model.memory[slot] == prompt[:cached]
        others = {other: held for other, held in before.items() if other != slot}
        assert {o: self.model.memory[o] for o in others} == others, "nobody else loses anything"
        read(self.model, slot, prompt)
        self.running[slot] = prompt

    def end(self, which: int) -> None:
        if self.running:
            slot = sorted(self.running)[which % len(self.running)]
            self.slots.give_back(slot, self.running.pop(slot))

    def evict(self) -> None:
        held = sum(map(len, self.model.memory.values()))
        evicted = self.slots.evict()
        assert evicted == (sum(map(len, self.model.memory.values())) < held)
        assert evicted or held == sum(map(len, self.running.values()))

    def check(self) -> None:
        believed = {**self.slots.held, **self.running}
        assert believed == self.model.memory
        assert self.slots.any_free == (len(self.running) < self.model.max_sequences)


@pytest.mark.parametrize("rewind_depth", [float("inf"), 0])
@given(program=programs, sequences=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_any_use_finds_the_longest_prefix_and_keeps_to_the_truth(
    rewind_depth: float, program: list[tuple], sequences: int
) -> None:
    using = Using(sequences, rewind_depth)
    for name, *arguments in program:
        getattr(using, name)(*arguments)
        using.check()
