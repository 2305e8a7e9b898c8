"""Pulling from the Hugging Face Hub, played by a server on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from edgespec.catalog import download, hub
from edgespec.catalog.download import Phase, installed, pull, removal, remove
from edgespec.catalog.hub_cache import HubFiles, cache_dir
from edgespec.catalog.registry import Model
from edgespec.catalog.resolve import direct_model, resolve_model
from edgespec.errors import CatalogError, DownloadError
from tests.file_server import COMMIT, Fault, FileServer, serve
from tests.tiny_gguf import write_tiny_gguf

HALF = 150_000
FILES = HubFiles("owner/repo", "main", ("tiny-Q4.gguf",))
MODEL = Model("tiny", "hf:owner/repo", FILES.files)
OFFLINE = "HF_HUB_OFFLINE"
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", OFFLINE, "TRANSFORMERS_OFFLINE")
PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("made") / "tiny.gguf").read_bytes()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hugging Face home of the test's own, and no login."""
    for variable in (*VARIABLES, *PROXIES):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    # The library has read the environment when it was imported.
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hf"


@pytest.fixture
def server(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with serve() as running:
        running.hub_file("owner/repo", "tiny-Q4.gguf", content)
        running.hub_file("owner/repo", "tiny-Q8.gguf", content + bytes(64))
        running.hub_file("owner/repo", "README.md", b"# Tiny")
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running
        huggingface_hub.close_session()


def silent(done: int, total: int | None, phase: Phase) -> None:
    pass


def failure(server: FileServer, files: HubFiles = FILES, **options: object) -> str:
    with pytest.raises(DownloadError) as caught:
        hub.pull(files, silent, sleep=lambda seconds: None, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pull_then_installed_without_network_then_remove(
    server: FileServer, home: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed(MODEL) is None
    assert remove(MODEL, home) is None
    seen: list[tuple[int, int | None, Phase]] = []
    path = pull(MODEL, home / "unused", lambda *report: seen.append(report))
    assert path == home / "hub/models--owner--repo/snapshots" / COMMIT / "tiny-Q4.gguf"
    assert path.read_bytes() == content
    assert (len(content), len(content), "downloading") in seen
    assert {phase for _, _, phase in seen} == {"downloading", "verifying"}
    asked = len(server.asked)
    monkeypatch.setenv(OFFLINE, "1")
    assert installed(MODEL) == path == pull(MODEL, home)
    assert len(server.asked) == asked
    assert not (home / "unused").exists()
    found = removal(MODEL, home)
    assert found is not None
    assert found.freed == len(content)
    assert remove(MODEL, home) == path
    assert installed(MODEL) is None
    assert not list((home / "hub/models--owner--repo/blobs").iterdir())


def test_the_library_finds_what_edgespec_pulled(server: FileServer, content: bytes) -> None:
    path = pull(MODEL, Path())
    cached = huggingface_hub.try_to_load_from_cache("owner/repo", "tiny-Q4.gguf", cache_dir())
    assert cached == str(path)


def test_edgespec_finds_what_the_library_pulled(server: FileServer) -> None:
    path = huggingface_hub.hf_hub_download(
        "owner/repo", "tiny-Q4.gguf", cache_dir=cache_dir(), endpoint=server.url
    )
    asked = len(server.asked)
    assert installed(MODEL) == Path(path) == pull(MODEL, Path())
    assert len(server.asked) == asked


def test_other_files_of_the_revision_stay(server: FileServer) -> None:
    other = Model("other", "hf:owner/repo", ("tiny-Q8.gguf",))
    pull(MODEL, Path())
    kept = pull(other, Path())
    remove(MODEL, Path())
    assert installed(MODEL) is None
    assert installed(other) == kept


def test_a_library_that_cannot_delete_one_file(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(MODEL, Path())
    monkeypatch.setattr(hub, "scan_cache_dir", lambda cache: object())
    with pytest.raises(CatalogError, match="Update it"):
        removal(MODEL, Path())


def test_the_login_goes_to_the_hub_only(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    pull(MODEL, Path())
    told = {(asked.path.split("/")[1], asked.headers["Authorization"]) for asked in server.asked}
    assert told == {("owner", "Bearer secret"), ("blobs", None)}


def test_a_dropped_connection_is_resumed(server: FileServer, content: bytes) -> None:
    server.faults = [Fault(), Fault(), Fault(drop_after=HALF), Fault(), Fault(drop_after=10)]
    slept: list[float] = []
    assert hub.pull(FILES, silent, sleep=slept.append).read_bytes() == content
    ranges = [asked.range for asked in server.gets if asked.path.startswith("/blobs")]
    assert ranges == ["", f"bytes={HALF}-", f"bytes={HALF + 10}-"]
    assert slept == [1.0, 1.0]


def test_an_interrupted_pull_is_continued_by_the_next(server: FileServer, content: bytes) -> None:
    def interrupt(done: int, total: int | None, phase: Phase) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(MODEL, Path(), interrupt)
    assert installed(MODEL) is None
    assert pull(MODEL, Path()).read_bytes() == content
    assert server.gets[-1].range.startswith("bytes=")
    names = [path.name for path in (FILES.folder / "blobs").iterdir()]
    assert len(names) == 1  # neither the part nor its note


def test_wrong_bytes_are_deleted_and_reported(server: FileServer) -> None:
    server.faults = [Fault(), Fault(), Fault(flip=True)]
    assert "came damaged" in failure(server)
    assert installed(MODEL) is None
    assert not list((FILES.folder / "blobs").iterdir())


def test_a_blob_damaged_later_is_fetched_again(server: FileServer, content: bytes) -> None:
    path = pull(MODEL, Path())
    path.write_bytes(b"GGUF")
    assert pull(MODEL, Path()) == path
    assert path.read_bytes() == content
    asked = len(server.asked)
    pull(MODEL, Path(), force=True)
    assert len(server.asked) > asked


def test_what_models_toml_says_is_checked_before_anything_is_fetched(
    server: FileServer, content: bytes
) -> None:
    message = failure(server, sha256="ab" * 32)
    assert "its sha256 is" in message
    assert f"not {'ab' * 32}" in message
    assert f"its size is {len(content)}, not 5" in failure(server, size=5)
    assert server.gets == []


def test_another_version_is_not_the_installed_one(server: FileServer, content: bytes) -> None:
    path = pull(MODEL, Path())
    sha256 = path.resolve().name
    assert installed(Model("tiny", MODEL.source, MODEL.files, sha256, len(content))) == path
    assert installed(Model("tiny", MODEL.source, MODEL.files, "ab" * 32)) is None
    assert installed(Model("tiny", MODEL.source, MODEL.files, size=5)) is None


def test_a_revision(server: FileServer) -> None:
    server.revisions["v1"] = COMMIT
    path = pull(Model("tiny", "hf:owner/repo@v1", MODEL.files), Path())
    assert server.asked[0].path == "/owner/repo/resolve/v1/tiny-Q4.gguf"
    assert path.parent.name == COMMIT
    assert installed(Model("tiny", f"hf:owner/repo@{COMMIT}", MODEL.files)) == path
    assert installed(MODEL) is None  # main is not known to be the same


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model(status: int, server: FileServer) -> None:
    server.faults = [Fault(status, {"X-Error-Code": "GatedRepo"})]
    message = failure(server)
    assert f"accept its licence: do that at {server.url}/owner/repo" in message
    assert "`hf auth login` or set HF_TOKEN" in message


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            Fault(401, {"X-Error-Code": "RepoNotFound"}),
            "no repository owner/repo, or it is private",
        ),
        (Fault(403), "refuses owner/repo (HTTP 403). Check its name and your token"),
        (
            Fault(401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
            "your token: run `hf auth login`",
        ),
        (Fault(451), "HTTP 451"),
    ],
)
def test_what_the_hub_refuses(fault: Fault, words: str, server: FileServer) -> None:
    server.faults = [fault]
    assert words in failure(server)
    assert len(server.asked) == 1


def test_what_is_not_there(server: FileServer) -> None:
    assert "no repository owner/nothing" in failure(
        server, HubFiles("owner/nothing", "main", ("a",))
    )
    assert "no revision 'v9'" in failure(server, HubFiles("owner/repo", "v9", FILES.files))
    message = failure(server, HubFiles("owner/repo", "main", ("tiny-Q5.gguf",)))
    assert "has no file tiny-Q5.gguf. Nearest: tiny-Q" in message
    assert "tiny-Q4.gguf" in message
    server.faults = [Fault(), Fault(403)]
    message = failure(server, HubFiles("owner/repo", "main", ("zzz.gguf",)))
    assert "has no file zzz.gguf. Check the name" in message
    assert "is no repository" in failure(server, HubFiles("owner/repo.git", "main", ("a",)))


def test_a_busy_hub_is_asked_again(server: FileServer) -> None:
    server.faults = [Fault(429, {"Retry-After": "7"}), Fault(503)]
    slept: list[float] = []
    hub.pull(FILES, silent, sleep=slept.append)
    assert slept == [7.0, 2.0]
    server.faults = [Fault(429)] * 9
    other = HubFiles("owner/repo", "main", ("tiny-Q8.gguf",))
    assert "HTTP 429, 5 times in a row" in failure(server, other)


def test_no_network(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    message = failure(server)
    assert "tiny-Q4.gguf of owner/repo from http://127.0.0.1:9" in message
    assert "Check the network" in message


def test_a_server_that_is_no_hub(server: FileServer) -> None:
    server.faults = [Fault(200)]
    assert "Check HF_ENDPOINT" in failure(server)


@pytest.mark.parametrize("variable", [OFFLINE, "TRANSFORMERS_OFFLINE"])
def test_offline(variable: str, server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert "tiny-Q4.gguf of owner/repo is not in the Hugging Face cache" in failure(server)
    monkeypatch.delenv(variable)
    path = pull(MODEL, Path())
    monkeypatch.setenv(variable, "yes")
    assert pull(MODEL, Path()) == path
    assert "is not to be fetched anew" in failure(server, force=True)
    path.write_bytes(b"damaged")
    assert "is damaged" in failure(server)


def test_a_split_model(server: FileServer, content: bytes) -> None:
    names = tuple(f"q4/big-{at:05}-of-00002.gguf" for at in (1, 2))
    for at, name in enumerate(names):
        server.hub_file("owner/repo", name, content + bytes(at))
    seen: list[tuple[int, int | None, Phase]] = []
    model = direct_model(f"hf:owner/repo/{names[0]}")
    assert model is not None
    assert model.files == names
    path = pull(model, Path(), lambda *report: seen.append(report))
    assert path.name == "big-00001-of-00002.gguf"
    assert path.with_name("big-00002-of-00002.gguf").read_bytes() == content + bytes(1)
    downloading = [(done, total) for done, total, phase in seen if phase == "downloading"]
    assert downloading == sorted(downloading)
    assert downloading[-1] == (2 * len(content) + 1, 2 * len(content) + 1)
    remove(model, Path())
    assert installed(model) is None


def test_a_file_in_both_parts_is_kept_once(server: FileServer, content: bytes) -> None:
    server.hub_file("owner/repo", "copy.gguf", content)
    copy = Model("copy", "hf:owner/repo", ("copy.gguf",))
    pull(MODEL, Path())
    pull(copy, Path())
    found = removal(copy, Path())
    assert found is not None
    assert found.freed == 0  # the other file needs the content
    found.delete()
    assert installed(MODEL) is not None


def test_a_model_by_its_address_alone(server: FileServer, content: bytes) -> None:
    address = "hf:owner/repo/tiny-Q4.gguf"
    with pytest.raises(CatalogError, match=f"edgespec models pull {address}"):
        resolve_model(address)
    assert resolve_model(address, lambda model: pull(model, Path())).read_bytes() == content
    assert resolve_model(address).name == "tiny-Q4.gguf"


@pytest.mark.parametrize(
    ("set_to", "place"),
    [
        ({"HF_HUB_CACHE": "{}/a", "HF_HOME": "{}/b"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/a", "HF_HOME": "{}/b"}, "a"),
        ({"HF_HOME": "{}/b"}, "b/hub"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "{}/c"}, "c/huggingface/hub"),
    ],
)
def test_where_the_cache_is(
    set_to: dict[str, str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in set_to.items():
        monkeypatch.setenv(variable, value.format(tmp_path))
    assert cache_dir() == (tmp_path / place).resolve()


def test_the_library_is_not_imported_before_it_is_needed(home: Path) -> None:
    lines = (
        "import sys",
        "import edgespec.cli.app, edgespec.loading",
        "from edgespec.catalog.resolve import direct_model",
        "from edgespec.catalog.download import installed",
        "assert installed(direct_model('hf:owner/repo/a.gguf')) is None",
        "print([name for name in ('huggingface_hub', 'urllib.request') if name in sys.modules])",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert "huggingface_hub" not in done.stdout


def test_a_cache_that_cannot_be_written(
    server: FileServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file where a directory should be", encoding="utf-8")
    with pytest.raises(DownloadError, match="Could not pull tiny into"):
        download.pull(MODEL, Path())
