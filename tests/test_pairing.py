"""Which draft models are found for a target, in which order, and which one is taken."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgespec.catalog import measurements, pairing
from edgespec.catalog.discovery import discover
from edgespec.catalog.pairing import (
    Candidate,
    best_draft,
    choose_draft,
    chosen_draft,
    find_draft,
    keep_speedup,
    measured_speedup,
    predicted_speedup,
    rank,
    suggestions,
    wants_no_draft,
)
from edgespec.catalog.registry import user_file
from edgespec.errors import CatalogError
from tests.command import run_here
from tests.tiny_gguf import (
    write_changed_vocabulary,
    write_tiny_gguf,
    write_truncated,
    write_wrong_magic,
)

pytestmark = pytest.mark.usefixtures("sizes_alone_count")
VOCABULARY = 4000  # large enough for the type of the weights to decide about the size


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve files: three good drafts, others that are wrong in ways of their own."""
    folder = tmp_path_factory.mktemp("models")
    write_tiny_gguf(folder / "target.gguf", n_vocab=VOCABULARY)
    write_tiny_gguf(folder / "good-q4.gguf", n_vocab=VOCABULARY, quant="Q4_0")
    write_tiny_gguf(folder / "good-q8.gguf", n_vocab=VOCABULARY, quant="Q8_0")
    write_tiny_gguf(folder / "longer.gguf", n_vocab=VOCABULARY + 100, quant="Q8_0")
    write_tiny_gguf(folder / "as-large.gguf", n_vocab=VOCABULARY, seed=1)
    write_changed_vocabulary(folder / "other-token.gguf")
    write_tiny_gguf(folder / "much-shorter.gguf", n_vocab=3000)
    write_tiny_gguf(folder / "no-bos.gguf", n_vocab=VOCABULARY, quant="Q8_0", add_bos=False)
    write_tiny_gguf(
        folder / "one-token.gguf", n_vocab=VOCABULARY, quant="Q8_0", token_texts={300: "~~"}
    )
    write_truncated(folder / "truncated.gguf", 0.01)
    write_wrong_magic(folder / "no-model.gguf")
    (folder / "empty.gguf").touch()
    return folder


@pytest.fixture
def target(folder: Path) -> Path:
    return folder / "target.gguf"


@pytest.fixture
def ranked(folder: Path, target: Path) -> list[Candidate]:
    return rank(target, discover([folder]), gpu=False)


def names(candidates: list[Candidate]) -> list[str]:
    return [candidate.model.name for candidate in candidates]


def test_the_right_ones_come_first(ranked: list[Candidate]) -> None:
    assert names(ranked)[:3] == ["good-q4", "good-q8", "longer"]
    assert [bool(one.mismatch) for one in ranked] == [False] * 3 + [True] * 6
    speedups = [one.speedup for one in ranked[:3]]
    assert speedups == sorted(speedups, key=lambda s: -(s or 0.0))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("as-large", "it is 100% of the target's size, too dear"),
        ("other-token", f"vocabularies have {VOCABULARY} and 300 tokens"),
        ("much-shorter", f"vocabularies have {VOCABULARY} and 3000 tokens"),
        ("no-bos", r"begin texts differently \(with '<\|bos\|>', without a token\)"),
        ("one-token", "token 300 is '.+' in one and '~~' in the other"),
        ("truncated", "is damaged"),
    ],
)
def test_the_others_have_their_reasons(ranked: list[Candidate], name: str, reason: str) -> None:
    found = next(one for one in ranked if one.model.name == name)
    assert re.search(reason, found.mismatch), found.mismatch
    assert found.speedup is None
    assert found.verdict.startswith("does not fit: ")


@pytest.mark.parametrize("name", ["no-model", "empty", "target"])
def test_what_is_broken_or_the_target_itself_is_no_candidate(
    ranked: list[Candidate], name: str
) -> None:
    assert name not in names(ranked)


def test_verdicts_are_kept_and_vocabularies_read_once(
    folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rank(target, discover([folder]), gpu=False)
    monkeypatch.setattr(pairing, "read_vocabulary", None)  # reading again would fail
    assert rank(target, discover([folder]), gpu=False) == before


def test_what_was_measured_counts_more_than_what_was_guessed(folder: Path, target: Path) -> None:
    keep_speedup(target, folder / "longer.gguf", 3.0)
    keep_speedup(target, folder / "good-q4.gguf", 0.9)
    found = rank(target, discover([folder]), gpu=False)
    assert names(found)[:3] == ["longer", "good-q8", "good-q4"]
    assert [one.measured for one in found[:3]] == [True, False, True]
    assert found[0].verdict == "fits, 3.00x measured"


def test_a_measurement_that_is_damaged_is_none(folder: Path, target: Path) -> None:
    draft = folder / "longer.gguf"
    for damaged in ({"speedup": "fast"}, {"speedup": -1.0}, {}):
        measurements.keep(pairing._speedup_key(target, draft), damaged)
        assert measured_speedup(target, draft) is None


# Guesses.


@pytest.mark.parametrize("gpu", [True, False])
def test_smaller_drafts_promise_more_and_none_promises_wonders(gpu: bool) -> None:
    guesses = [predicted_speedup(10**10, 10**7 * d, gpu=gpu) for d in (600, 300, 100, 50, 20, 5)]
    assert guesses == sorted(guesses)
    assert guesses[0] >= 1.0
    assert guesses[-1] < 3.5


def test_wide_passes_are_cheaper_on_a_gpu() -> None:
    assert predicted_speedup(1000, 100, gpu=True) > predicted_speedup(1000, 100, gpu=False)


# What is taken.


def test_the_best_is_taken_if_it_promises_to_pay(ranked: list[Candidate]) -> None:
    best = best_draft(ranked)
    assert best is not None
    assert best.model.name == "good-q4"
    assert best_draft([]) is None
    assert best_draft([one for one in ranked if one.mismatch]) is None


def test_a_draft_that_was_slow_here_is_not_taken_unless_chosen(folder: Path, target: Path) -> None:
    models = [one for one in discover([folder]) if one.name in ("good-q4", "target")]
    keep_speedup(target, folder / "good-q4.gguf", 1.01)
    assert best_draft(rank(target, models, gpu=False)) is None
    choose_draft(target, folder / "good-q4.gguf")
    best = best_draft(rank(target, models, gpu=False))
    assert best is not None
    assert best.chosen


def test_a_choice_can_be_changed_and_forgotten(folder: Path, target: Path) -> None:
    assert chosen_draft(target) is None
    choose_draft(target, folder / "good-q8.gguf")
    assert chosen_draft(target) == folder / "good-q8.gguf"
    choose_draft(target, "none")
    assert chosen_draft(target) is None
    assert wants_no_draft(target)
    choose_draft(target, "auto")
    assert not wants_no_draft(target)
    assert json.loads(pairing.choices_file().read_text()) == {}


def test_a_chosen_file_that_is_gone_is_no_choice(
    folder: Path, target: Path, tmp_path: Path
) -> None:
    choose_draft(target, tmp_path / "gone.gguf")
    assert chosen_draft(target) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 3}', "\xff"])
def test_damaged_choices_are_none(text: str, target: Path) -> None:
    pairing.choices_file().parent.mkdir(parents=True)
    pairing.choices_file().write_text(text, encoding="latin-1")
    assert chosen_draft(target) is None
    choose_draft(target, "none")
    assert wants_no_draft(target)


def test_a_choice_that_cannot_be_kept_is_an_error(target: Path) -> None:
    pairing.choices_file().parent.parent.mkdir(parents=True)
    pairing.choices_file().parent.write_text("a file in the way", encoding="utf-8")
    with pytest.raises(CatalogError, match="cannot be kept"):
        choose_draft(target, "none")


def own_folder(folder: Path) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(f"folders = ['{folder}']\n", encoding="utf-8")


def test_folders_of_the_user_are_looked_into(folder: Path, target: Path) -> None:
    assert find_draft(target, gpu=False) == (None, "")
    own_folder(folder)
    path, why = find_draft(target, gpu=False)
    assert path == folder / "good-q4.gguf"
    assert "the best on this machine; it fits" in why
    assert "--draft none" in why
    choose_draft(target, "none")
    assert find_draft(target, gpu=False) == (None, "")


def test_without_a_target_nothing_is_found(tmp_path: Path, folder: Path) -> None:
    own_folder(folder)
    assert find_draft(tmp_path / "gone.gguf", gpu=False) == (None, "")


# The command.


def test_the_table_shows_what_fits(
    folder: Path, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own_folder(folder)
    shown = run_here(capfd, "models", "pair", str(target))
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[1].split()[:2] == ["*", "good-q4"]
    assert "x guessed" in lines[1]
    assert "Models that cannot draft for it: 6" in shown.out
    assert "* drafts for target.gguf unless --draft says otherwise" in shown.out
    every = run_here(capfd, "models", "pair", str(target), "--all").out
    assert "does not fit: token 300" in " ".join(every.split())


def test_a_draft_that_models_toml_names_is_suggested(
    folder: Path, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(
        f"[models.big]\nsource = 'path:{target}'\n[models.small]\nsource = 'hf:a/b'\n"
        f"files = ['x.gguf']\nsize = {target.stat().st_size // 10}\n"
        "[models.copy]\nsource = 'hf:a/c'\nfiles = ['target.gguf']\n"
        "[models.tiny]\nsource = 'hf:a/d'\nfiles = ['y.gguf']\n"
        "[models.other]\nsource = 'hf:a/e'\nfiles = ['z.gguf']\n"
        "[pairs.one]\ntarget = 'big'\ndraft = 'small'\n"
        "[pairs.two]\ntarget = 'copy'\ndraft = 'tiny'\n"
        "[pairs.three]\ntarget = 'other'\ndraft = 'small'\n",
        encoding="utf-8",
    )
    found = suggestions(target, gpu=False)
    assert [one.name for one in found] == ["small", "tiny"]
    assert (found[0].speedup or 0) > 1.2
    assert (found[1].size, found[1].speedup) == (None, None)
    shown = run_here(capfd, "models", "pair", str(target))
    assert "edgespec models pull small" in shown.out
    record = json.loads(run_here(capfd, "models", "pair", str(target), "--json").out)
    assert [one["name"] for one in record["not_here"]] == ["small", "tiny"]


def test_use_stores_the_choice(
    folder: Path, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own_folder(folder)
    draft = folder / "good-q8.gguf"
    shown = run_here(capfd, "models", "pair", str(target), "--use", str(draft), "--json")
    taken = [one["name"] for one in json.loads(shown.out)["drafts"] if one["taken"]]
    assert taken == ["good-q8"]
    shown = run_here(capfd, "models", "pair", str(target), "--use", "none")
    assert "your choice; --use auto takes the best again" in shown.out
    shown = run_here(capfd, "models", "pair", str(target), "--use", "auto")
    assert "the best; --use takes another" in shown.out


def test_a_draft_that_does_not_fit_cannot_be_chosen(
    folder: Path, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = str(folder / "no-bos.gguf")
    complaint = run_here(capfd, "models", "pair", str(target), "--use", wrong).complaint(1)
    assert "no-bos.gguf cannot draft for target.gguf: they begin texts differently" in complaint
    assert chosen_draft(target) is None
    complaint = run_here(capfd, "models", "pair", str(target), "--use", str(target)).complaint(1)
    assert "cannot draft for itself" in complaint


def test_a_pair_stands_for_its_target(
    folder: Path, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own_folder(folder)
    with user_file().open("a", encoding="utf-8") as file:
        file.write(f"[models.mine]\nsource = 'path:{target}'\n[pairs.both]\ntarget = 'mine'\n")
    shown = run_here(capfd, "models", "pair", "both")
    assert "* drafts for target.gguf" in shown.out


@pytest.mark.parametrize("name", ["nonesuch", "/nowhere/x.gguf"])
def test_an_unknown_target_is_one_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    shown = run_here(capfd, "models", "pair", name)
    assert shown.code in (1, 2)
    assert shown.err.count("\n") == 1
