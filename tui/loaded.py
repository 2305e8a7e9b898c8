"""The model that is loaded, or being loaded, as far as the screen tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from edgespec.engine import EngineInfo
from edgespec.tui.bridge import Loaded, NotLoaded, Progress
from edgespec.tui.settings import ChatSettings
from edgespec.tui.speed.figures import PanelState


@dataclass(slots=True)
class LoadedModel:
    """info: None while there is none. loading: what is being done, "" when nothing is."""

    info: EngineInfo | None = None
    loading: str = ""

    def take(self, event: Progress | Loaded | NotLoaded, *, has_engine: bool) -> list[Note]:
        """What has happened; returns what to tell of it."""
        if isinstance(event, Progress):
            done = f" {event.done:.0%}" if 0.0 < event.done < 1.0 else ""
            self.loading = f"{event.what}{done}"
            return []
        self.loading = ""
        if isinstance(event, Loaded):
            return self._loaded(event)
        if has_engine:
            return [Note(event.why or "Given up.", "error")]
        self.info = None
        return [Note(f"{event.why or 'Given up.'} Choose another model: ctrl+t.", "error")]

    def _loaded(self, event: Loaded) -> list[Note]:
        self.info = event.info
        notes = [Note(line) for line in event.info.decisions]
        if not event.has_template:
            notes.append(
                Note(
                    f"{event.info.target} has no chat template, so it cannot chat: choose "
                    "another model (ctrl+t).",
                    "warning",
                )
            )
        return notes

    def panel_state(self, doing: str, settings: ChatSettings) -> PanelState:
        """For the panel; doing: what happens to the answer, "" when nothing does."""
        info = self.info
        automatic = settings.k == "auto" and info is not None
        return PanelState(
            state=self.loading or doing or ("idle" if info else "no model"),
            k_mode=str(info.num_draft_tokens if automatic and info else settings.k),
            drafters=self._drafters(settings),
        )

    def _drafters(self, settings: ChatSettings) -> str:
        info = self.info
        if info is None:
            return ""
        if not info.drafters:
            return f"off: {info.notes[0]}" if info.notes else "off"
        if settings.k == 0:
            return "off: k is 0"
        return ", ".join(info.drafters) if settings.drafter == "auto" else settings.drafter


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the chat; kind: see Transcript.note."""

    text: str
    kind: str = ""
