"""A GGUF file loaded by llama.cpp: weights, vocabulary, metadata."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp

from edgespec.errors import BackendError, ModelLoadError
from edgespec.llama import library
from edgespec.llama.vocabulary import Vocabulary

Progress = Callable[[float], None]

# What llama.cpp says of a file that was cut short or overwritten.
_DAMAGED = (
    "not within the file bounds",
    "failed to read",
    "exceeds remaining",
    "exceeds maximum",
    "number of ",
)


class Model:
    """A loaded model. Contexts made from it must be closed before it is.

    repack: let llama.cpp rearrange the weights for its fastest kernels. Without, some
    quantizations give bit-identical results at more pass widths (DESIGN section 6). Not done
    where it is not safe; the attribute says what holds.
    gpu_layers: layers to place on a GPU; None for all where there is one.
    Raises ModelLoadError for a file that cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int | None = None,
        repack: bool = True,
        progress: Progress | None = None,
    ) -> None:
        library.start()
        check_header(path)
        if gpu_layers and not library.supports_gpu():
            raise BackendError(
                f"{gpu_layers} layers cannot be put on a GPU (--gpu-layers): this "
                "llama-cpp-python was built without GPU support. Reinstall it with CUDA, Metal "
                "or Vulkan (docs/gpu.md), or leave that out."
            )
        repack = repack and library.repacking_is_safe()
        self.path = path
        self.repack = repack
        self.gpu_layers = gpu_layers
        self._handle: Any = _load(path, gpu_layers, repack, progress)
        self.vocabulary = Vocabulary(llama_cpp.llama_model_get_vocab(self._handle))

    @property
    def handle(self) -> Any:
        """The llama_model pointer. Raises BackendError after close()."""
        if self._handle is None:
            raise BackendError(f"{self.path.name} was used after it was closed.")
        return self._handle

    @property
    def n_ctx_train(self) -> int:
        """The context length the model was trained for."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    @property
    def is_recurrent(self) -> bool:
        """Whether any of its memory is a state that cannot simply be cut (Mamba, hybrids)."""
        return bool(
            llama_cpp.llama_model_is_recurrent(self.handle)
            or llama_cpp.llama_model_is_hybrid(self.handle)
        )

    @property
    def sliding_window(self) -> int:
        """Tokens that the layers with a sliding window see; 0 when all layers see everything."""
        return int(llama_cpp.llama_model_n_swa(self.handle))

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(llama_cpp.llama_model_size(self.handle))

    @property
    def n_params(self) -> int:
        return int(llama_cpp.llama_model_n_params(self.handle))

    @property
    def description(self) -> str:
        """Architecture, size class and quantization, in llama.cpp's words."""
        buffer = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", errors="replace")

    def metadata(self, key: str) -> str | None:
        """One value of the GGUF metadata as text, None when absent."""
        size = 4096
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = llama_cpp.llama_model_meta_val_str(
                self.handle, key.encode("utf-8"), buffer, size
            )
            if length < 0:
                return None
            if length < size:
                return buffer.value.decode("utf-8", errors="replace")
            size = length + 1

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the GGUF, None when it has none."""
        return self.metadata("tokenizer.chat_template")

    def close(self) -> None:
        """Free the weights. Idempotent."""
        if self._handle is not None:
            self.vocabulary.close()
            llama_cpp.llama_model_free(self._handle)
            self._handle = None


def check_header(path: Path) -> None:
    """Raise ModelLoadError unless `path` is a readable file that starts like a GGUF."""
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise ModelLoadError(f"{path} is a pipe or a device: give a .gguf file.")
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise ModelLoadError(f"There is no file {path}: check the path.") from None
    except IsADirectoryError:
        raise ModelLoadError(f"{path} is a directory: give the .gguf file in it.") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}.") from None
    if not magic:
        raise ModelLoadError(f"{path} is empty: download it again.")
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path} is not a GGUF file (it starts with {magic!r}): "
            "edgespec runs models in llama.cpp's GGUF format only."
        )


def _load(path: Path, gpu_layers: int | None, repack: bool, progress: Progress | None) -> Any:
    params = llama_cpp.llama_model_default_params()
    if gpu_layers is not None:
        params.n_gpu_layers = gpu_layers
    params.use_extra_bufts = repack
    reporter = _Reporter(progress)
    params.progress_callback = reporter.callback
    library.forget_complaints()
    handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if reporter.error is not None:
        if handle:
            llama_cpp.llama_model_free(handle)
        raise reporter.error
    if not handle:
        raise ModelLoadError(_why_not(path, library.last_complaint()))
    return handle


class _Reporter:
    """Passes progress on, and what the listener raises back to who loads.

    ctypes swallows exceptions, so Ctrl-C during a load would end as a damaged file. A reporter
    without a listener is still one: it is where Python gets to see Ctrl-C at all.
    """

    def __init__(self, progress: Progress | None) -> None:
        self.error: BaseException | None = None
        self._progress = progress
        self.callback = llama_cpp.llama_progress_callback(self._report)

    def _report(self, fraction: float, _data: Any) -> bool:
        try:
            if self._progress is not None:
                self._progress(fraction)
        except BaseException as error:  # noqa: BLE001  raised again once llama.cpp has returned
            self.error = error
        return self.error is None


def _why_not(path: Path, complaint: str) -> str:
    if "unknown model architecture" in complaint:
        name = complaint.rsplit(": ", 1)[-1].strip("'")
        return (
            f"{path.name} is a model of architecture {name!r}, which this llama.cpp does not "
            "know: a newer edgespec may, or pick another model."
        )
    if any(sign in complaint for sign in _DAMAGED):
        return f"{path.name} is incomplete or damaged ({complaint}): download it again."
    reason = complaint.rstrip(".?") or "llama.cpp gave no reason"
    return f"{path.name} cannot be loaded: {reason}. Download it again or pick another file."
