"""Which model to load: first the target, then what drafts for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual import getters, on, work
from textual.app import ComposeResult
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from edgespec.errors import EdgespecError
from edgespec.tui.dialogs.frame import Box, Dialog
from edgespec.tui.dialogs.picker import Item, Picker, matching
from edgespec.tui.plain_text import one_line
from edgespec.tui.shelf import AUTO, DraftEntry, Entry, Shelf

log = logging.getLogger(__name__)

_LONGEST = 400  # characters of an explanation
_FIND_MODEL, _FIND_DRAFT = "type to find a model", "type to find a draft model"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """name: of a pair or model, or the path of a file. draft: "auto", "none", a path or a name;
    None for a pair, which has its own."""

    name: str
    pair: bool
    draft: str | None


class ModelDialog(Dialog[ModelChoice]):
    """Both callables may take their time, and raise EdgespecError. current: the target that is
    loaded, by name, path or name of its file."""

    DEFAULT_CSS = """
    ModelDialog {
        & > Box {
            height: 100%;
            max-height: 34;
        }
        & .about {
            height: 2;
            color: $text-muted;
        }
        & .complaint {
            height: auto;
            max-height: 2;
            color: $text-warning;
        }
    }
    """

    _box = getters.query_one(Box)
    _picker = getters.query_one(Picker)
    _about = getters.query_one(".about", Static)
    _complaint = getters.query_one(".complaint", Static)

    def __init__(
        self,
        list_models: Callable[[], Shelf],
        list_drafts: Callable[[Path], list[DraftEntry]],
        current: str,
    ) -> None:
        super().__init__()
        self._list_models = list_models
        self._list_drafts = list_drafts
        self._current = current
        self._models: Sequence[Entry] = ()
        self._drafts: Sequence[DraftEntry] = ()
        self._target: Entry | None = None  # whose draft model is being chosen
        self._waiting = ""  # what is being done, when it is
        self._worker: Worker[Any] | None = None  # whose result is wanted

    def compose(self) -> ComposeResult:
        with Box("Model", ""):
            yield Picker("")
            yield Static(classes="about", markup=False)
            yield Static(classes="complaint", markup=False)

    def on_mount(self) -> None:
        self._ask_for_model()
        self._begin("looking for models")
        self._worker = self._look_for_models()

    # What takes its time.

    @work(thread=True, exclusive=True, exit_on_error=False)
    def _look_for_models(self) -> Shelf:
        return self._list_models()

    @work(thread=True, exclusive=True, exit_on_error=False)
    def _look_for_drafts(self, target: Path) -> list[DraftEntry]:
        return self._list_drafts(target)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show what was found, or why nothing was."""
        worker = event.worker
        if worker is not self._worker or not worker.is_finished:
            return
        self._worker = None
        self._waiting = ""
        if worker.state is WorkerState.ERROR:
            self._complain(_reason(worker.error))
        elif isinstance(worker.result, Shelf):
            self._models = worker.result.entries
            self._complain(worker.result.complaint)
        else:
            self._drafts = worker.result or ()
        self._list()

    def _begin(self, doing: str) -> None:
        self._waiting = doing
        self._complain("")
        self._list()

    # The two steps.

    def _ask_for_model(self) -> None:
        self._target = None
        self._box.border_title = "Model"
        self._box.border_subtitle = "enter choose · esc close"
        self._picker.clear_input(_FIND_MODEL)

    def _ask_for_draft(self, target: Entry, file: Path) -> None:
        self._target = target
        self._drafts = ()
        self._box.border_title = "Draft model"
        self._box.border_subtitle = "enter choose · backspace back · esc close"
        self._picker.clear_input(_FIND_DRAFT)
        self._begin(f"looking which draft models fit {one_line(target.title, 60)}")
        self._worker = self._look_for_drafts(file)

    @on(Picker.Back)
    def _go_back(self) -> None:
        if self._target is not None:
            self._worker = None
            key = str(self._models.index(self._target))
            self._ask_for_model()
            self._waiting = ""
            self._complain("")
            self._list(key)

    @on(Picker.Chosen)
    def _choose(self) -> None:
        draft, entry = self._highlighted_draft(), self._highlighted_model()
        if draft is not None and self._target is not None:
            if draft.fits:
                self.answer(ModelChoice(self._target.name, False, draft.name))
            else:
                self._complain(f"{draft.title} does not fit: choose another one, or none.")
        elif entry is not None and not entry.pair and entry.target is not None:
            self._ask_for_draft(entry, entry.target)
        elif entry is not None:
            self.answer(ModelChoice(entry.name, entry.pair, None if entry.pair else AUTO))

    # What is shown.

    @on(Picker.Typed)
    def _typed(self) -> None:
        self._list()

    @on(Picker.Moved)
    def _explain(self) -> None:
        """The row may be cut; here is all of it."""
        shown = self._highlighted_draft() or self._highlighted_model()
        text = f"{shown.title}: {shown.detail}" if shown and shown.detail else ""
        self._about.update(one_line(text, _LONGEST))

    def _list(self, highlight: str | None = None) -> None:
        items = self._model_items() if self._target is None else self._draft_items()
        empty = self._waiting or ("nothing matches" if items else "nothing was found")
        if highlight is None and not self._picker.text:
            highlight = next((item.key for item in items if item.current), None)
        self._picker.show(matching(items, self._picker.text), empty, highlight)

    def _model_items(self) -> list[Item]:
        # By number: a pair and a model may share a name.
        return [
            Item(
                str(at),
                entry.title,
                entry.detail,
                self._is_current(entry),
                entry.target is None,
            )
            for at, entry in enumerate(self._models)
        ]

    def _draft_items(self) -> list[Item]:
        return [
            Item(str(at), draft.title, draft.detail, faint=not draft.fits)
            for at, draft in enumerate(self._drafts)
        ]

    def _is_current(self, entry: Entry) -> bool:
        known = {entry.name}
        if entry.target is not None:
            known |= {str(entry.target), entry.target.name}
        return self._current in known

    def _highlighted_model(self) -> Entry | None:
        key = self._picker.key
        return self._models[int(key)] if key is not None and self._target is None else None

    def _highlighted_draft(self) -> DraftEntry | None:
        key = self._picker.key
        return self._drafts[int(key)] if key is not None and self._target is not None else None

    def _complain(self, text: str) -> None:
        self._complaint.display = bool(text)
        self._complaint.update(one_line(text, _LONGEST))


def _reason(error: BaseException | None) -> str:
    if isinstance(error, EdgespecError):
        return str(error)
    log.error("models cannot be listed", exc_info=error)
    return f"Models cannot be listed: {error!r}. The log says more."
