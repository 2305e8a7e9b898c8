"""The content blocks of Anthropic's Messages API, and the events that tell how they grow."""

from __future__ import annotations

from collections.abc import Iterator

from edgespec.server.speech import Event, Kind, Telling


class Blocks(Telling):
    """A thinking block if there was a thought, then a text block."""

    def _open(self, kind: Kind) -> Iterator[Event]:
        yield self._event("content_block_start", content_block=_block(kind, ""))

    def _grow(self, kind: Kind, text: str) -> Iterator[Event]:
        key = "thinking" if kind == "thought" else "text"
        yield self._event("content_block_delta", delta={"type": f"{key}_delta", key: text})

    def _close(self, kind: Kind, text: str, cut: bool) -> Iterator[Event]:
        yield self._event("content_block_stop")
        self.parts.append(_block(kind, text))

    def _event(self, name: str, **more: Event) -> Event:
        return {"type": name, "index": len(self.parts), **more}


def _block(kind: Kind, text: str) -> Event:
    if kind == "thought":
        # Nothing is signed: a thought that comes back is left out anyway.
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}
