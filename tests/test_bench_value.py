"""What a mode is worth: every figure by hand, and only from what is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgespec.bench.judging.value import values
from edgespec.bench.records import Cell, Value
from tests.bench_records import (
    GIB,
    cell,
    cells,
    divergence,
    draft_file,
    drafting_cell,
    failed_cell,
    machine,
    settings,
)


def worth(made: Sequence[Cell] | None = None, **overrides: Any) -> Value:
    """Of the only mode; settings may be overridden. Plain 6.9 s for 65 tokens, auto 4.5 s."""
    found = values(
        cells() if made is None else made, settings(**overrides), machine(), draft_file()
    )
    assert [one.mode for one in found] == ["auto"]
    return found[0]


def tasks(off: Sequence[float], auto: Sequence[float], **overrides: Any) -> list[Cell]:
    """Code tasks of 65 tokens that take these seconds in all."""
    made = []
    for number, (before, after) in enumerate(zip(off, auto, strict=True)):
        named = {"question_id": f"code-{number}", "category": "code-write"}
        made.append(cell(**{**named, "e2e_s": before, **overrides}))
        made.append(drafting_cell(**{**named, "e2e_s": after, **overrides}))
    return made


def test_seconds_by_hand() -> None:
    found = worth(tasks([10.0, 20.0, 60.0], [8.0, 12.0, 62.0]))
    assert found.tasks == 3
    assert (found.baseline_task_s, found.task_s) == (20.0, 12.0)  # medians
    assert found.saved_per_task_s.value == pytest.approx((2 + 8 - 2) / 3)  # mean
    assert found.saved_per_task_s.low < 0 < 8 < found.saved_per_task_s.high
    assert found.saved_per_100_tasks_s == pytest.approx(800 / 3)
    assert found.tokens_per_core_s == pytest.approx(3 * 65 / 82 / 4)
    assert found.baseline_tokens_per_core_s == pytest.approx(3 * 65 / 90 / 4)
    assert found.draft_bytes == GIB // 8


def test_only_code_counts_if_there_is_any() -> None:
    made = tasks([10.0, 20.0], [5.0, 10.0]) + cells(("chat",))
    found = worth(made)
    assert found.tasks == 2
    assert found.saved_per_task_s.value == pytest.approx(7.5)
    assert found.assumptions[0] == (
        "The tasks are 2 prompts (code-write), timed from asking to the last token."
    )


@pytest.mark.parametrize("category", ["code-write", "code-edit", "humaneval"])
def test_the_categories_of_code(category: str) -> None:
    assert worth(cells((category, "chat"))).tasks == 6


def test_without_code_everything_counts_and_it_is_said() -> None:
    found = worth(cells(("chat", "reason")))
    assert found.tasks == 12
    assert found.assumptions[0] == (
        "The tasks are 12 prompts (chat, reason, as no code was in the suite), "
        "timed from asking to the last token."
    )


def test_repetitions_are_one_task() -> None:
    made = tasks([10.0, 20.0], [5.0, 10.0])
    made += [one.model_copy(update={"repetition": 1, "e2e_s": one.e2e_s + 2}) for one in made]
    found = worth(made)
    assert found.tasks == 2
    assert found.baseline_task_s == pytest.approx(16.0)
    assert found.saved_per_task_s.value == pytest.approx(7.5)


def test_only_tasks_that_succeeded_in_both_are_counted() -> None:
    made = tasks([10.0, 20.0, 60.0], [8.0, 12.0, 62.0])
    made[5] = failed_cell(question_id="code-2", category="code-write", mode="auto")
    made += [cell(question_id="code-9", category="code-write", e2e_s=500.0)]
    made += [cell(question_id="empty", category="code-write", completion_tokens=0)]
    found = worth(made)
    assert (found.tasks, found.baseline_task_s, found.task_s) == (2, 15.0, 10.0)
    assert found.baseline_tokens_per_core_s == pytest.approx(130 / 30 / 4)


def test_every_mode_but_plain_decoding_has_a_value() -> None:
    modes = ["native", "off", "auto", "k=2", "native (2)"]
    made = cells()
    for mode in ("native", "k=2", "native (2)"):
        made += [one.model_copy(update={"mode": mode}) for one in made if one.mode == "auto"]
    found = values(made, settings(modes=modes), machine(), None)
    assert [one.mode for one in found] == ["auto", "k=2"]
    assert [one.draft_bytes for one in found] == [0, 0]


def test_a_mode_without_a_draft_model_is_not_charged_for_one() -> None:
    made = [
        one.model_copy(update={"mode": "n-gram:3"}) if one.mode == "auto" else one
        for one in cells()
    ]
    (found,) = values(made, settings(modes=["off", "n-gram:3"]), machine(), draft_file())
    assert found.draft_bytes == 0


@pytest.mark.parametrize(
    "made",
    [
        [],
        [one for one in cells() if one.mode == "auto"],  # no baseline
        [one for one in cells() if one.mode == "off"],
        cells(("code-write",), 1),  # one task has no interval
        [*cells(("code-write",), 1), *cells(("chat",))],
        [failed_cell(mode=mode) for mode in ("off", "auto")],
    ],
)
def test_no_value_without_two_tasks(made: list[Cell]) -> None:
    assert values(made, settings(), machine(), None) == []


def test_no_energy_and_no_prices() -> None:
    found = worth()
    for name in ("tokens_per_joule", "cost_per_million"):
        assert getattr(found, name) is None
        assert getattr(found, f"baseline_{name}") is None
    assert "Energy was not measured, and --watts was not given." in found.assumptions
    assert not any("cost" in assumption for assumption in found.assumptions)


def test_watts_by_hand() -> None:
    """65 tokens in 4.5 s at 20 W."""
    found = worth(watts=20.0)
    assert found.tokens_per_joule == pytest.approx(65 / 90)
    assert found.baseline_tokens_per_joule == pytest.approx(65 / 138)
    assert "The machine draws 20 W in every mode, as given by --watts." in found.assumptions


def test_measured_energy_by_hand() -> None:
    made = [
        one.model_copy(update={"energy_j": 69.0 if one.mode == "off" else 90.0}) for one in cells()
    ]
    found = worth(made)
    assert found.baseline_tokens_per_joule == pytest.approx(65 / 69)
    assert found.tokens_per_joule == pytest.approx(65 / 90)
    (power,) = [one for one in found.assumptions if "RAPL" in one]
    assert "20.0 W, and 10.0 W in plain decoding" in power


def test_given_watts_stand_above_the_measured() -> None:
    """The user's figure is of the whole machine, and was typed to be used."""
    found = worth(cells(energy_j=69.0), watts=20.0)
    assert found.tokens_per_joule == pytest.approx(65 / 90)
    assert not any("RAPL" in assumption for assumption in found.assumptions)


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_energy_measured_in_one_mode_only_compares_nothing(mode: str) -> None:
    made = [
        one.model_copy(update={"energy_j": 69.0 if one.mode == mode else None}) for one in cells()
    ]
    found = worth(made, price_kwh=0.3)
    assert found.tokens_per_joule is found.baseline_tokens_per_joule is None
    assert found.cost_per_million is found.baseline_cost_per_million is None


def test_cost_of_energy_by_hand() -> None:
    """A million tokens in auto: 1e6 * 4.5 / 65 s at 36 W, 0.30 for 3.6e6 J."""
    found = worth(watts=36.0, price_kwh=0.3)
    assert found.cost_per_million == pytest.approx(1e6 * 4.5 / 65 * 36 / 3.6e6 * 0.3)
    assert found.baseline_cost_per_million == pytest.approx(1e6 * 6.9 / 65 * 36 / 3.6e6 * 0.3)
    assert "A kilowatt hour costs 0.3." in found.assumptions
    assert "The machine is not in the cost: its price or its years were not given." in (
        found.assumptions
    )


def test_cost_of_hardware_by_hand() -> None:
    """315.36 a year is 1e-5 a second."""
    found = worth(hardware_price=946.08, hardware_years=3.0)
    assert found.cost_per_million == pytest.approx(1e6 * 4.5 / 65 * 1e-5)
    assert "Energy is not in the cost: --price-kwh was not given." in found.assumptions
    assert "The machine costs 946.08, lasts 3 years, and is at work all the time." in (
        found.assumptions
    )


def test_cost_of_both_is_their_sum() -> None:
    energy = worth(watts=36.0, price_kwh=0.3).cost_per_million
    hardware = worth(hardware_price=900.0, hardware_years=3.0).cost_per_million
    both = worth(watts=36.0, price_kwh=0.3, hardware_price=900.0, hardware_years=3.0)
    assert energy is not None
    assert hardware is not None
    assert both.cost_per_million == pytest.approx(energy + hardware)
    assert "Money is in the currency of the prices given." in both.assumptions


def test_a_price_of_energy_without_energy_costs_nothing_known() -> None:
    found = worth(price_kwh=0.3)
    assert found.cost_per_million is None
    assert "Energy is not in the cost: it was not measured, and --watts was not given." in (
        found.assumptions
    )
    with_hardware = worth(price_kwh=0.3, hardware_price=900.0, hardware_years=3.0)
    assert (
        with_hardware.cost_per_million
        == worth(hardware_price=900.0, hardware_years=3.0).cost_per_million
    )


def test_a_price_without_years_is_not_spread() -> None:
    assert worth(hardware_price=900.0).cost_per_million is None
    assert worth(watts=0.0, price_kwh=0.3).tokens_per_joule is None


def test_equal_answers_are_of_equal_quality_and_others_are_counted() -> None:
    assert (
        "Every answer is that of plain decoding, token for token: the quality is the same."
        in worth().assumptions
    )
    made = cells()
    made[1] = made[1].model_copy(update={"divergence": divergence()})
    assert (
        "1 of the answers differ from those of plain decoding, in length too; "
        "the same quality is assumed." in worth(made).assumptions
    )


def test_every_assumption_is_one_sentence_or_two() -> None:
    given = {"watts": 20.0, "price_kwh": 0.3, "hardware_price": 900.0, "hardware_years": 3.0}
    found = worth(cells(energy_j=1.0), **given)
    assert len(found.assumptions) == 8
    for assumption in found.assumptions:
        assert assumption.endswith(".")
        assert assumption[0].isupper()
        assert "\n" not in assumption
