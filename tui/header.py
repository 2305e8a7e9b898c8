"""The line at the top: what is talked about, with which model, and how full the context is."""

from __future__ import annotations

from textual.content import Content

from edgespec.engine import EngineInfo
from edgespec.tui.colours import MUTED
from edgespec.tui.plain_text import one_line
from edgespec.tui.settings import ChatSettings

_FULL = 0.8


def heading(
    *,
    title: str,
    info: EngineInfo | None,
    settings: ChatSettings,
    used: int,
    width: int,
    loading: str = "",
) -> Content:
    """One line of `width` cells; used: tokens in the context. loading: what is being loaded, in
    place of what is."""
    models = one_line(loading, max(width - 24, 0)) or _models(info, max(width - 36, 0))
    facts = [models] if width >= 60 or loading or info is None else []
    facts += [f"temp {settings.temperature:g}"] if width >= 80 else []
    n_ctx = info.n_ctx if info else 0
    context = f"ctx {used}/{n_ctx}" if width >= 100 else f"{used / n_ctx:.0%} ctx" if n_ctx else ""
    style = "$text-warning" if n_ctx and used >= _FULL * n_ctx else MUTED
    between = " · " if facts and context else ""
    right = Content.assemble((" · ".join(facts) + between, MUTED), (context, style), " ")
    left = Content.assemble((" edgespec  ", "bold $text-primary"), one_line(title, width))
    left = left.truncate(max(width - right.cell_length - 1, 0), ellipsis=True)
    gap = width - left.cell_length - right.cell_length
    return Content.assemble(left, " " * max(gap, 0), right)


def _models(info: EngineInfo | None, width: int) -> str:
    if info is None:
        return "no model"
    target = info.target.removesuffix(".gguf")
    draft = f" + {info.draft.removesuffix('.gguf')}" if info.draft else ""
    return one_line(target + draft, width)
