"""Plots: well-formed, complete, nothing outside of the picture, and nothing drawn of nothing."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from edgespec.bench.judging.prediction import predictions
from edgespec.bench.plots.draw import PLOTS, plots
from edgespec.bench.plots.svg import text_width
from edgespec.bench.records import ALL, Result
from tests import bench_records as made

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>&amp; ]]> \" ' | \n\x00\x1b\u202e a very long name that goes on and on and on"
CATEGORIES = ("code-write", "code-edit", "extraction", "summarise", "maths", "chat")
MODES = ("native", "off", "k=1", "model:2", "model:4", "model:7", "n-gram:3", "n-gram:7", "auto")


def run(modes: tuple[str, ...] = MODES, categories: tuple[str, ...] = CATEGORIES) -> Result:
    """Speed-ups spread around 1; every mode but off and native drafts."""
    summaries, cells = [], []
    for number, mode in enumerate(modes):
        for place, category in enumerate((ALL, *categories)):
            given: dict[str, Any] = {"mode": mode, "category": category}
            if mode == "off":
                summaries.append(made.baseline_summary(**given))
                continue
            value = 0.7 + 0.1 * number + 0.03 * place
            given["speedup"] = made.interval(value)
            given["verdict"] = "slower" if value < 0.9 else "faster" if value > 1.1 else "same"
            if mode == "native":
                summaries.append(made.baseline_summary(**given))
            else:
                given["by_drafter"] = {mode.split(":")[0]: (960, 528)}
                summaries.append(made.summary(**given))
                cells.append(
                    made.drafting_cell(mode=mode, category=category, question_id=f"{category}-1")
                )
    return made.result(
        settings=made.settings(modes=list(modes)),
        summaries=summaries,
        cells=[cell for cell in cells if cell.category != ALL],
    )


def parsed(svg: str) -> ElementTree.Element:
    assert "nan" not in re.sub(r"<text.*?</text>", "", svg).lower()
    assert "inf" not in re.sub(r"<text.*?</text>", "", svg).lower()
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parsed(svg).iter(f"{SVG}text")]


RUNS = {
    "many modes": run(),
    "two modes": run(("off", "auto")),
    "one category": run(("off", "k=2"), ("chat",)),
    "hostile": run(("off", HOSTILE, f"{HOSTILE} 2", "auto"), (HOSTILE, "chat")),
}


@pytest.mark.parametrize("name", list(PLOTS))
@pytest.mark.parametrize("which", list(RUNS))
def test_plots_are_whole_and_inside_of_the_picture(which: str, name: str) -> None:
    root = parsed(plots(RUNS[which])[name])
    assert root.tag == f"{SVG}svg"
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert 400 <= width <= 900
    assert root.findtext(f"{SVG}title")
    for element in root.iter(f"{SVG}text"):
        size = 16 if element.get("class") == "title" else 11
        reach = text_width(element.text or "", size) * 0.95  # an upper bound of most fonts'
        x, y = float(element.get("x", -1)), float(element.get("y", -1))
        start = {"start": x, "middle": x - reach / 2, "end": x - reach}
        left = start[element.get("text-anchor", "start")]
        assert left >= 0, element.text
        assert left + reach <= width, element.text
        assert 10 <= y <= height - 3, element.text
    for element in root.iter():
        for key in ("x1", "x2", "cx"):
            assert 0 <= float(element.get(key, 0)) <= width
        for key in ("y1", "y2", "cy"):
            assert 0 <= float(element.get(key, 0)) <= height


@pytest.mark.parametrize("name", list(PLOTS))
def test_plots_need_nothing_from_elsewhere(name: str) -> None:
    svg = plots(run())[name]
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "url(" not in svg
    assert "@media (prefers-color-scheme:dark)" in svg
    assert 'class="page"' in svg


def test_foreign_text_is_escaped() -> None:
    for svg in plots(RUNS["hostile"]).values():
        assert "<script" not in svg
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", svg)
    shown = texts(plots(RUNS["hostile"])["speedup.svg"])
    assert any(text.startswith("<script>&amp; ") for text in shown)
    assert any(text.endswith("…") for text in shown)


def test_equal_results_give_equal_plots() -> None:
    assert plots(run()) == plots(run())


def test_a_plot_with_nothing_to_show_is_left_out() -> None:
    nothing = made.result(
        summaries=[made.baseline_summary()], cells=[made.cell()], draft=None, draft_curve=None
    )
    assert list(plots(nothing)) == ["cost_curve.svg"]
    without = made.result(summaries=[], cells=[], target_curve=made.curve(widths=[]))
    assert plots(without) == {}


@pytest.mark.parametrize(
    "curve",
    [
        {"widths": [2, 4]},
        {"widths": [1, 2], "seconds": [0.0, 0.1]},
        {"widths": [1, 2], "seconds": [], "spread": []},
    ],
)
def test_costs_that_say_nothing_are_not_drawn(curve: dict[str, Any]) -> None:
    result = made.result(target_curve=made.curve(**curve))
    assert "cost_curve.svg" not in plots(result)
    assert not predictions(result)


def test_a_single_width_is_enough() -> None:
    only = made.curve(widths=[1])
    assert "target" in texts(
        plots(made.result(target_curve=only, draft_curve=None))["cost_curve.svg"]
    )


def test_a_draft_model_s_prompt_does_not_squeeze_the_cost_curve() -> None:
    wide = made.curve(widths=[1, 2, 256])
    shown = texts(plots(made.result(draft_curve=wide))["cost_curve.svg"])
    narrow = texts(plots(made.result(draft_curve=made.curve(widths=[1, 2])))["cost_curve.svg"])
    assert "8" in shown
    assert "256" not in shown
    assert shown == narrow


def test_every_mode_and_category_has_its_speedup() -> None:
    shown = texts(plots(run())["speedup.svg"])
    for name in (ALL, *CATEGORIES):
        assert shown.count(name) == 3  # lines of panels
    for mode in MODES:
        assert shown.count(mode) == (mode != "off")
    for summary in run().summaries:
        if summary.speedup:
            assert f"{summary.speedup.value:.2f}" in shown
    for word in ("faster", "slower", "same", "predicted by the cost curves"):
        assert word in shown
    assert "not enough data" not in shown  # nothing to explain


def test_intervals_far_wider_than_the_estimates_are_cut_at_the_frame() -> None:
    wide = made.summary(speedup=made.interval(1.1, 0.001, 900.0))
    result = made.result(summaries=[wide, made.summary(category="chat")])
    shown = texts(plots(result)["speedup.svg"])
    assert "1.10" in shown
    assert "100" not in shown
    low = made.summary(speedup=made.interval(1e-9, -1.0, 0.0))
    assert parsed(plots(made.result(summaries=[low]))["speedup.svg"]) is not None


def test_the_cost_curve_names_the_best_k_of_each_drafter() -> None:
    shown = texts(plots(run(("off", "model:4", "n-gram:4")))["cost_curve.svg"])
    assert "model: best k 2, 17.1 tok/s" in shown
    assert "n-gram: best k 2, 20.0 tok/s" in shown
    assert "draft model, one token: 0.10" in shown
    assert "plain" in shown


def test_predictions_are_those_of_the_formula() -> None:
    model, copied = predictions(run(("off", "model:4", "n-gram:4")))
    # T(n) = 0.09 + 0.01 n, a drafted token 0.01 s; accepted 0.8, 0.75, 0.33, 1 given those before
    tokens = (1, 1.8, 2.4, 2.598, 2.796)
    assert model.speeds == pytest.approx(
        [count / (0.1 + 0.01 * k + 0.01 * k) for k, count in enumerate(tokens)]
    )
    assert copied.speeds == pytest.approx(
        [count / (0.1 + 0.01 * k) for k, count in enumerate(tokens)]
    )
    assert (model.drafter, model.mode, model.best) == ("model", "model:4", 2)


def test_acceptance_is_taken_from_the_longest_fixed_k() -> None:
    def summary(mode: str, positions: list[float | None], **given: Any) -> Any:
        return made.summary(mode=mode, acceptance_by_position=positions, **given)

    both = {"model": (10, 5), "n-gram": (10, 5)}
    result = made.result(
        summaries=[
            made.baseline_summary(),
            summary("auto", [0.9] * 8),
            summary("k=2", [0.5] * 2),
            summary("k=5", [0.5, 0.5, None, 0.5]),
            summary("mixed", [0.9] * 7, by_drafter=both),
            summary("model:1", [0.4]),
        ]
    )
    (found,) = predictions(result)
    assert (found.mode, len(found.speeds)) == ("k=5", 3)  # beyond None nothing is known
    alone = made.result(summaries=[summary("auto", [0.9] * 8)])
    assert [one.mode for one in predictions(alone)] == ["auto"]


def test_where_drafts_cost_more_than_they_bring_plain_is_best() -> None:
    useless = made.summary(mode="k=2", acceptance_by_position=[0.0, 0.0])
    result = made.result(summaries=[useless])
    assert predictions(result)[0].best == 0
    assert "model: plain is best" in texts(plots(result)["cost_curve.svg"])


def test_acceptance_has_a_line_per_mode_that_drafts() -> None:
    root = parsed(plots(run())["acceptance.svg"])
    lines = [element.get("class") for element in root.iter(f"{SVG}polyline")]
    assert len(lines) == len(set(lines)) == len(MODES) - 2
    shown = texts(plots(run())["acceptance.svg"])
    assert "auto" in shown
    assert "off" not in shown


def test_unknown_acceptance_leaves_a_gap() -> None:
    gaps = made.summary(acceptance_by_position=[0.5, None, 0.25])
    root = parsed(plots(made.result(summaries=[gaps]))["acceptance.svg"])
    (line,) = root.iter(f"{SVG}polyline")
    assert len((line.get("points") or "").split()) == 2
    none = made.summary(acceptance_by_position=[None])
    assert "acceptance.svg" not in plots(made.result(summaries=[none]))


def test_steps_are_those_of_auto_and_of_the_middle_prompt() -> None:
    def cell(number: int, accepted: int, **given: Any) -> Any:
        drafted = {"per_step_drafted": [4, 0, 4], "per_step_accepted": [accepted, 0, 0]}
        return made.drafting_cell(**{"question_id": f"chat-{number}", **drafted, **given})

    cells = [
        cell(1, 4),
        cell(2, 3),
        cell(3, 0),
        cell(4, 3, mode="k=2"),
        cell(5, 3, repetition=1),
        cell(6, 3, error="failed"),
        cell(7, 3, category="maths", per_step_drafted=[0], per_step_accepted=[0]),
    ]
    summaries = [made.summary(mode="k=2"), made.summary()]
    svg = plots(made.result(cells=cells, summaries=summaries))["k_over_time.svg"]
    shown = texts(svg)
    assert "k over the steps of an answer, mode auto" in shown
    assert "chat-2" in shown
    assert "2.00 tokens/step" in shown
    assert not {f"chat-{number}" for number in (1, 3, 4, 5, 6, 7)} & set(shown)
    bars = [e.get("d", "").count("M") for e in parsed(svg).iter(f"{SVG}path")]
    assert sorted(bars) == [1, 1, 1, 2]  # two samples in the legend; one step accepted, two drafted


def test_without_auto_the_first_mode_that_drafts_is_shown() -> None:
    shown = texts(plots(run(("off", "n-gram:3", "k=2")))["k_over_time.svg"])
    assert "k over the steps of an answer, mode n-gram:3" in shown


def test_very_long_answers_are_cut_and_it_is_said() -> None:
    many = made.drafting_cell(
        per_step_drafted=[3] * 5000, per_step_accepted=[1] * 5000, completion_tokens=10_001
    )
    svg = plots(made.result(cells=[many]))["k_over_time.svg"]
    assert any("first 400 steps" in text for text in texts(svg))
    assert len(svg) < 40_000
