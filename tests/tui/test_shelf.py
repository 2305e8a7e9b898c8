"""What the pickers of models and draft models have to show."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgespec.catalog import pairing
from edgespec.catalog.discovery import discover
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import user_file
from edgespec.catalog.resolve import resolve_model, resolve_pair
from edgespec.errors import CatalogError
from edgespec.tui.shelf import DraftEntry, Entry, drafts, entries, shown_size
from tests.test_discovery import write
from tests.tiny_gguf import write_tiny_gguf, write_truncated, write_wrong_magic

pytestmark = pytest.mark.usefixtures("sizes_alone_count")
VOCABULARY = 4000  # large enough for the type of the weights to decide about the size


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_tiny_gguf(folder / "target.gguf", n_vocab=VOCABULARY)
    write_tiny_gguf(folder / "good-Q4_0.gguf", n_vocab=VOCABULARY, quant="Q4_0")
    write_tiny_gguf(folder / "good-Q8_0.gguf", n_vocab=VOCABULARY, quant="Q8_0")
    write_tiny_gguf(
        folder / "other.gguf", n_vocab=VOCABULARY, quant="Q8_0", token_texts={300: "~~"}
    )
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Files of the user's own, of which a test may delete some."""
    return Path(shutil.copytree(written, tmp_path / "models"))


@pytest.fixture
def target(folder: Path) -> Path:
    return folder / "target.gguf"


def write_models_toml(*lines: str) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text("\n".join(lines) + "\n", encoding="utf-8")


def pull(name: str, quant: str = "F32") -> Path:
    """A file as if edgespec had pulled it."""
    models_dir().mkdir(parents=True, exist_ok=True)
    return write_tiny_gguf(models_dir() / name, quant=quant)


def one(name: str) -> Entry:
    [found] = [entry for entry in entries().entries if entry.name == name]
    return found


def titles(found: list[DraftEntry]) -> list[str]:
    return [draft.title for draft in found]


# Models.


def test_models_that_can_be_pulled_are_there_with_size_and_license() -> None:
    model = one("qwen3-8b")
    assert model.target is None
    assert not model.pair
    assert model.detail.startswith("5.0 GB · to be pulled · Apache-2.0 · Chat and reasoning")
    assert "531 MB" in one("qwen2.5-coder-0.5b").detail


def test_pairs_tell_their_models_and_sizes() -> None:
    pair = one("qwen3-8b-with-0.6b")
    assert (pair.pair, pair.draft, pair.target) == (True, "qwen3-0.6b", None)
    assert "5.7 GB · to be pulled · qwen3-8b + qwen3-0.6b · Apache-2.0 · " in pair.detail
    assert "smollm2-135m, no draft model" in one("default").detail
    assert one("default").draft is None


def test_files_of_other_programs_and_own_folders_are_there(folder: Path) -> None:
    write_models_toml(f"folders = ['{folder}']")
    pull("pulled.gguf")
    found = one(str(folder / "good-Q4_0.gguf"))
    assert found.title == "good-Q4_0"
    assert found.target == folder / "good-Q4_0.gguf"
    assert found.detail.startswith("Q4_0 · ")
    assert found.detail.endswith(f" kB · {folder}")
    assert one(str(models_dir() / "pulled.gguf")).detail.endswith(" · edgespec")


def test_what_is_named_can_be_loaded(folder: Path) -> None:
    write_models_toml(
        f"folders = ['{folder}']",
        f"[models.mine]\nsource = 'path:{folder / 'target.gguf'}'",
        "[pairs.alone]\ntarget = 'mine'",
    )
    here = [entry for entry in entries().entries if entry.target is not None]
    assert len(here) == 5
    for entry in here:
        load = resolve_pair(entry.name)[0] if entry.pair else resolve_model(entry.name)
        assert load == entry.target


def test_what_is_no_model_or_broken_is_left_out(folder: Path) -> None:
    write_models_toml(f"folders = ['{folder}']")
    write(folder / "adapter.gguf", kind="adapter")
    write_wrong_magic(folder / "broken.gguf")
    (folder / "empty.gguf").touch()
    shown = {entry.title for entry in entries().entries}
    assert "target" in shown
    assert not shown & {"adapter", "broken", "empty"}


def test_a_file_that_models_toml_names_is_not_there_twice(target: Path, folder: Path) -> None:
    write_models_toml(
        f"folders = ['{folder}']",
        f"[models.mine]\nsource = 'path:{target}'\nlicense = 'MIT'\nnote = 'My own.'",
    )
    same = [entry for entry in entries().entries if entry.target == target]
    assert [entry.name for entry in same] == ["mine"]
    assert same[0].detail.endswith(f"MB · {folder} · MIT · My own.")


def test_what_can_be_loaded_at_once_comes_first(target: Path, folder: Path) -> None:
    write_models_toml(
        f"folders = ['{folder}']",
        f"[models.mine]\nsource = 'path:{target}'",
        f"[models.small]\nsource = 'path:{folder / 'good-Q4_0.gguf'}'",
        "[models.away]\nsource = 'hf:a/b'\nfiles = ['x.gguf']",
        "[pairs.whole]\ntarget = 'mine'\ndraft = 'small'",
        "[pairs.half]\ntarget = 'mine'\ndraft = 'away'",
        "[pairs.headless]\ntarget = 'away'\ndraft = 'small'",
    )
    names = [entry.title for entry in entries().entries]
    assert names[:3] == ["whole", "mine", "small"]
    assert set(names[3:5]) == {"good-Q8_0", "other"}
    assert {"half", "away", "headless"} <= set(names[5:])
    assert " · here · " in one("whole").detail
    assert "draft: to be pulled · " in one("half").detail
    assert one("half").target == target
    assert "target: to be pulled · " in one("headless").detail


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    write_models_toml(f"[models.mine]\nsource = 'path:{tmp_path / 'gone.gguf'}'")
    assert one("mine").target is None
    assert one("mine").detail == f"there is no file {tmp_path / 'gone.gguf'}"


@pytest.mark.parametrize("text", ["[models.x", "[models.x]\nsource = 'nonsense:x'"])
def test_a_damaged_models_toml_hides_no_files_and_is_complained_of(text: str) -> None:
    pulled = pull("pulled.gguf")
    write_models_toml(text)
    found = entries()
    assert [entry.target for entry in found.entries] == [pulled]
    assert str(user_file()) in found.complaint
    assert "\n" not in found.complaint


def test_a_sound_models_toml_gives_no_complaint() -> None:
    assert entries().complaint == ""


# Draft models.


@pytest.fixture
def own_folder(folder: Path) -> None:
    write_models_toml(f"folders = ['{folder}']")


@pytest.mark.usefixtures("own_folder")
def test_drafts_come_from_auto_to_what_does_not_fit(target: Path, folder: Path) -> None:
    found = drafts(target, gpu=False)
    assert titles(found) == ["auto", "none", "good-Q4_0", "good-Q8_0", "other"]
    assert [draft.fits for draft in found] == [True] * 4 + [False]
    assert found[2].name == str(folder / "good-Q4_0.gguf")
    assert "x guessed · " in found[2].detail
    assert " of memory · " in found[2].detail
    assert found[4].detail.startswith("does not fit: token 300 is ")


@pytest.mark.usefixtures("own_folder")
def test_auto_tells_what_it_takes(target: Path, folder: Path) -> None:
    assert drafts(target, gpu=False)[0].detail.startswith("good-Q4_0, fits, ")
    pairing.keep_speedup(target, folder / "good-Q8_0.gguf", 2.5)
    assert drafts(target, gpu=False)[0].detail == "good-Q8_0, fits, 2.50x measured"
    pairing.choose_draft(target, folder / "good-Q4_0.gguf")
    assert drafts(target, gpu=False)[0].detail.startswith("good-Q4_0, your choice, fits, ")
    assert "your choice" in drafts(target, gpu=False)[3].detail


@pytest.mark.usefixtures("own_folder")
def test_auto_tells_why_it_takes_none(target: Path, folder: Path) -> None:
    for name in ("good-Q4_0.gguf", "good-Q8_0.gguf"):
        pairing.keep_speedup(target, folder / name, 0.9)
    assert "do not promise to be faster" in drafts(target, gpu=False)[0].detail
    pairing.choose_draft(target, "none")
    assert "chosen so" in drafts(target, gpu=False)[0].detail
    pairing.choose_draft(target, "auto")
    for name in ("good-Q4_0.gguf", "good-Q8_0.gguf"):
        (folder / name).unlink()
    assert "no model on this machine fits" in drafts(target, gpu=False)[0].detail


def test_what_could_be_pulled_comes_before_what_does_not_fit(target: Path, folder: Path) -> None:
    write_models_toml(
        f"folders = ['{folder}']",
        f"[models.big]\nsource = 'path:{target}'",
        f"[models.small]\nsource = 'hf:a/b'\nfiles = ['x.gguf']\nsize = {10**5}",
        "[pairs.one]\ntarget = 'big'\ndraft = 'small'",
    )
    found = drafts(target, gpu=False)
    assert titles(found)[-2:] == ["small", "other"]
    assert found[-2].name == "small"
    assert found[-2].detail.endswith("x guessed · 100.0 kB · to be pulled")


def test_drafts_are_there_with_a_damaged_models_toml(target: Path, folder: Path) -> None:
    shutil.copytree(folder, models_dir())
    write_models_toml("[models.x")
    assert "good-Q4_0" in titles(drafts(target, gpu=False))


@pytest.mark.parametrize("damage", [Path.unlink, write_truncated, write_wrong_magic])
def test_a_target_that_cannot_be_read_is_one_line(damage: object, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "target.gguf")
    pull("pulled.gguf", "Q4_0")
    if damage is write_truncated:
        write_truncated(path, 0.01)
    else:
        damage(path)  # type: ignore[operator]
    with pytest.raises(CatalogError) as error:
        drafts(path, gpu=False)
    assert "\n" not in str(error.value)
    assert "target.gguf" in str(error.value)


def test_a_file_that_goes_away_meanwhile_is_one_line(
    target: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_models_toml(f"folders = ['{folder}']")
    found = discover([folder])
    (folder / "other.gguf").unlink()
    monkeypatch.setattr("edgespec.tui.shelf.discover", lambda folders: found)
    with pytest.raises(CatalogError, match=r"cannot be compared, .*other.gguf: No such file"):
        drafts(target, gpu=False)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (500, "0.5 kB"),
        (98_362_432, "98.4 MB"),
        (999_949_999, "999.9 MB"),
        (999_950_000, "1.0 GB"),
        (4_683_074_336, "4.7 GB"),
        (2 * 10**12, "2.0 TB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_sizes_are_short(size: int, text: str) -> None:
    assert shown_size(size) == text
