"""Finding models that are on the machine already: every program's layout, and every mess."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest

from edgespec.catalog import paths, places
from edgespec.catalog.discovery import LocalModel, discover
from edgespec.catalog.paths import models_dir
from tests.test_gguf_header import ARRAY, STRING, U32, array, header, text, value

MODEL_LAYER = "application/vnd.ollama.image.model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
VARIABLES = (
    *("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"),
    *("LMSTUDIO_HOME", "OLLAMA_MODELS", "LLAMA_CACHE"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own directory, empty. Nothing of this machine is searched."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(places, "_OLLAMA_SERVICE", tmp_path / "service")
    monkeypatch.setattr(places, "cache_dir_of", lambda program: home / ".cache" / program)
    return home


def write(
    path: Path,
    arch: str = "llama",
    *,
    kind: str = "model",
    layers: int = 2,
    pooling: int | None = None,
    tensors: int = 1,
    seed: float = 1.0,
) -> Path:
    """A small GGUF file. Files of different seeds have different contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type(kind)
    writer.add_size_label("7B")
    writer.add_file_type(15)
    if layers:
        writer.add_block_count(layers)
        writer.add_context_length(4096)
    if pooling is not None:
        writer.add_uint32(f"{arch}.pooling_type", pooling)
    for number in range(tensors):
        writer.add_tensor(f"{number}.weight", np.full(8, seed, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def link(target: Path | str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("this user may not make symbolic links")
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pull_from_hub(
    cache: Path, repository: str, file: str, commit: str = COMMIT, **of: float
) -> Path:
    """A file as huggingface_hub stores it. Returns the blob."""
    directory = cache / f"models--{repository.replace('/', '--')}"
    written = write(directory / "blobs" / "new", **of)  # type: ignore[arg-type]
    blob = written.rename(written.with_name(sha256(written)))
    snapshot = directory / "snapshots" / commit / file
    link(os.path.relpath(blob, snapshot.parent), snapshot)
    return blob


def pull_from_ollama(models: Path, name: str, seed: float = 1.0, **manifest: object) -> Path:
    """A model as Ollama stores it, under `REGISTRY/NAMESPACE/MODEL/TAG`. Returns the blob."""
    written = write(models / "blobs" / "new", seed=seed)
    digest = sha256(written)
    blob = written.replace(written.with_name(f"sha256-{digest}"))
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'ab' * 32}"},
        {"mediaType": MODEL_LAYER, "digest": f"sha256:{digest}", "size": 1},
    ]
    write_manifest(models, json.dumps({"schemaVersion": 2, "layers": layers, **manifest}), name)
    return blob


def write_manifest(models: Path, content: str, name: str) -> Path:
    manifest = models / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(content, encoding="utf-8")
    return manifest


def shown(models: Sequence[LocalModel]) -> list[tuple[str, str]]:
    return [(model.place, model.name) for model in models]


def only(folder: Path) -> LocalModel:
    """The one model that is found below `folder`."""
    [model] = discover([folder])
    return model


def test_every_layout(home: Path, tmp_path: Path) -> None:
    own = write(models_dir() / "own.gguf", seed=1)
    write(models_dir() / "large" / "large-00001-of-00001.gguf", seed=2)
    pull_from_hub(home / ".cache/huggingface/hub", "owner/name-GGUF", "q4/from-hub.gguf", seed=3)
    write(home / ".lmstudio/models/publisher/name/from-studio.gguf", seed=4)
    write(home / ".cache/lm-studio/models/publisher/name/from-old-studio.gguf", seed=5)
    pull_from_ollama(home / ".ollama/models", "registry.ollama.ai/library/llama3/8b", seed=6)
    write(home / ".cache/llama.cpp/owner_name_from-cache.gguf", seed=8)
    write(tmp_path / "folder/deep/down/B.GGUF", seed=9)
    write(tmp_path / "folder/a.gguf", seed=10)
    found = discover([tmp_path / "folder", tmp_path / "missing"])
    assert shown(found) == [
        ("edgespec", "large"),
        ("edgespec", "own"),
        ("hugging face", "from-hub"),
        ("lm studio", "from-old-studio"),
        ("lm studio", "from-studio"),
        ("ollama", "llama3:8b"),
        ("llama.cpp", "owner_name_from-cache"),
        ("folder", "a"),
        ("folder", "B"),
    ]
    assert found[1] == LocalModel(
        name="own",
        path=own,
        size=own.stat().st_size,
        place="edgespec",
        architecture="llama",
        quantization="Q4_K_M",
        parameters="7B",
        context_length=4096,
    )
    assert {(model.broken, model.kind) for model in found} == {("", "model")}


def test_nothing_at_all(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert discover() == []
    assert discover([tmp_path / "missing", Path("nul\0byte"), Path("~nobody/models")]) == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ],
)
def test_where_the_hub_cache_is(
    variable: str, below: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for weaker in VARIABLES[VARIABLES.index(variable) + 1 : 4]:
        monkeypatch.setenv(weaker, str(home / "not-here"))
    monkeypatch.setenv(variable, "~/elsewhere")
    pull_from_hub(home / "elsewhere" / below, "a/b", "there.gguf")
    pull_from_hub(home / ".cache/huggingface/hub", "a/b", "not-there.gguf", seed=2)
    assert shown(discover()) == [("hugging face", "there")]


def test_a_hub_cache_on_a_system_without_links(home: Path) -> None:
    snapshots = home / ".cache/huggingface/hub/models--a--b/snapshots"
    write(snapshots / COMMIT / "m.gguf")
    write(home / ".cache/huggingface/hub/datasets--a--b/snapshots" / COMMIT / "data.gguf")
    assert shown(discover()) == [("hugging face", "m")]


def test_where_lm_studio_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "pointed-to/models/a/b/pointed.gguf", seed=1)
    (home / ".lmstudio-home-pointer").write_text(f"{home / 'pointed-to'}\n", encoding="utf-8")
    write(home / "downloads/a/b/downloaded.gguf", seed=2)
    settings = json.dumps({"downloadsFolder": str(home / "downloads")})
    (home / "pointed-to/settings.json").write_text(settings, encoding="utf-8")
    write(home / "from-variable/models/a/b/variable.gguf", seed=3)
    monkeypatch.setenv("LMSTUDIO_HOME", str(home / "from-variable"))
    names = [("lm studio", name) for name in ("downloaded", "pointed", "variable")]
    assert shown(discover()) == names


@pytest.mark.parametrize(
    "settings", ["", "[", "[]", '{"downloadsFolder": 3}', '{"downloadsFolder": "."}', "\0"]
)
def test_broken_settings_of_lm_studio(settings: str, home: Path) -> None:
    write(home / ".lmstudio/models/a/b/m.gguf")
    (home / ".lmstudio/settings.json").write_text(settings, encoding="utf-8")
    (home / ".lmstudio-home-pointer").write_text("nul\0byte", encoding="utf-8")
    assert shown(discover()) == [("lm studio", "m")]


def test_where_ollama_is(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pull_from_ollama(home / ".ollama/models", "registry.ollama.ai/library/usual/1b")
    pull_from_ollama(home / "elsewhere", "registry.ollama.ai/library/moved/1b", seed=2)
    pull_from_ollama(tmp_path / "service", "registry.ollama.ai/library/served/1b", seed=3)
    monkeypatch.setattr(sys, "platform", "linux")
    assert [model.name for model in discover()] == ["served:1b", "usual:1b"]
    monkeypatch.setenv("OLLAMA_MODELS", f'"{home / "elsewhere"}" ')
    assert [model.name for model in discover()] == ["moved:1b", "served:1b"]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert [model.name for model in discover()] == ["moved:1b"]


def test_names_of_ollama(home: Path) -> None:
    models = home / ".ollama/models"
    names = ("registry.ollama.ai/someone/tuned/7b", "hf.co/owner/name-GGUF/Q5_K_M")
    for seed, name in enumerate(names):
        pull_from_ollama(models, name, seed=seed)
    found = discover()
    assert [model.name for model in found] == ["hf.co/owner/name-GGUF:Q5_K_M", "someone/tuned:7b"]
    assert all(model.path.parent == models / "blobs" for model in found)


def test_several_names_of_one_model_of_ollama(home: Path) -> None:
    for tag in ("latest", "8b"):
        pull_from_ollama(home / ".ollama/models", f"registry.ollama.ai/library/llama3/{tag}")
    assert shown(discover()) == [("ollama", "llama3:8b")]


def test_newer_manifests_of_ollama_are_links(home: Path) -> None:
    models, name = home / ".ollama/models", "registry.ollama.ai/library/new/1b"
    pull_from_ollama(models, name)
    manifest = models / "manifests" / name
    blob = manifest.replace(models / "blobs" / f"sha256-{sha256(manifest)}")
    link(blob, models / "manifests-v2" / name)
    assert shown(discover()) == [("ollama", "new:1b")]


@pytest.mark.parametrize("beside", [True, False])
def test_newer_manifests_of_ollama_may_list_variants(beside: bool, home: Path) -> None:
    models = home / ".ollama/models"
    write(models / "blobs" / f"sha256-{'ab' * 32}")
    variant = layers(f"sha256:{'ab' * 32}")
    if beside:
        (models / "blobs" / f"sha256-{'cd' * 32}").write_text(variant, encoding="utf-8")
        variant = json.dumps({"digest": f"sha256:{'cd' * 32}"})
    other = '{"layers": [{"mediaType": "application/vnd.ollama.image.tensor"}]}'
    write_manifest(models, f'{{"manifests": [{other}, {variant}]}}', "r/n/m/t")
    assert shown(discover()) == [("ollama", "r/n/m:t")]


def layers(digest: object) -> str:
    return json.dumps({"layers": [{"mediaType": MODEL_LAYER, "digest": digest}]})


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "not JSON",
        "[" * 100_000,
        "[]",
        '{"layers": 3}',
        '{"layers": [3, null, {"mediaType": 3}]}',
        '{"manifests": [3, {"digest": "sha256:../../etc/passwd"}, {"manifests": []}]}',
        layers("../../etc/passwd"),
        layers("sha256:../../etc/passwd"),
        layers(f"sha256:{'a' * 63}/"),
        layers(f"sha256:{'a' * 64}\n"),
        layers(["sha256"]),
        layers(None),
        layers(f"sha256:{'ab' * 32}") + " " * (2 << 20),
        "9" * 10_000,
    ],
)
def test_hostile_manifests(manifest: str, home: Path) -> None:
    models = home / ".ollama/models"
    write_manifest(models, manifest, "registry.ollama.ai/library/evil/latest")
    write_manifest(models, layers(f"sha256:{'ab' * 32}"), "too/short")
    write_manifest(models, layers(f"sha256:{'ab' * 32}"), "this/is/far/too/long")
    pull_from_ollama(models, "registry.ollama.ai/library/good/latest")
    assert shown(discover()) == [("ollama", "good:latest")]


def test_a_manifest_without_its_model(home: Path) -> None:
    blob = pull_from_ollama(home / ".ollama/models", "registry.ollama.ai/library/gone/latest")
    blob.unlink()
    [model] = discover()
    assert (model.name, model.size, model.path) == ("gone:latest", 0, blob)
    assert model.broken.startswith("its file is gone")


def test_where_the_cache_of_llama_cpp_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.cache_dir_of("llama.cpp").name == "llama.cpp"
    write(home / "elsewhere/old.gguf", seed=1)
    pull_from_hub(home / "elsewhere", "owner/name", "new.gguf", seed=2)
    monkeypatch.setenv("LLAMA_CACHE", str(home / "elsewhere"))
    assert shown(discover()) == [("llama.cpp", "new"), ("llama.cpp", "old")]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells this otherwise")
def test_the_cache_of_another_program_is_the_platforms(home: Path) -> None:
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert paths.cache_dir_of("llama.cpp") == home / usual / "llama.cpp"


def test_one_file_under_several_names_is_listed_once(home: Path, tmp_path: Path) -> None:
    blob = pull_from_hub(home / ".cache/huggingface/hub", "a/b", "first.gguf")
    link(blob, home / ".lmstudio/models/a/b/second.gguf")
    hard = tmp_path / "folder/third.gguf"
    hard.parent.mkdir()
    os.link(blob, hard)
    link(hard, tmp_path / "folder/fourth.gguf")
    pull_from_hub(home / ".cache/huggingface/hub", "a/b", "other.gguf", seed=2)
    folder = tmp_path / "folder"
    found = discover([folder, folder, tmp_path])
    assert shown(found) == [("hugging face", "first"), ("hugging face", "other")]


def test_one_content_under_two_names_that_tell_it_is_listed_once(home: Path) -> None:
    blob = pull_from_hub(home / ".cache/huggingface/hub", "a/b", "m.gguf")
    same = pull_from_ollama(home / ".ollama/models", "registry.ollama.ai/library/m/1b")
    assert blob.name == same.name.removeprefix("sha256-")
    assert not blob.samefile(same)
    assert shown(discover()) == [("hugging face", "m")]


def test_a_copy_whose_name_does_not_tell_is_listed(tmp_path: Path) -> None:
    write(tmp_path / "folder/one.gguf")
    write(tmp_path / "folder/two.gguf")
    assert len(discover([tmp_path / "folder"])) == 2


def split(folder: Path, name: str, numbers: Sequence[int], count: int) -> list[Path]:
    names = [folder / f"{name}-{number:05}-of-{count:05}.gguf" for number in numbers]
    return [write(path, seed=number) for number, path in enumerate(names)]


def test_a_split_model_counts_once(tmp_path: Path) -> None:
    files = split(tmp_path / "folder", "big-Q8_0", [1, 2, 3], 3)
    split(tmp_path / "folder/other", "big-Q8_0", [1], 1)
    found = discover([tmp_path / "folder"])
    assert [model.name for model in found] == ["big-Q8_0", "big-Q8_0"]
    assert found[0].path == files[0]
    assert found[0].size == sum(path.stat().st_size for path in files)
    assert [model.broken for model in found] == ["", ""]


@pytest.mark.parametrize(
    ("numbers", "missing"), [([1, 3], 2), ([1, 2], 3), ([2, 3], 1), ([3], 1), ([1], 2)]
)
def test_a_missing_part(numbers: list[int], missing: int, tmp_path: Path) -> None:
    files = split(tmp_path / "folder", "big", numbers, 3)
    model = only(tmp_path / "folder")
    assert (model.name, model.path) == ("big", files[0])
    assert model.broken == f"part {missing} of 3 is missing"
    assert model.architecture == ("llama" if numbers[0] == 1 else "")


def test_a_part_that_is_a_link_to_nowhere_is_missing(tmp_path: Path) -> None:
    split(tmp_path / "folder", "big", [1], 2)
    link("nowhere", tmp_path / "folder/big-00002-of-00002.gguf")
    assert only(tmp_path / "folder").broken == "part 2 of 2 is missing"


def test_a_damaged_part(tmp_path: Path) -> None:
    split(tmp_path / "folder", "big", [1, 2], 2)[1].write_bytes(b"<html>")
    assert "is not a GGUF file" in only(tmp_path / "folder").broken


def test_of_two_downloads_that_share_a_part_the_whole_one_is_listed(tmp_path: Path) -> None:
    whole = split(tmp_path / "folder/b", "big", [1, 2], 2)
    half = tmp_path / "folder/a" / whole[0].name
    half.parent.mkdir()
    os.link(whole[0], half)
    model = only(tmp_path / "folder")
    assert (model.path, model.broken) == (whole[0], "")


@pytest.mark.parametrize(
    "name", ["m-00000-of-00002", "m-00003-of-00002", "m-1-of-2", "-00001-of-00002"]
)
def test_names_that_only_look_split(name: str, tmp_path: Path) -> None:
    write(tmp_path / "folder" / f"{name}.gguf")
    model = only(tmp_path / "folder")
    assert (model.name, model.broken) == (name, "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html>", "it is not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is not a GGUF file"),
        (header(counts=(0, 9)), "it is damaged"),
    ],
)
def test_a_broken_file_is_listed_as_such(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(content)
    model = only(path.parent)
    assert (model.name, model.size, model.kind) == ("m", len(content), "model")
    assert model.broken.startswith(words)
    assert "\n" not in model.broken


def test_a_link_to_nowhere(tmp_path: Path) -> None:
    link("nowhere", tmp_path / "folder/m.gguf")
    link("m.gguf", tmp_path / "folder/again.gguf")
    assert [model.size for model in discover([tmp_path / "folder"])] == [0]
    link("loop.gguf", tmp_path / "loops/loop.gguf")
    assert only(tmp_path / "loops").broken


def test_what_is_no_model(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / "directory.gguf" / "inside.gguf")
    for name in ("m.gguf.part", "m.gguf.incomplete", "._inside.gguf", ".hidden/m.gguf", "m.bin"):
        write(folder / name, seed=2)
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.gguf")
    assert shown(discover([folder])) == [("folder", "inside")]
    assert discover([folder / "m.bin"]) == []


def test_links_between_directories(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(tmp_path / "far-away/linked.gguf", seed=1)
    write(folder / "one/m.gguf", seed=2)
    link(tmp_path / "far-away", folder / "one/away")
    link(folder, folder / "one/back")
    link("loop", folder / "loop")
    assert shown(discover([folder])) == [("folder", "linked"), ("folder", "m")]


def test_the_search_has_a_bottom(tmp_path: Path) -> None:
    levels = [str(level) for level in range(10)]
    write(tmp_path.joinpath("folder", *levels[:7], "reached.gguf"), seed=1)
    write(tmp_path.joinpath("folder", *levels[:8], "too-deep.gguf"), seed=2)
    assert shown(discover([tmp_path / "folder"])) == [("folder", "reached")]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this user may read everything"
)
def test_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / "fine.gguf", seed=1)
    locked, closed = write(folder / "locked.gguf", seed=2), folder / "closed"
    write(closed / "unseen.gguf", seed=3)
    locked.chmod(0)
    closed.chmod(0)
    try:
        found = discover([folder])
    finally:
        closed.chmod(0o700)
    assert [(model.name, model.broken) for model in found] == [
        ("fine", ""),
        ("locked", "it cannot be read: Permission denied."),
    ]


def test_a_directory_that_fails_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "folder/fine.gguf")
    write(tmp_path / "folder/closed/unseen.gguf", seed=2)
    scandir = os.scandir

    def failing(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    assert shown(discover([tmp_path / "folder"])) == [("folder", "fine")]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "model"),
        ({"arch": "clip", "kind": "mmproj", "layers": 0}, "projector"),
        ({"arch": "clip", "layers": 0}, "projector"),
        ({"kind": "adapter", "layers": 0}, "adapter"),
        ({"arch": "nomic-bert", "pooling": 1}, "embedding"),
        ({"arch": "qwen3", "pooling": 4}, "embedding"),
        ({"arch": "llama", "pooling": 0}, "model"),
        ({"tensors": 0}, "vocabulary only"),
        ({"kind": "imatrix", "layers": 0}, "other"),
        ({"arch": "flux", "layers": 0}, "other"),
    ],
)
def test_what_cannot_be_chatted_with(options: dict[str, object], kind: str, tmp_path: Path) -> None:
    write(tmp_path / "folder/m.gguf", **options)  # type: ignore[arg-type]
    model = only(tmp_path / "folder")
    assert (model.kind, model.broken) == (kind, "")


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("Qwen3-8B-Q4_K_M", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q8_0", "Q8_0"),
        ("gemma-3-27b-it-UD-Q4_K_XL", "Q4_K_XL"),
        ("Llama-3.3-70B-IQ2_XXS-00001-of-00001", "IQ2_XXS"),
        ("model.BF16", "BF16"),
        ("tinyllama_q4_0", "Q4_0"),
        ("Q4-tuned-F16", "F16"),
        ("phi-4-fq8", ""),
        ("q", ""),
    ],
)
def test_a_quantization_that_only_the_name_tells(
    name: str, quantization: str, tmp_path: Path
) -> None:
    path = tmp_path / "folder" / f"{name}.gguf"
    path.parent.mkdir()
    path.write_bytes(header(value("general.architecture", STRING, text("llama"))))
    assert only(path.parent).quantization == quantization


def test_a_quantization_behind_the_tokenizer_is_found(tmp_path: Path) -> None:
    path = tmp_path / "folder/m.gguf"
    path.parent.mkdir()
    tokens = value("tokenizer.ggml.tokens", ARRAY, array(STRING, 1, text("a")))
    file_type = value("general.file_type", U32, (15).to_bytes(4, "little"))
    path.write_bytes(header(tokens, file_type))
    assert only(path.parent).quantization == "Q4_K_M"


def test_many_files_are_described_without_reading_their_tokenizers(tmp_path: Path) -> None:
    """The tokenizers of these are damaged, which nobody notices who does not read them."""
    architecture = value("general.architecture", STRING, text("llama"))
    tokenizer = value("tokenizer.ggml.tokens", ARRAY, array(STRING, 2**60))
    for number in range(200):
        path = tmp_path / "folder" / f"{number % 20}" / f"{number:03}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(header(architecture, tokenizer, counts=(1, 2)))
    found = discover([tmp_path / "folder"])
    assert [model.name for model in found] == [f"{number:03}" for number in range(200)]
    assert {(model.architecture, model.broken) for model in found} == {("llama", "")}


def test_texts_of_a_header_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "m.gguf"
    path.parent.mkdir()
    evil = value("general.architecture", STRING, text("\x1b[31m\nred" + "x" * 10_000))
    path.write_bytes(header(evil))
    assert only(path.parent).architecture.startswith("?[31m?redxxx")
    assert len(only(path.parent).architecture) < 1000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_names_of_files_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a\nb\x1b.gguf"
    path.parent.mkdir()
    path.write_bytes(b"")
    model = only(path.parent)
    assert (model.name, model.path) == ("a?b?", path)
    assert model.broken == "it is empty: download it again."


def test_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "folder/m.gguf")
    monkeypatch.chdir(tmp_path)
    assert only(Path("folder")).path == path
