"""A model that answers chats with texts written by the test, for tests of the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgespec.protocols import Logits
from tests.fakes import FakeTokenizer, Table

_ASSISTANT = "<|im_start|>assistant\n"
_USER = "<|im_start|>user\n"

Answers = Callable[[str], str]
"""The last question of the user -> the answer."""


def chatting(answers: Answers) -> Table:
    """Writes the answer byte by byte, then ends. Prompts are those of tests.tiny_gguf.CHATML."""

    def logits(tokens: Sequence[int]) -> Logits:
        text = b"".join(bytes([t]) if t < 256 else b"\0" for t in tokens)
        head, _, written = text.rpartition(_ASSISTANT.encode())
        question = head.rpartition(_USER.encode())[2].rstrip(b"\n\0").decode()
        answer = answers(question).encode()
        row = np.full(FakeTokenizer.size, -100.0, np.float32)
        right = answer.startswith(written) and len(written) < len(answer)
        row[answer[len(written)] if right else FakeTokenizer.END] = 100.0
        return row

    return logits
