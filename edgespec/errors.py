"""Every error edgespec raises on purpose.

    EdgespecError
    ├── OptionError                 an option or request that makes no sense
    ├── CatalogError                models.toml, files on disk
    │   ├── UnknownModelError       no model or pair of that name
    │   └── DownloadError           a model could not be fetched or is damaged
    ├── ModelLoadError              a GGUF file that cannot be used
    ├── IncompatibleDraftError      the draft model's vocabulary is not the target's
    ├── TemplateError               the chat template is missing or refuses the messages
    ├── ContextFullError            the prompt does not fit
    ├── BackendError                llama.cpp failed while running
    │   ├── CannotRewindError       the model's memory cannot drop the tokens asked for
    │   ├── NoRoomError             the model's memory is full
    │   └── DecodeAbortedError      a pass was interrupted on purpose
    ├── EngineClosedError           the engine was closed
    └── BenchError                  a suite or a result file that cannot be used

A message is one line: what happened, why, and what to do next.
"""

from __future__ import annotations


class EdgespecError(Exception):
    """The root of the tree. `exit_code` is what the command line returns for it."""

    exit_code = 1


class OptionError(EdgespecError):
    """An option or request that makes no sense, found before any work is done."""

    exit_code = 2


class CatalogError(EdgespecError):
    """Something is wrong with models.toml or with files the catalog manages."""


class UnknownModelError(CatalogError):
    """No model or pair of that name."""

    exit_code = 2


class DownloadError(CatalogError):
    """A model could not be fetched, or what was fetched is damaged."""


class ModelLoadError(EdgespecError):
    """A file that cannot be loaded as a model."""


class IncompatibleDraftError(EdgespecError):
    """The draft model's vocabulary does not match the target's."""


class TemplateError(EdgespecError):
    """The model's chat template is missing, broken, or refuses the messages."""


class ContextFullError(EdgespecError):
    """The prompt does not fit into the context of `n_ctx` tokens.

    prompt_tokens: how many it has; None where it was too long to count.
    """

    def __init__(self, message: str, prompt_tokens: int | None = None, n_ctx: int = 0) -> None:
        super().__init__(message, prompt_tokens, n_ctx)
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx

    def __str__(self) -> str:
        return str(self.args[0])


class BackendError(EdgespecError):
    """llama.cpp failed while running."""


class CannotRewindError(BackendError):
    """The model's memory cannot drop the tokens asked for; the sequence must be computed anew."""


class NoRoomError(BackendError):
    """The model's memory has no free cells for a pass; nothing of it was done."""


class DecodeAbortedError(BackendError):
    """A pass was interrupted on purpose; the tokens of that pass are not in memory."""


class EngineClosedError(EdgespecError):
    """The engine was closed while, or before, it was used."""


class BenchError(EdgespecError):
    """A suite or a result file of the benchmark that cannot be used."""
