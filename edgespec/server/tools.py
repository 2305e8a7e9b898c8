"""What tools cost in a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgespec.errors import TemplateError
from edgespec.requests import Messages
from edgespec.server.backend import Backend


async def count(
    backend: Backend,
    messages: Messages,
    template: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
) -> int:
    """How many tokens a chat has with these tools, in the form of OpenAI's chat API.

    Where the model's template does not show them, their JSON is counted. Raises as
    `Backend.tokenize`.
    """
    bare = len(await backend.tokenize(None, messages, template))
    if not tools:
        return bare
    try:
        shown = len(await backend.tokenize(None, messages, {**template, "tools": list(tools)}))
    except TemplateError:
        shown = bare
    if shown != bare:
        return shown
    return bare + len(await backend.tokenize(json.dumps(tools, ensure_ascii=False), None, {}))
