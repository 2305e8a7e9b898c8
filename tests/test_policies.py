"""What an engine and a request may ask for, and what they get."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.decoding.adaptive import Adaptive
from edgespec.decoding.costs import CostCurve, LiveCosts
from edgespec.decoding.knowledge import Knowledge
from edgespec.decoding.policy import Fixed
from edgespec.errors import OptionError
from edgespec.policies import DraftTokens, Policies

BOTH = ("model", "n-gram")


def policies(k: DraftTokens = "auto", drafter: str = "auto", **more: Any) -> Policies:
    knowledge = Knowledge(LiveCosts(CostCurve(0, {1: 1.0}, {})))
    known = knowledge if k == "auto" else None
    return Policies(**{"drafters": BOTH, "drafter": drafter, "k": k, "knowledge": known, **more})


def asked_of(policy: Any) -> tuple[str, str, int | None]:
    if isinstance(policy, Adaptive):
        return "adaptive", policy._only, None
    assert isinstance(policy, Fixed)
    return "fixed", policy._drafter, policy._k


@pytest.mark.parametrize(
    ("k", "drafter", "usual"),
    [
        ("auto", "auto", ("adaptive", "", None)),
        ("auto", "n-gram", ("adaptive", "n-gram", None)),
        (3, "auto", ("fixed", "model", 3)),
        (3, "n-gram", ("fixed", "n-gram", 3)),
        (0, "auto", ("fixed", "model", 0)),
    ],
)
def test_the_usual_policy(k: DraftTokens, drafter: str, usual: tuple[str, str, int]) -> None:
    assert asked_of(policies(k, drafter).usual) == usual


@pytest.mark.parametrize(
    ("k", "drafter", "made"),
    [
        (0, "auto", ("fixed", "model", 0)),
        (5, "auto", ("fixed", "model", 5)),
        (5, "n-gram", ("fixed", "n-gram", 5)),
        ("auto", "model", ("adaptive", "model", None)),
    ],
)
def test_a_request_with_wishes(k: DraftTokens, drafter: str, made: tuple[str, str, int]) -> None:
    assert asked_of(policies().asked(drafter, k)) == made


def test_a_request_without_wishes_gets_the_usual() -> None:
    assert policies().asked("auto", "auto") is None
    assert policies(3).asked("auto", "auto") is None


def test_a_drafter_alone_keeps_the_usual_k() -> None:
    assert asked_of(policies(3).asked("n-gram", "auto")) == ("fixed", "n-gram", 3)


@pytest.mark.parametrize(
    ("usual", "drafter", "k", "made"),
    [
        (3, "auto", "auto", ("fixed", "prediction", 3)),
        (3, "auto", 5, ("fixed", "prediction", 5)),
        ("auto", "auto", 5, ("fixed", "prediction", 5)),
        (0, "auto", 5, ("fixed", "prediction", 5)),
        # Whoever is named drafts, and k = 0 is plain decoding.
        (3, "n-gram", "auto", ("fixed", "n-gram", 3)),
        ("auto", "model", 2, ("fixed", "model", 2)),
        ("auto", "n-gram", "auto", ("adaptive", "n-gram", None)),
        (3, "auto", 0, ("fixed", "model", 0)),
    ],
)
def test_where_k_is_a_number_a_prediction_is_the_draft(
    usual: DraftTokens, drafter: str, k: DraftTokens, made: tuple[str, str, int]
) -> None:
    assert asked_of(policies(usual).asked(drafter, k, predicted=True)) == made


@pytest.mark.parametrize("usual", ["auto", 0])
def test_elsewhere_a_prediction_changes_no_policy(usual: DraftTokens) -> None:
    """The adaptive policy asks all there are; who decodes plainly goes on doing so."""
    assert policies(usual).asked("auto", "auto", predicted=True) is None


def test_a_prediction_keeps_to_exact_widths() -> None:
    made = policies(3, widths=frozenset({1, 2, 3})).asked("auto", 8, predicted=True)
    assert asked_of(made) == ("fixed", "prediction", 2)


def test_without_drafters_a_prediction_is_no_draft() -> None:
    nobody = policies(0, drafters=())
    assert nobody.asked("auto", "auto", predicted=True) is None
    with pytest.raises(OptionError, match="Nobody drafts here"):
        nobody.asked("auto", 3, predicted=True)


def test_nobody_to_draft_means_plain() -> None:
    nobody = policies(0, drafters=())
    assert asked_of(nobody.usual) == ("fixed", "", 0)
    assert asked_of(nobody.asked("auto", 0)) == ("fixed", "", 0)
    with pytest.raises(OptionError, match="Nobody drafts here"):
        nobody.asked("auto", 3)


@pytest.mark.parametrize(
    ("k", "drafter", "message"),
    [
        (-1, "auto", "must be auto or between 0 and 32, not -1"),
        (33, "auto", "not 33"),
        (True, "auto", "not True"),
        (2.0, "auto", "not 2.0"),
        ("many", "auto", "not 'many'"),
        (3, "modell", "no drafter 'modell' here; loaded: model, n-gram"),
        (0, "corpus", "no drafter 'corpus'"),
    ],
)
def test_what_makes_no_sense_is_refused(k: Any, drafter: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        policies().asked(drafter, k)
