"""The plan of a run and its cells: order, turns, failures, divergences, interruption, resuming."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgespec.bench.benchmark import run_benchmark
from edgespec.bench.journal import NAME, Journal
from edgespec.bench.modes import Mode, parse_modes
from edgespec.bench.options import BenchOptions
from edgespec.bench.records import Cell, Result
from edgespec.bench.runner import order
from edgespec.bench.subject import Subject
from edgespec.bench.suite import Prompt, Suite
from edgespec.errors import BackendError, BenchError, OptionError
from edgespec.protocols import Logits, Row
from tests.bench_fakes import TimedModel, VirtualClock, fake_subject, letters, made_suite
from tests.fakes import FakeTokenizer


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def subject(clock: VirtualClock) -> Iterator[Subject]:
    made = fake_subject(clock, lambda n: 0.01 * n)
    with closing(made.engine):
        yield made


def run(subject: Subject, clock: VirtualClock, suite: Suite | None = None, **kw: Any) -> Result:
    outside = {
        name: kw.pop(name) for name in ("journal", "progress", "sleep", "command") if name in kw
    }
    options = BenchOptions(**{"repetitions": 1, "max_tokens": 20, "modes": "off,auto", **kw})
    return run_benchmark(subject, suite or made_suite(4), options, clock=clock, **outside)


def cells(result: Result, mode: str) -> list[Cell]:
    return [cell for cell in result.cells if cell.mode == mode]


# The order.


def test_the_order_goes_back_the_way_it_came() -> None:
    modes = [Mode(name) for name in "ABC"]
    assert "".join(mode.name for mode, _ in order(modes, 0, 4)) == "ABCCBAABCCBA"
    assert [repetition for _, repetition in order(modes, 0, 2)] == [0, 0, 0, 1, 1, 1]


def test_no_mode_is_favoured_by_its_place() -> None:
    modes = [Mode(name) for name in "ABC"]
    places = Counter(
        (mode.name, place)
        for index in range(6)
        for place, (mode, _) in enumerate(order(modes, index, 1))
    )
    assert set(places.values()) == {2}


def test_cells_are_in_the_planned_order(subject: Subject, clock: VirtualClock) -> None:
    result = run(subject, clock, modes="native,off,2", repetitions=2)
    assert [cell.order for cell in result.cells] == list(range(4 * 3 * 2))
    assert [cell.mode for cell in result.cells[:6]] == [
        "native",
        "off",
        "k=2",
        "k=2",
        "off",
        "native",
    ]
    assert Counter(cell.mode for cell in result.cells) == {"native": 8, "off": 8, "k=2": 8}


# Modes.


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("off", ["off"]),
        ("0", ["off"]),
        ("auto", ["off", "auto"]),
        (" native , off,auto ", ["native", "off", "auto"]),
        ("3,model:2,n-gram:32", ["off", "k=3", "model:2", "n-gram:32"]),
        ("off,off,off", ["off", "off (2)", "off (3)"]),
    ],
)
def test_modes(text: str, names: list[str]) -> None:
    assert [mode.name for mode in parse_modes(text)] == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "of",
        "auto,",
        "model",
        "model:",
        "corpus:3",
        "33",
        "model:0",
        "-1",
        "1.5",
        "³",
        "off;auto",
    ],
)
def test_modes_that_do_not_exist(text: str) -> None:
    with pytest.raises(OptionError, match=r"mode"):
        parse_modes(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"repetitions": 0}, "--repetitions must be at least 1"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"budget_s": 0.0}, "--budget must be above 0"),
        ({"precision": -1.0}, "--precision"),
        ({"watts": float("inf")}, "--watts"),
        ({"cooldown_s": -1.0}, "--cooldown must be at least 0"),
        ({"cooldown_s": float("nan")}, "--cooldown"),
        ({"price_kwh": 0.3}, "--price-kwh needs --watts"),
        ({"hardware_price": 900.0}, "Give both"),
        ({"temperature": 0.7}, "leave native out"),
        ({"temperature": -1.0, "modes": "off"}, "temperature"),
        ({"seed": -1}, "seed"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        BenchOptions(**options)


# Cells.


def test_every_answer_starts_from_empty_memory(subject: Subject, clock: VirtualClock) -> None:
    result = run(subject, clock, modes="native,off,auto,4")
    assert {cell.cached_tokens for cell in result.cells} == {0}
    assert {cell.completion_tokens for cell in result.cells} == {20}
    assert {cell.decoded for cell in result.cells} == {19}


def test_counts_and_seconds_agree(subject: Subject, clock: VirtualClock) -> None:
    result = run(subject, clock, modes="native,off,4")
    for cell in result.cells:
        assert cell.decode_s == pytest.approx(cell.e2e_s - cell.ttft_s)
        assert cell.prefill_s == pytest.approx(cell.ttft_s)  # nothing else takes virtual time
        assert len(cell.per_step_drafted) == (0 if cell.mode == "native" else cell.steps)
        parts = cell.draft_s + cell.verify_s + cell.sample_s + cell.other_s
        assert cell.mode == "native" or parts == pytest.approx(cell.decode_s)
        if cell.mode == "k=4":
            assert cell.decoded == cell.steps + cell.accepted
            assert cell.by_drafter == {"n-gram": (cell.drafted, cell.accepted)}
        else:
            assert (cell.steps, cell.drafted) == (19, 0)
    assert len({cell.token_sha256 for cell in result.cells}) == 4  # one a prompt
    assert not any(cell.divergence for cell in result.cells)


def test_later_turns_see_the_conversation_and_reuse_memory(
    subject: Subject, clock: VirtualClock
) -> None:
    result = run(subject, clock, made_suite(2, turns=2))
    for cell in result.cells:
        assert (cell.turns, cell.completion_tokens, cell.decoded) == (2, 40, 38)
        first = (cell.prompt_tokens - cell.cached_tokens) / 2
        assert 0.4 * cell.prompt_tokens < cell.cached_tokens + first
        assert cell.cached_tokens > 20


def test_a_temperature_above_0_is_reproducible(subject: Subject, clock: VirtualClock) -> None:
    result = run(subject, clock, modes="off,auto", temperature=1.0, seed=3, repetitions=2)
    assert len({cell.token_sha256 for cell in result.cells}) == 4
    assert not result.comparable


def test_an_answer_may_end_by_itself(clock: VirtualClock) -> None:
    plain = letters()

    def ends(tokens: Sequence[int]) -> Logits:
        row = plain(tokens).copy()
        row[FakeTokenizer.END] = 100.0 if len(tokens) % 50 == 0 else -100.0
        return row

    subject = fake_subject(clock, lambda n: 0.01, table=ends)
    with closing(subject.engine):
        result = run(subject, clock, modes="native,off,auto", max_tokens=60)
    assert {cell.finish_reason for cell in result.cells} == {"stop"}
    assert all(cell.completion_tokens < 60 for cell in result.cells)
    assert len({cell.token_sha256 for cell in result.cells}) == 4


def test_cooldown_rests_before_every_answer(subject: Subject, clock: VirtualClock) -> None:
    rests: list[float] = []
    run(subject, clock, made_suite(2), cooldown_s=2.5, sleep=rests.append)
    assert rests == [2.5] * 4


def test_a_command_that_is_not_utf_8_does_not_lose_the_result(
    subject: Subject, clock: VirtualClock
) -> None:
    result = run(subject, clock, made_suite(1), command=["edgespec", "bench", "\udcff.gguf"])
    assert result.command[2] == "\ufffd.gguf"
    assert result.model_dump_json()


# What goes wrong.


def test_a_prompt_beyond_the_context_is_skipped_in_all_modes(
    subject: Subject, clock: VirtualClock
) -> None:
    long = Prompt(question_id="long", category="chat", turns=("word " * 1000,))
    later = Prompt(question_id="later", category="chat", turns=("short", "word " * 1000))
    suite = made_suite(2)
    suite = Suite(suite.name, (*suite.prompts, long, later), suite.sha256, False)
    result = run(subject, clock, suite)
    assert [skipped.question_id for skipped in result.skipped] == ["long", "later"]
    assert "the context holds 2048" in result.skipped[0].reason
    assert {cell.question_id for cell in result.cells} == {"q-00", "q-01"}
    assert any("skipped" in note or "left out" in note for note in result.notes)
    assert not result.comparable


def test_when_no_prompt_fits_that_is_the_error(subject: Subject, clock: VirtualClock) -> None:
    long = Prompt(question_id="long", category="chat", turns=("word " * 1000,))
    with pytest.raises(BenchError, match=r"Nothing was measured.*context holds 2048"):
        run(subject, clock, Suite("made", (long,), "2" * 64, False))


class FailingModel(TimedModel):
    """Fails in wide passes from the moment it is told to."""

    failing = False

    def decode(self, rows: Sequence[Row]) -> Logits:
        if self.failing and 1 < len(rows) < 10:
            raise BackendError("out of memory")
        return super().decode(rows)


def test_a_failed_answer_is_counted_and_the_run_goes_on(clock: VirtualClock) -> None:
    model = FailingModel(letters(), clock, lambda n: 0.01)
    subject = fake_subject(clock, lambda n: 0.01, target=model)

    def fail_from_now(what: str, done: float) -> None:
        model.failing = what.startswith("q-01")

    with closing(subject.engine):
        result = run(subject, clock, progress=fail_from_now)
    failed = [cell for cell in result.cells if cell.error]
    assert {(cell.question_id, cell.mode, cell.error) for cell in failed} == {
        ("q-01", "auto", "out of memory")
    }
    assert failed[0].completion_tokens == 0
    assert sum(summary.failed for summary in result.summaries if summary.category == "all") == 1
    assert any("fail" in note for note in result.notes)


class WobblyModel(TimedModel):
    """Wide passes are not those of one token: some logits are off by `size`."""

    def __init__(self, clock: VirtualClock, size: float) -> None:
        super().__init__(letters(), clock, lambda n: 0.01)
        self.size = size

    def decode(self, rows: Sequence[Row]) -> Logits:
        logits = super().decode(rows)
        if 1 < len(rows) < 10:
            logits[:, 97:110] += self.size
        return logits


def test_differing_answers_are_classified(clock: VirtualClock) -> None:
    subject = fake_subject(clock, lambda n: 0.01, target=WobblyModel(clock, 0.5))
    with closing(subject.engine):
        result = run(subject, clock, made_suite(6), modes="native,off,auto", max_tokens=60)
    found = [cell.divergence for cell in result.cells if cell.divergence]
    assert found
    assert {cell.mode for cell in result.cells if cell.divergence} == {"auto"}
    for divergence in found:
        assert divergence.gap is not None
        assert divergence.tau is not None
        assert divergence.kind == "near-tie"
        assert divergence.gap <= 0.5 + 1e-3
        assert divergence.tau <= 0.5 + 1e-3
    auto = next(s for s in result.summaries if (s.mode, s.category) == ("auto", "all"))
    assert auto.differing == auto.near_ties == len(found)


class BrokenModel(TimedModel):
    """Right when scored, wrong while an answer is verified: like a bug in the positions."""

    wrong = False

    def decode(self, rows: Sequence[Row]) -> Logits:
        logits = super().decode(rows)
        if self.wrong and len(rows) == 4:
            logits[:, 97:123] = -logits[:, 97:123]
        return logits


def test_a_bug_is_not_taken_for_a_near_tie(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = BrokenModel(letters(), clock, lambda n: 0.01)
    subject = fake_subject(clock, lambda n: 0.01, target=model)
    alone = subject.engine.exclusively

    def scored_rightly(work: Any) -> Any:
        model.wrong = False
        return alone(work)

    monkeypatch.setattr(subject.engine, "exclusively", scored_rightly)
    monkeypatch.setattr(subject.engine, "forget", lambda: alone(lambda: None))

    def wrong_while_auto(what: str, done: float) -> None:
        model.wrong = what.endswith(", auto")

    with closing(subject.engine):
        result = run(subject, clock, made_suite(3), progress=wrong_while_auto)
    kinds = Counter(cell.divergence.kind for cell in result.cells if cell.divergence)
    assert kinds["near-tie"] == 0
    assert kinds["unexplained"] >= 1
    assert any("unexplained" in note or "bug" in note for note in result.notes)


# Stopping, and going on.


def interrupt_at(question: str) -> Any:
    def progress(what: str, done: float) -> None:
        if what.startswith(question):
            raise KeyboardInterrupt

    return progress


def test_ctrl_c_ends_early_with_what_is_done(subject: Subject, clock: VirtualClock) -> None:
    result = run(subject, clock, progress=interrupt_at("q-02"))
    assert {cell.question_id for cell in result.cells} == {"q-00", "q-01"}
    assert result.stopped_by == "ctrl-c"
    assert not result.comparable


def test_ctrl_c_before_anything_is_done_is_just_that(subject: Subject, clock: VirtualClock) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(subject, clock, progress=interrupt_at("q-00"))


def test_a_budget_is_not_exceeded(subject: Subject, clock: VirtualClock) -> None:
    whole = run(subject, clock, made_suite(10))
    assert whole.stopped_by is None
    before = clock()
    part = run(subject, clock, made_suite(10), budget_s=70.0)
    assert clock() - before < 70.0
    assert part.stopped_by == "budget"
    questions = {cell.question_id for cell in part.cells}
    assert 1 <= len(questions) < 10
    assert Counter(cell.mode for cell in part.cells) == {
        "off": len(questions),
        "auto": len(questions),
    }


def test_precision_ends_a_run_that_is_sure_enough(subject: Subject, clock: VirtualClock) -> None:
    part = run(subject, clock, made_suite(30), precision=0.5)
    assert part.stopped_by == "precision"
    assert len(part.cells) < 60


def test_an_interrupted_run_goes_on_where_it_stopped(
    subject: Subject, clock: VirtualClock, tmp_path: Path
) -> None:
    first = run(subject, clock, journal=Journal(tmp_path), progress=interrupt_at("q-02"))
    seen: list[str] = []
    second = run(
        subject,
        clock,
        journal=Journal(tmp_path),
        progress=lambda what, done: seen.append(what),
    )
    assert not any(what.startswith(("q-00", "q-01", "cost curve")) for what in seen)
    assert second.cells[: len(first.cells)] == first.cells
    assert {cell.question_id for cell in second.cells} == {"q-00", "q-01", "q-02", "q-03"}
    assert second.target_curve == first.target_curve
    assert second.stopped_by is None


def test_a_line_that_was_not_finished_is_run_again(
    subject: Subject, clock: VirtualClock, tmp_path: Path
) -> None:
    run(subject, clock, journal=Journal(tmp_path), progress=interrupt_at("q-02"))
    file = tmp_path / NAME
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole[:-30], encoding="utf-8")  # the machine died while writing q-01
    again = run(subject, clock, journal=Journal(tmp_path))
    assert [cell.question_id for cell in again.cells] == [
        question for question in ("q-00", "q-01", "q-02", "q-03") for _ in range(2)
    ]


def test_only_the_same_run_is_taken_up(
    subject: Subject, clock: VirtualClock, tmp_path: Path
) -> None:
    run(subject, clock, journal=Journal(tmp_path), progress=interrupt_at("q-02"))
    with pytest.raises(BenchError, match=r"other settings.*--restart"):
        run(subject, clock, journal=Journal(tmp_path), max_tokens=21)


@pytest.mark.parametrize("text", ["", "nonsense\n", "{}\n", "\x00\n"])
def test_a_spoilt_journal(text: str, subject: Subject, clock: VirtualClock, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    if not text:
        assert run(subject, clock, journal=Journal(tmp_path)).stopped_by is None
        return
    with pytest.raises(BenchError, match="--restart"):
        run(subject, clock, journal=Journal(tmp_path))


def test_a_journal_that_is_not_text(subject: Subject, clock: VirtualClock, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xff\xfe\n")
    with pytest.raises(BenchError, match="cannot be read"):
        run(subject, clock, journal=Journal(tmp_path))


def test_progress_goes_from_0_to_the_end(subject: Subject, clock: VirtualClock) -> None:
    seen: list[tuple[str, float]] = []
    run(subject, clock, progress=lambda what, done: seen.append((what, done)))
    prompts = [done for what, done in seen if what.startswith("q-")]
    assert prompts == sorted(prompts)
    assert prompts[0] == 0.0
    assert 0.8 < prompts[-1] < 1.0
    assert seen[0] == ("cost curve of the target", 0.0)
