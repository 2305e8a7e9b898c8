"""The explanation of an answer: complete, and its arithmetic right."""

from __future__ import annotations

import pytest

from edgespec.cli.explanation import explanation_lines
from edgespec.decoding.knowledge import Knowledge
from edgespec.decoding.policy import Fixed
from edgespec.explaining import Explanation, explain
from edgespec.types import Step
from tests.test_adaptive import (
    PROMPT,
    Machine,
    adaptive,
    mixed,
    plain,
    run,
)


def explained(widths: frozenset[int] | None = None) -> tuple[Explanation, list[Step], Knowledge]:
    made = []

    def policy(machine: Machine):  # type: ignore[no-untyped-def]
        made.append(adaptive(widths)(machine))
        return made[-1]

    text = mixed(1)
    steps = run([text], policy, right=lambda at: at % 4 != 0).steps
    knowledge = made[0]._known
    return explain(knowledge, widths, steps, text[:PROMPT]), steps, knowledge


def test_it_counts_what_happened() -> None:
    found, steps, knowledge = explained()
    decoding = [step for step in steps if not step.prefilled]
    assert sum(sum(count.values()) for count in found.lengths.values()) == len(decoding)
    for drafter, lengths in found.lengths.items():
        for length, count in lengths.items():
            its = [s for s in decoding if (s.drafter or "plain", s.drafted) == (drafter, length)]
            assert len(its) == count
    seconds = sum(s.draft_s + s.verify_s + s.sample_s + s.other_s for s in decoding)
    assert found.decoding_s == pytest.approx(seconds)
    # The machine of the test costs exactly what its curves say.
    assert found.choices["adaptive"] == pytest.approx(seconds, rel=0.05)
    assert {chance.drafter for chance in found.chances} == {"n-gram", "model"}
    asked = sum(bool(step.draft_passes) for step in decoding)
    assert sum(asking.times for asking in found.askings) == asked == knowledge.askings


@pytest.mark.parametrize("k", [0, 2, 5])
def test_a_fixed_choice_is_what_it_would_have_been(k: int) -> None:
    """Against a run with that choice on the same text."""
    found, _, _ = explained()
    went = run([mixed(1)], lambda machine: Fixed(k, "n-gram"))
    prefill = sum(step.verify_s for step in went.steps if step.prefilled)
    name = f"n-gram {k}" if k else "plain"
    assert found.choices[name] == pytest.approx(went.seconds - prefill, rel=0.05)


def test_regret_is_against_the_best_of_the_others() -> None:
    found, _, _ = explained()
    others = [seconds for name, seconds in found.choices.items() if name != "adaptive"]
    assert found.regret == pytest.approx(found.choices["adaptive"] / min(others) - 1)


def test_only_identical_widths_are_spoken_of_in_exact_mode() -> None:
    found, _, _ = explained(frozenset({1, 2, 3, 4}))
    assert set(found.passes) == {1, 2, 3, 4}
    assert "n-gram 3" in found.choices
    assert "n-gram 4" not in found.choices


def test_it_can_be_read() -> None:
    text = "\n".join(explanation_lines(explained()[0]))
    for part in ("draft model", "sure to", "match of", "no copy", "plain", "model 3, estimated"):
        assert part in text
    assert max(map(len, text.splitlines())) < 180


def test_an_answer_of_one_token_has_nothing_to_compare() -> None:
    knowledge = explained()[2]
    found = explain(knowledge, None, [], [1, 2])
    assert found.regret is None
    assert list(explanation_lines(found))


def test_a_prompt_of_one_token_is_not_read_and_all_its_tokens_are_decoded() -> None:
    """Catches fixed choices that are given one step less than the adaptive one."""
    knowledge = explained()[2]
    steps = [step for step in run([[0, *range(10, 60)]], plain).steps if not step.prefilled]
    found = explain(knowledge, None, steps, [0])
    passes = sum(knowledge.target.at(1, step.position) for step in steps)
    assert found.choices["adaptive"] == pytest.approx(passes)
    assert found.choices["plain"] == pytest.approx(passes, rel=0.05)
