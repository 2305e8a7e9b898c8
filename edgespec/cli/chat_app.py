"""Starts the chat app: what it needs of the rest of edgespec, and with which settings it begins."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path

from edgespec.catalog import download, paths
from edgespec.catalog.registry import Model, user_file
from edgespec.catalog.resolve import Fetch, resolve_model, resolve_pair
from edgespec.cli import options as opt
from edgespec.engine import Engine
from edgespec.placing import has_gpu
from edgespec.tui.app import Start, run
from edgespec.tui.bridge import Report, Wish
from edgespec.tui.settings import ChatSettings


def run_app(
    loading: opt.Loading,
    sampling: opt.Sampling,
    max_tokens: int,
    system: str,
    theme: str,
    ascii: bool,
) -> None:
    """Until the user leaves. Raises OptionError for options that make no sense."""
    sampling.params()
    known = {field.name for field in fields(ChatSettings)}
    chosen = {name: value for name, value in asdict(sampling).items() if name in known}
    settings = ChatSettings(**chosen, max_tokens=max_tokens, system=system)
    run(
        Start(
            loader=PairLoader(loading),
            settings=settings,
            has_gpu=has_gpu,
            chats=paths.chats_file(),
            preferences=paths.config_dir() / "tui.json",
            log=paths.log_file(),
            clipboard=paths.state_dir() / "clipboard.txt",
            paths=_places(),
            theme=theme,
            ascii=ascii,
        )
    )


def _places() -> list[tuple[str, str]]:
    return [
        ("chats", str(paths.chats_file())),
        ("models", str(paths.models_dir())),
        ("your models.toml", str(user_file())),
        ("how the screen looks, and keys", str(paths.config_dir() / "tui.json")),
        ("log", str(paths.log_file())),
    ]


class PairLoader:
    """Loads as the command line says, or what the user chooses in the app in its place."""

    def __init__(self, loading: opt.Loading) -> None:
        self._loading = loading

    def fetch(self, wish: Wish, report: Report) -> None:
        """See `bridge.Loader`."""
        wanted = self._wanted(wish)
        fetch = _fetching(report)
        if wanted.target is not None:
            resolve_model(wanted.target, fetch)
        else:
            resolve_pair(wanted.pair or "default", fetch)
        if wanted.draft not in (None, "auto", "none"):
            resolve_model(wanted.draft, fetch)

    def load(self, wish: Wish, report: Report) -> Engine:
        """See `bridge.Loader`."""
        return self._wanted(wish).load(None, report).engine

    def _wanted(self, wish: Wish) -> opt.Loading:
        loading = self._loading
        if wish.name:
            loading = replace(loading, pair=None, target=None, draft=wish.draft).naming(wish.name)
        return replace(loading, ctx=wish.n_ctx) if wish.n_ctx else loading


def _fetching(report: Report) -> Fetch:
    def fetch(model: Model) -> Path:
        terms = f" ({model.license})" if model.license else ""

        def progress(done: int, total: int | None, phase: download.Phase) -> None:
            megabytes = f"{done / 1e6:.0f} MB" + (f" of {total / 1e6:.0f}" if total else "")
            report(f"{model.name}{terms}: {phase} {megabytes}", done / total if total else 0.0)

        return download.pull(model, paths.models_dir(), progress)

    return fetch
