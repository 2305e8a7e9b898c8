"""Messages as they are kept, to messages as they are shown."""

from __future__ import annotations

from edgespec.tui.chats.store import Message
from edgespec.tui.provenance import Provenance
from edgespec.tui.speed.draw import Glyphs
from edgespec.tui.speed.stats import AnswerStats
from edgespec.tui.widgets.message import AnswerMessage, ChatMessage, UserMessage

ENDS = {
    "cancelled": "stopped",
    "length": "cut at max_tokens (ctrl+g)",
    "context": "cut: the context is full; ctrl+n begins a new chat",
    "failed": "failed",
}
"""What is said of an answer that did not end by itself."""

_INTERRUPTED = "interrupted"


def widget_of(message: Message, *, as_tokens: bool, glyphs: Glyphs) -> ChatMessage:
    """A question or an answer."""
    variants = (message.siblings.index(message.id) + 1, len(message.siblings))
    if message.role == "user":
        files = [f"{file.name} ({file.size} bytes)" for file in message.attachments]
        return UserMessage(message.id, message.text, files=files, variants=variants)
    end = message.finish_reason
    return AnswerMessage(
        message.id,
        message.text,
        provenance=Provenance.decoded(message.provenance),
        line=AnswerStats.from_dict(message.stats).line(glyphs),
        state=_INTERRUPTED if end is None else ENDS.get(end, ""),
        variants=variants,
        as_tokens=as_tokens,
    )
