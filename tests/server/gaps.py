"""A fake model that fills in the middle. Its control tokens are the first bytes there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgespec.text.fim import Fim
from tests.fake_engine import Loaded
from tests.server.scripted import says

PRE, SUF, MID, REPO, FILE = "\x01", "\x02", "\x03", "\x04", "\x05"
CURSOR = "<|cursor|>"

FIM = Fim(
    family="fake",
    order="PSM",
    prefix=1,
    suffix=2,
    middle=3,
    repo=4,
    file=5,
    after_repo="\n",
    stop_tokens=frozenset((1, 2, 3, 4, 5)),
    stop_strings=(CURSOR,),
)


def fills_with(text: str, **options: Any) -> Loaded:
    """An engine whose model fills every gap with this text."""
    return Loaded(says(text, MID), fim=FIM, **{"n_ctx": 2048, **options})


class Asked:
    """What an engine is asked for."""

    def __init__(self, loaded: Loaded) -> None:
        self.options: list[dict[str, Any]] = []
        self.prompts: list[str] = []
        self._prepare = loaded.engine.prepare
        loaded.engine.prepare = self  # type: ignore[assignment]

    def __call__(self, prompt: Sequence[int], **options: Any) -> Any:
        # BOS is none of the bytes.
        self.prompts.append(bytes(token for token in prompt if token < 256).decode())
        self.options.append(options)
        return self._prepare(prompt, **options)
