"""The output items of the Responses API, and the events that tell how they grow."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from edgespec.server.speech import Event, Kind, Telling
from edgespec.text.thoughts import Said

_PARTS: dict[Kind, str] = {"thought": "reasoning_text", "answer": "output_text"}
_IDS: dict[Kind, str] = {"thought": "rs", "answer": "msg"}


class Output(Telling):
    """A reasoning item if there was a thought, then a message."""

    def __init__(self) -> None:
        super().__init__()
        self._id = ""
        self._new: list[Any] = []  # log-probabilities that no delta has told yet
        self._logprobs: list[Any] = []

    def say(self, said: Said, logprobs: Sequence[Any] = ()) -> Iterator[Event]:
        """More text, and the log-probabilities of its tokens."""
        # Those of a thought's tokens are told nowhere.
        self._new = [*(self._new if self._kind != "thought" else ()), *logprobs]
        return self.add(said)

    def _open(self, kind: Kind) -> Iterator[Event]:
        self._id = f"{_IDS[kind]}_{secrets.token_hex(24)}"
        yield self._event("output_item.added", item=self._item(kind, "in_progress", []))
        yield self._inside("content_part.added", part=_part(kind, ""))

    def _grow(self, kind: Kind, text: str) -> Iterator[Event]:
        yield self._inside(f"{_PARTS[kind]}.delta", delta=text, **self._told(kind))

    def _close(self, kind: Kind, text: str, cut: bool) -> Iterator[Event]:
        more = {"logprobs": self._logprobs} if kind == "answer" else {}
        part = _part(kind, text, self._logprobs)
        item = self._item(kind, "incomplete" if cut else "completed", [part])
        yield self._inside(f"{_PARTS[kind]}.done", text=text, **more)
        yield self._inside("content_part.done", part=part)
        yield self._event("output_item.done", item=item)
        self.parts.append(item)

    def _told(self, kind: Kind) -> dict[str, Any]:
        """The log-probabilities for one delta, if it has any."""
        if kind == "thought":
            return {}
        new, self._new = self._new, []
        self._logprobs += new
        return {"logprobs": new}

    def _item(self, kind: Kind, status: str, content: list[Event]) -> Event:
        item = {"id": self._id, "status": status, "content": content}
        if kind == "thought":
            return {**item, "type": "reasoning", "summary": []}
        return {**item, "type": "message", "role": "assistant"}

    def _inside(self, name: str, **more: Any) -> Event:
        return self._event(name, item_id=self._id, content_index=0, **more)

    def _event(self, name: str, **more: Any) -> Event:
        return {"type": f"response.{name}", "output_index": len(self.parts), **more}


def _part(kind: Kind, text: str, logprobs: Sequence[Any] = ()) -> Event:
    part = {"type": _PARTS[kind], "text": text}
    return part if kind == "thought" else {**part, "annotations": [], "logprobs": list(logprobs)}
