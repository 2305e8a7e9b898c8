"""Pulling from an `https:` source: what a server, a connection or a kill can do to it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from functools import partial
from http.client import HTTPMessage
from io import BytesIO
from pathlib import Path
from urllib.request import Request

import pytest

from edgespec.catalog import download, patience, sources, web
from edgespec.catalog.download import Phase, installed, pull, removal, remove
from edgespec.catalog.model_file import ModelFile, Origin, Part
from edgespec.catalog.paths import models_dir
from edgespec.catalog.registry import Model
from edgespec.catalog.resolve import direct_model, resolve_model
from edgespec.errors import CatalogError, DownloadError
from tests.file_server import Fault, FileServer, serve
from tests.tiny_gguf import write_tiny_gguf

HALF = 150_000


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("made") / "tiny.gguf").read_bytes()


@pytest.fixture
def models(edgespec_home: Path) -> Path:
    return edgespec_home / "models"


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept, which took no time."""
    slept: list[float] = []
    monkeypatch.setattr(web, "fetch", partial(web.fetch, sleep=slept.append))
    return slept


@pytest.fixture
def server(
    content: bytes, sleeps: list[float], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FileServer]:
    """A server with one file, that https: sources on this machine reach without encryption."""
    real = sources.web_files

    def unencrypted(location: str, files: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        found = real(location, files)
        return tuple((url.replace("https:", "http:", 1), name) for url, name in found)

    monkeypatch.setattr(download, "web_files", unencrypted)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with serve() as running:
        running.files["/a/tiny.gguf"] = content
        yield running


def model_at(server: FileServer, path: str = "/a/tiny.gguf", **more: object) -> Model:
    return Model("tiny", f"https://127.0.0.1:{server.port}{path}", **more)  # type: ignore[arg-type]


def failure(model: Model, models: Path) -> str:
    with pytest.raises(DownloadError) as caught:
        pull(model, models)
    assert "\n" not in str(caught.value)
    assert not (models / "tiny.gguf").exists()
    assert installed(model, models) is None
    return str(caught.value)


def part_of(models: Path) -> Part:
    return Part(models / "tiny.gguf.part")


def test_pull_then_installed_then_remove(server: FileServer, models: Path, content: bytes) -> None:
    model = model_at(server)
    seen: list[tuple[int, int | None, Phase]] = []
    path = pull(model, models, lambda *report: seen.append(report))
    assert path == models / "tiny.gguf" == installed(model, models)
    assert path.read_bytes() == content
    sha256 = hashlib.sha256(content).hexdigest()
    assert (models / "tiny.gguf.sha256").read_text(encoding="utf-8") == f"{sha256}  tiny.gguf\n"
    assert (len(content), len(content), "downloading") in seen
    assert seen[-1] == (len(content), len(content), "verifying")
    assert pull(model, models) == path
    assert len(server.asked) == 1  # what is there is verified without the network
    assert remove("tiny", models) == path
    assert [file.name for file in models.iterdir()] == [".tiny.gguf.lock"]


def test_a_dropped_connection_is_resumed(
    server: FileServer, models: Path, content: bytes, sleeps: list[float]
) -> None:
    server.faults = [Fault(drop_after=HALF), Fault(drop_after=1000)]
    assert pull(model_at(server), models).read_bytes() == content
    assert [asked.range for asked in server.asked] == [
        "",
        f"bytes={HALF}-",
        f"bytes={HALF + 1000}-",
    ]
    assert sleeps == [1.0, 1.0]  # each try got further


def test_it_gives_up_after_tries_in_vain_and_the_next_pull_goes_on(
    server: FileServer, models: Path, content: bytes, sleeps: list[float]
) -> None:
    server.faults = [Fault(drop_after=HALF), *[Fault(drop_after=0)] * 4]
    message = failure(model_at(server), models)
    assert f"broke off after {HALF} of {len(content)} bytes, 5 times in a row" in message
    assert "pull again" in message
    assert sleeps == [1.0, 2.0, 4.0, 8.0]
    assert part_of(models).size == HALF
    assert pull(model_at(server), models).read_bytes() == content
    assert server.asked[-1].range == f"bytes={HALF}-"
    assert not part_of(models).path.exists()
    assert part_of(models).origin is None


def test_a_file_that_changed_meanwhile_starts_anew(
    server: FileServer, models: Path, content: bytes
) -> None:
    server.faults = [Fault(drop_after=HALF)]
    server.etags["/a/tiny.gguf"] = '"old"'
    model = model_at(server)

    def change(done: int, total: int | None, phase: Phase) -> None:
        if done == HALF:
            server.etags["/a/tiny.gguf"] = '"new"'

    assert pull(model, models, change).read_bytes() == content
    assert server.asked[1].headers["If-Range"] == '"old"'


def test_a_part_of_another_address_is_not_continued(
    server: FileServer, models: Path, content: bytes
) -> None:
    models.mkdir(parents=True)
    part = part_of(models)
    part.begin(Origin("http://127.0.0.1/other.gguf", '"x"', len(content)))
    part.path.write_bytes(b"other")
    assert pull(model_at(server), models).read_bytes() == content
    assert server.asked[0].range == ""


@pytest.mark.parametrize("note", ["", "{", "[]", '{"url": 1}'])
def test_a_part_with_a_damaged_note_is_not_continued(
    note: str, server: FileServer, models: Path, content: bytes
) -> None:
    models.mkdir(parents=True)
    part_of(models).path.write_bytes(b"GGUF")
    (models / "tiny.gguf.part.json").write_text(note, encoding="utf-8")
    assert pull(model_at(server), models).read_bytes() == content
    assert server.asked[0].range == ""


def test_a_server_without_versions_starts_anew(
    server: FileServer, models: Path, content: bytes
) -> None:
    server.faults = [Fault(drop_after=HALF, without=("ETag",))]
    assert pull(model_at(server), models).read_bytes() == content
    assert server.asked[1].range == ""


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({"ETag": '"a"', "Last-Modified": "today"}, '"a"'),
        ({"ETag": 'W/"a"', "Last-Modified": "today"}, "today"),
        ({"ETag": 'W/"a"'}, None),
    ],
)
def test_what_tells_versions_apart(headers: dict[str, str], version: str | None) -> None:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    assert web._version(message) == version


def test_a_server_that_ignores_range(server: FileServer, models: Path, content: bytes) -> None:
    server.faults = [Fault(drop_after=HALF), Fault(ignore_range=True)]
    assert pull(model_at(server), models).read_bytes() == content


@pytest.mark.parametrize(
    "headers", [{"Content-Range": "bytes 0-9/10"}, {"Content-Range": ""}, {"ETag": '"other"'}]
)
def test_a_server_that_sends_another_part(
    headers: dict[str, str], server: FileServer, models: Path, content: bytes
) -> None:
    server.faults = [Fault(drop_after=HALF), Fault(headers=headers)]
    assert pull(model_at(server), models).read_bytes() == content
    assert server.asked[2].range == ""


def test_a_file_that_became_shorter(server: FileServer, models: Path, content: bytes) -> None:
    server.etags["/a/tiny.gguf"] = '"always the same"'
    server.files["/a/tiny.gguf"] = content + bytes(1000)
    server.faults = [Fault(drop_after=len(content) + 500)]

    def shorten(done: int, total: int | None, phase: Phase) -> None:
        if done == len(content) + 500:
            server.files["/a/tiny.gguf"] = content

    assert pull(model_at(server), models, shorten).read_bytes() == content


def test_a_length_announced_too_long(server: FileServer, models: Path, content: bytes) -> None:
    long = {"Content-Length": str(len(content) + 9)}
    server.faults = [Fault(headers=long)] * 20
    assert "broke off after" in failure(model_at(server), models)


def test_a_length_announced_too_short(server: FileServer, models: Path, content: bytes) -> None:
    short = {"Content-Length": str(HALF)}
    server.faults = [Fault(headers=short)] * 2
    message = failure(model_at(server), models)
    assert "is no model, and was deleted" in message
    assert "too early" in message
    assert not part_of(models).path.exists()
    sha256 = hashlib.sha256(content).hexdigest()
    assert f"not {sha256}" in failure(model_at(server, sha256=sha256), models)
    assert "are expected" in failure(model_at(server, size=HALF), models)


def test_no_length_at_all(server: FileServer, models: Path, content: bytes) -> None:
    server.faults = [Fault(without=("Content-Length",))]
    assert pull(model_at(server), models).read_bytes() == content


def test_a_size_that_models_toml_does_not_name(
    server: FileServer, models: Path, content: bytes
) -> None:
    message = failure(model_at(server, size=5), models)
    assert f"has {len(content)} bytes where 5 are expected" in message
    assert not part_of(models).path.exists()


def test_wrong_bytes_are_deleted_and_reported(
    server: FileServer, models: Path, content: bytes
) -> None:
    server.faults = [Fault(flip=True), Fault(flip=True)]
    message = failure(model_at(server, sha256=hashlib.sha256(content).hexdigest()), models)
    assert "is damaged: its sha256 is" in message
    assert not part_of(models).path.exists()
    # Without a sha256 at least what is no GGUF is found.
    assert "is not a GGUF file" in failure(model_at(server), models)
    assert not part_of(models).path.exists()


def test_an_error_page_is_no_model(server: FileServer, models: Path) -> None:
    server.files["/a/tiny.gguf"] = b"<!doctype html>"
    assert "it starts with b'<!do'" in failure(model_at(server), models)
    server.files["/a/tiny.gguf"] = b""
    assert "is empty" in failure(model_at(server), models)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "the server refuses it (HTTP 401"),
        (403, "--target PATH"),
        (404, "There is no file http://127.0.0.1"),
        (410, "Check that address"),
        (407, "any proxy"),
        (418, "HTTP 418"),
    ],
)
def test_what_a_server_refuses_is_not_asked_again(
    status: int, words: str, server: FileServer, models: Path, sleeps: list[float]
) -> None:
    server.faults = [Fault(status)]
    assert words in failure(model_at(server), models)
    assert sleeps == []


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(
    status: int, server: FileServer, models: Path, sleeps: list[float]
) -> None:
    server.faults = [Fault(status), Fault(status, {"Retry-After": "17"})]
    pull(model_at(server), models)
    assert sleeps == [1.0, 17.0]


def test_a_server_that_is_busy_for_too_long(
    server: FileServer, models: Path, sleeps: list[float]
) -> None:
    server.faults = [Fault(429, {"Retry-After": "3600"})]
    assert "the server asks to wait 3600 s" in failure(model_at(server), models)
    server.faults = [Fault(503)] * 9
    assert "the server is busy (HTTP 503" in failure(model_at(server), models)
    assert sleeps == [1.0, 2.0, 4.0, 8.0]


def test_a_date_to_wait_for() -> None:
    later = datetime.now(UTC) + timedelta(seconds=60)
    assert patience.asked_to_wait({"Retry-After": format_datetime(later)}) == pytest.approx(
        60, abs=5
    )
    past = datetime.now(UTC) - timedelta(seconds=60)
    assert patience.asked_to_wait({"Retry-After": format_datetime(past)}) == 0.0
    assert patience.asked_to_wait({"Retry-After": "soon"}) is None
    assert patience.asked_to_wait({}) is None


def test_a_server_that_is_not_there(models: Path, server: FileServer, sleeps: list[float]) -> None:
    port, server.port = server.port, 9  # where nothing listens
    assert "Check the network" in failure(model_at(server), models)
    assert len(sleeps) == patience.TRIES - 1
    server.port = port


def test_redirects_are_followed_without_the_login(
    server: FileServer, tmp_path: Path, content: bytes, sleeps: list[float]
) -> None:
    elsewhere = f"http://localhost:{server.port}/a/tiny.gguf"
    server.faults = [Fault(302, {"Location": "/moved"}), Fault(302, {"Location": elsewhere})]
    part = Part(tmp_path / "x.part")
    headers = {"authorization": "Bearer secret"}
    web.fetch(f"{server.url}/start", part, lambda done, total: None, headers=headers)
    assert part.path.read_bytes() == content
    assert [asked.path for asked in server.asked] == ["/start", "/moved", "/a/tiny.gguf"]
    told = [asked.headers.get("Authorization") for asked in server.asked]
    assert told == ["Bearer secret", "Bearer secret", None]


@pytest.mark.parametrize("target", ["http://example.org/a.gguf", "ftp://example.org/a.gguf"])
def test_a_redirect_to_what_is_not_encrypted_is_refused(target: str) -> None:
    request = Request("https://example.org/a.gguf?token=secret")
    with pytest.raises(DownloadError, match="which is not encrypted") as caught:
        web._Redirects().redirect_request(request, BytesIO(), 302, "", HTTPMessage(), target)
    assert "secret" not in str(caught.value)


def test_a_disk_that_is_full(
    server: FileServer, models: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    message = failure(model_at(server, size=len(content)), models)
    assert f"The disk is full at {models}; about 0 MB are needed" in message


def test_an_interruption_passes_through_and_what_came_stays(
    server: FileServer, models: Path, content: bytes
) -> None:
    def interrupt(done: int, total: int | None, phase: Phase) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(model_at(server), models, interrupt)
    kept = part_of(models).size
    assert kept > 0
    assert pull(model_at(server), models).read_bytes() == content
    assert server.asked[-1].range == f"bytes={kept}-"


KILLED = """
import sys, time
from pathlib import Path
from edgespec.catalog import web
from edgespec.catalog.model_file import Part

url, part, flag, size = sys.argv[1:]

def hang(done, total):
    if done >= int(size):
        Path(flag).touch()
        time.sleep(60)

web.fetch(url, Part(Path(part)), hang)
"""


def test_a_killed_pull_is_continued(
    server: FileServer, models: Path, content: bytes, tmp_path: Path
) -> None:
    url, flag = f"{server.url}/a/tiny.gguf", tmp_path / "flag"
    size = str(len(content))
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, url, str(part_of(models).path), str(flag), size],
        cwd=Path(__file__).parents[1],
    )
    try:
        deadline = time.monotonic() + 30
        while not flag.exists():
            assert process.poll() is None, "the pull ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert not (models / "tiny.gguf").exists()
    kept = part_of(models).size
    assert 0 < kept <= len(content)
    assert pull(model_at(server), models).read_bytes() == content
    later = [asked.range for asked in server.asked[1:]]
    assert later == ([f"bytes={kept}-"] if kept < len(content) else [])


def split(server: FileServer, content: bytes) -> tuple[str, ...]:
    names = tuple(f"big-{at:05}-of-00002.gguf" for at in (1, 2))
    for name in names:
        server.files[f"/split/{name}"] = content
    return names


def test_a_split_model_lies_side_by_side(server: FileServer, models: Path, content: bytes) -> None:
    names = split(server, content)
    sha256 = hashlib.sha256(content * 2).hexdigest()
    model = model_at(server, "/split", files=names, sha256=sha256, size=2 * len(content))
    seen: list[tuple[int, int | None, Phase]] = []
    path = pull(model, models, lambda *report: seen.append(report))
    assert path == models / "tiny" / names[0] == installed(model, models)
    assert [file.name for file in sorted(path.parent.iterdir())] == list(names)
    downloading = [done for done, total, phase in seen if phase == "downloading"]
    assert downloading == sorted(downloading)
    assert downloading[-1] == 2 * len(content)
    assert pull(model, models) == path
    assert len(server.asked) == 2
    path.with_name(names[1]).unlink()
    assert installed(model, models) is None
    assert pull(model, models) == path
    assert remove("tiny", models) == path
    assert [file.name for file in models.iterdir()] == [".tiny.gguf.lock"]


@pytest.mark.parametrize("at", [0, 1])
def test_what_came_of_a_pull_that_broke_off_can_be_removed(
    at: int, server: FileServer, models: Path, content: bytes
) -> None:
    model = (model_at(server), model_at(server, "/split", files=split(server, content)))[at]
    server.faults = [Fault(drop_after=HALF), Fault(404)]
    failure(model, models)
    found = removal(model, models)
    assert found is not None
    assert found.freed == HALF
    found.delete()
    assert [file.name for file in models.iterdir()] == [".tiny.gguf.lock"]
    assert removal(model, models) is None


def test_a_folder_of_the_user_is_no_split_model(models: Path) -> None:
    own = models / "tiny" / "own.gguf"
    own.parent.mkdir(parents=True)
    own.touch()
    ModelFile(models, "tiny").record("ab" * 32)  # of a file that was deleted by hand
    assert remove("tiny", models) is None
    assert own.exists()


def test_a_split_model_whose_parts_are_damaged(
    server: FileServer, models: Path, content: bytes
) -> None:
    names = split(server, content)
    model = model_at(server, "/split", files=names)
    server.files[f"/split/{names[1]}"] = content[:HALF]
    assert "too early" in failure(model, models)
    assert not (models / "tiny").exists()
    model = model_at(server, "/split", files=names, size=5)
    assert "not 5" in failure(model, models)


def test_a_model_by_its_address_alone(server: FileServer, content: bytes) -> None:
    address = f"https://127.0.0.1:{server.port}/a/tiny.gguf"
    model = direct_model(address)
    assert model is not None
    with pytest.raises(CatalogError, match=f"edgespec models pull {address}"):
        resolve_model(address)
    fetched = resolve_model(address, lambda wanted: pull(wanted, models_dir()))
    assert fetched.read_bytes() == content
    assert fetched.name.startswith("tiny-")
    assert resolve_model(address) == fetched
    assert remove(model, models_dir()) == fetched


def test_the_first_part_stands_for_all(server: FileServer, models: Path, content: bytes) -> None:
    names = split(server, content)
    model = direct_model(f"https://127.0.0.1:{server.port}/split/{names[0]}")
    assert model is not None
    assert pull(model, models) == models / model.name / names[0]
    assert (models / model.name / names[1]).read_bytes() == content


def test_the_same_name_at_two_addresses() -> None:
    one, two = (direct_model(f"https://example.org/{at}/x y.gguf?t=1") for at in "ab")
    assert one is not None
    assert two is not None
    assert one.name != two.name
    assert one.name.startswith("xy-")


def test_the_note_of_a_part_tells_what_it_is(tmp_path: Path) -> None:
    part = Part(tmp_path / "x.part")
    part.begin(Origin("https://example.org/x", '"a"', 5))
    assert json.loads((tmp_path / "x.part.json").read_text(encoding="utf-8"))["size"] == 5
    assert part.origin == Origin("https://example.org/x", '"a"', 5)
    assert part.size == 0
    part.delete()
    assert part.origin is None
