"""What clients may want to know of the model that is served."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """As read from the file of the target. size: bytes. template: its chat template's source."""

    description: str = ""
    architecture: str = ""
    size: int = 0
    parameters: int = 0
    n_vocab: int = 0
    n_ctx_train: int = 0
    template: str = ""
