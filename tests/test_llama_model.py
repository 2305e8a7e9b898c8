"""Loading GGUF files: what a model tells of itself, and one clear line for each that is broken."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import llama_cpp
import pytest

from edgespec.errors import BackendError, EdgespecError, ModelLoadError
from edgespec.llama import library
from edgespec.llama.context import Context
from edgespec.llama.model import Model, check_header
from tests import tiny_gguf
from tests.tiny_gguf import ARCHITECTURES, write_tiny_gguf

# Offsets in a GGUF header: version, number of tensors, number of key-value pairs, first key.
VERSION, TENSORS, PAIRS, FIRST_KEY = 4, 8, 16, 24


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("whole") / "m.gguf").read_bytes()


def overwritten(whole: bytes, at: int, value: bytes) -> bytes:
    return whole[:at] + value + whole[at + len(value) :]


def refusal(path: Path) -> str:
    """The one line with which loading fails."""
    with pytest.raises(ModelLoadError) as caught:
        Model(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_model_tells_what_it_is(arch: str, tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", arch=arch, n_ctx_train=96))
    assert arch in model.description
    assert model.n_ctx_train == 96
    assert model.is_recurrent == (arch in ("lfm2", "mamba"))
    assert model.sliding_window == (tiny_gguf.WINDOW if arch == "gemma3" else 0)
    assert model.vocabulary.size == 300
    assert 0 < model.n_params < model.size
    assert model.metadata("general.architecture") == arch
    assert model.metadata("general.name") == f"tiny {arch} 0"
    assert model.metadata("no.such.key") is None
    assert model.chat_template == tiny_gguf.CHATML
    model.close()


def test_a_missing_template_is_none(tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", chat_template=None))
    assert model.chat_template is None
    model.close()


@pytest.mark.parametrize("length", [1, 4094, 4095, 4096, 4097, 20_000])
def test_metadata_of_any_length_comes_whole(length: int, tmp_path: Path) -> None:
    template = "é" + "x" * (length - 2) if length > 1 else "x"
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", chat_template=template))
    assert model.chat_template == template
    model.close()


def test_a_missing_file(tmp_path: Path) -> None:
    assert "There is no file" in refusal(tmp_path / "none.gguf")


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)


def test_something_else_than_a_gguf(tmp_path: Path) -> None:
    path = tiny_gguf.write_wrong_magic(tmp_path / "m.gguf")
    assert "is not a GGUF file (it starts with b'NOPE')" in refusal(path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.touch()
    assert "is empty" in refusal(path)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file"
)
def test_a_file_without_read_permission(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


def test_a_file_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above where the tests run as root."""

    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelLoadError, match=r"m\.gguf cannot be read: Permission denied\.$"):
        check_header(tmp_path / "m.gguf")


def test_an_unsupported_architecture(tmp_path: Path) -> None:
    path = tiny_gguf.write_unsupported_architecture(tmp_path / "m.gguf")
    assert "architecture 'hovercraft', which this llama.cpp does not know" in refusal(path)


@pytest.mark.parametrize("kept", [4, 10, 24, 40, 3000, 0.3, 0.5, 0.999])
def test_a_truncated_file_is_to_be_downloaded_again(
    kept: float, whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[: int(kept if kept >= 1 else kept * len(whole))])
    message = refusal(path)
    assert "incomplete or damaged" in message
    assert message.endswith("download it again.")


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (TENSORS, struct.pack("<Q", 2**62)),
        (TENSORS, struct.pack("<Q", 2**31)),
        (PAIRS, struct.pack("<Q", 2**62)),
        (PAIRS, struct.pack("<Q", 2**40)),
        (FIRST_KEY, struct.pack("<Q", 2**62)),
        (FIRST_KEY, struct.pack("<Q", 2**34)),
    ],
)
def test_absurd_numbers_in_the_header(at: int, value: bytes, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(overwritten(whole, at, value))
    assert "incomplete or damaged" in refusal(path)


def test_a_format_version_from_the_future(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(overwritten(whole, VERSION, struct.pack("<I", 99)))
    assert "version 99 but this software only supports up to version 3" in refusal(path)


def test_a_header_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    refusal(path)


def test_the_reason_of_an_earlier_failure_is_not_blamed(tmp_path: Path) -> None:
    refusal(tiny_gguf.write_unsupported_architecture(tmp_path / "a.gguf"))
    assert "hovercraft" not in refusal(tiny_gguf.write_truncated(tmp_path / "b.gguf"))


SILENT = """
import sys
from pathlib import Path
from edgespec.errors import EdgespecError
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.protocols import Row

for path in sys.argv[1:]:
    try:
        model = Model(Path(path))
    except EdgespecError:
        continue
    context = Context(model, n_ctx=1024, threads=1)  # more than it was trained for: a warning
    context.decode([Row(0, 0, 7, True)])
    try:
        context.decode([Row(0, 1, 9999, True)])
    except EdgespecError:
        pass
    context.close()
    model.close()
"""


def test_nothing_of_llama_cpp_reaches_the_terminal(tmp_path: Path) -> None:
    files = [
        write_tiny_gguf(tmp_path / "good.gguf", eos=2),
        write_tiny_gguf(tmp_path / "gemma3.gguf", arch="gemma3"),
        tiny_gguf.write_truncated(tmp_path / "truncated.gguf"),
        tiny_gguf.write_wrong_magic(tmp_path / "magic.gguf"),
        tiny_gguf.write_unsupported_architecture(tmp_path / "hovercraft.gguf"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", SILENT, *map(str, files)], capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_its_messages_go_into_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="edgespec.llama"):
        refusal(tiny_gguf.write_unsupported_architecture(tmp_path / "m.gguf"))
    assert any("hovercraft" in record.message for record in caplog.records)


@pytest.mark.skipif(library.supports_gpu(), reason="this llama.cpp was built with GPU support")
def test_gpu_layers_without_a_gpu_are_an_error(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    with pytest.raises(BackendError, match=r"3 layers cannot be put on a GPU.*without GPU"):
        Model(path, gpu_layers=3)
    Model(path, gpu_layers=0).close()


def test_close_twice_and_use_after_close(tmp_path: Path) -> None:
    model = Model(write_tiny_gguf(tmp_path / "m.gguf"))
    vocabulary = model.vocabulary
    model.close()
    model.close()
    uses: list[Callable[[], object]] = [
        lambda: model.handle,
        lambda: model.description,
        lambda: model.metadata("general.name"),
        lambda: model.n_ctx_train,
        lambda: Context(model, n_ctx=64, threads=1),
        lambda: vocabulary.tokenize("a", add_special=True, parse_special=False),
        lambda: vocabulary.piece(7),
        lambda: vocabulary.name(7),
        lambda: vocabulary.ends_generation(1),
        lambda: vocabulary.texts(0, 3),
    ]
    for use in uses:
        with pytest.raises(BackendError, match="closed"):
            use()


def test_progress_grows_to_the_end(tmp_path: Path) -> None:
    seen: list[float] = []
    Model(write_tiny_gguf(tmp_path / "m.gguf"), progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no room on screen")])
def test_what_the_progress_listener_raises_ends_the_load(
    error: BaseException, tmp_path: Path
) -> None:
    """Ctrl-C during a load arrives in this callback."""

    def raises(_done: float) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        Model(write_tiny_gguf(tmp_path / "m.gguf"), progress=raises)
    assert caught.value is error


def test_the_devices_include_the_processor() -> None:
    found = library.devices()
    assert [device.kind for device in found].count("cpu") == 1
    for device in found:
        assert device.name
        assert device.description
        assert 0 <= device.free <= device.total


def test_system_info_names_instruction_sets() -> None:
    assert "CPU" in library.system_info()
    assert "\n" not in library.system_info()


@pytest.mark.parametrize(("info", "safe"), [("AMX_INT8 = 1 | X = 1", False), ("AVX = 1", True)])
def test_repacking_where_it_is_safe(
    info: str, safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if safe and not library.repacking_is_safe():
        pytest.skip("repacked weights would crash this build of llama.cpp")
    monkeypatch.setattr(library, "system_info", lambda: info)
    model = Model(write_tiny_gguf(tmp_path / "m.gguf", quant="Q4_0"), repack=True)
    assert model.repack == safe
    model.close()


def test_an_untested_binding_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "__version__", "0.9.0")
    library.start.cache_clear()
    try:
        with pytest.raises(EdgespecError, match=r"llama-cpp-python 0\.9\.0 is installed.*==0\.3\."):
            library.start()
    finally:
        monkeypatch.undo()
        library.start.cache_clear()
        library.start()
