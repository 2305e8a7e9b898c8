"""Verification by itself, on rows whose best tokens are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from edgespec.decoding.noise import gumbel
from edgespec.decoding.sampling import Sampler
from edgespec.decoding.verify import verify
from edgespec.errors import BackendError
from edgespec.protocols import Logits
from edgespec.types import SamplingParams

V = 8
GREEDY = Sampler(SamplingParams(temperature=0.0))


def rows_for(tokens: Sequence[int]) -> Logits:
    """Logits after which greedy choices are `tokens`."""
    logits = np.zeros((len(tokens), V), np.float32)
    logits[np.arange(len(tokens)), list(tokens)] = 4.0
    return logits


def never(token: int) -> bool:
    return False


def ends_at(end: int, asked: list[int]) -> Callable[[int], bool]:
    def ends(token: int) -> bool:
        asked.append(token)
        return token == end

    return ends


@pytest.mark.parametrize(
    ("draft", "emitted", "accepted"),
    [
        ([], [3], 0),
        ([3, 1, 4], [3, 1, 4, 1], 3),  # all, and the bonus token
        ([3, 1, 5], [3, 1, 4], 2),
        ([3, 2, 4], [3, 1], 1),
        ([0, 1, 4], [3], 0),  # right again after a mistake: does not count
        ([1, 3], [3], 0),  # the right tokens in the wrong places
    ],
)
def test_the_draft_stands_up_to_its_first_mistake(
    draft: list[int], emitted: list[int], accepted: int
) -> None:
    """Catches an off-by-one in the accepted count or the bonus token, a draft token emitted in
    place of the target's own, and a draft that goes on after a mistake."""
    history = [6, 6]
    logits = rows_for([3, 1, 4, 1][: len(draft) + 1])
    verdict = verify(draft, logits, GREEDY, history, never)
    assert verdict == (emitted, accepted, False)
    assert type(verdict.accepted) is int
    assert history == [6, 6, *emitted]


@pytest.mark.parametrize(
    ("end", "emitted", "accepted", "ended"),
    [
        (3, [3], 1, True),
        (1, [3, 1], 2, True),
        (4, [3, 1, 4], 3, True),  # the last of the draft: no bonus token after it
        (5, [3, 1, 4, 5], 3, True),  # the bonus token itself
        (7, [3, 1, 4, 5], 3, False),
    ],
)
def test_the_end_inside_a_draft(end: int, emitted: list[int], accepted: int, ended: bool) -> None:
    """Catches tokens emitted after the end, an end that is not counted as accepted, and `ends`
    (which feeds the stop string search) asked twice, out of order, or for a draft token."""
    asked: list[int] = []
    history = [0]
    verdict = verify([3, 1, 4], rows_for([3, 1, 4, 5]), GREEDY, history, ends_at(end, asked))
    assert verdict == (emitted, accepted, ended)
    assert asked == emitted
    assert history == [0, *emitted]


def test_the_end_in_place_of_a_draft_token() -> None:
    """Catches an end noticed only when the draft proposed it."""
    asked: list[int] = []
    verdict = verify([3, 2, 4], rows_for([3, 1, 4, 5]), GREEDY, [], ends_at(1, asked))
    assert verdict == ([3, 1], 1, True)
    assert asked == [3, 1]


def test_ends_sees_the_token_in_the_history() -> None:
    """Catches `ends` asked before the token was appended."""
    history = [7]
    seen: list[list[int]] = []

    def ends(token: int) -> bool:
        seen.append(list(history))
        return False

    verify([3, 1], rows_for([3, 1, 4]), GREEDY, history, ends)
    assert seen == [[7, 3], [7, 3, 1], [7, 3, 1, 4]]


def test_rows_after_the_last_emitted_token_are_not_looked_at() -> None:
    """Catches work (and errors) from rows that belong to a rejected draft."""
    logits = rows_for([3, 1, 4, 5])
    logits[2:] = np.nan
    assert verify([3, 2, 4], logits, GREEDY, [], never).tokens == [3, 1]
    with pytest.raises(BackendError):
        verify([3, 1, 4], logits, GREEDY, [], never)


def test_each_row_is_sampled_after_the_tokens_before_it() -> None:
    """Catches penalties or noise that see the history without the draft's accepted part."""
    penalised = Sampler(SamplingParams(temperature=0.0, presence_penalty=3.0, penalty_last_n=8))
    row = np.array([5, 4, 3.5, 0, 0, 0, 0, 0], np.float32)
    # Row by row the best one so far is penalised; at last all three are.
    verdict = verify([0, 1, 2], np.tile(row, (4, 1)), penalised, [7], never)
    assert verdict == ([0, 1, 2, 0], 3, False)

    warm = Sampler(SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5))
    flat = np.zeros((4, V), np.float32)
    wanted = [int(gumbel(5, position, np.arange(V)).argmax()) for position in range(10, 14)]
    assert verify(wanted[:3], flat, warm, [0] * 10, never).tokens == wanted
