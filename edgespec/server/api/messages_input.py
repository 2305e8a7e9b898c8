"""The conversation of Anthropic's Messages API as the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgespec.server.errors import bad_request
from edgespec.server.parts import Part, not_text, objects, string, text

Message = dict[str, Any]

_ROLES = ("user", "assistant", "system")
_SKIPPED = ("thinking", "redacted_thinking", "tool_reference")
_FOREIGN = ("_tool_use", "_tool_result")  # of tools that run on Anthropic's servers


def conversation(system: str | list[Any] | None, given: Sequence[Part]) -> list[Message]:
    """The messages; former thoughts are left out. Raises ApiError naming what cannot be used."""
    messages: list[Message] = []
    if system:
        messages.append({"role": "system", "content": _content(system, "system")})
    for index, message in enumerate(given):
        messages += _taken(message, f"messages.{index}")
    return messages


def function(tool: Part, where: str) -> Part:
    """A tool in the form of OpenAI's chat API. Raises ApiError."""
    found = {"name": string(tool, "name", where), "parameters": tool.get("input_schema") or {}}
    if "description" in tool:
        found["description"] = string(tool, "description", where)
    return {"type": "function", "function": found}


def _taken(message: Part, where: str) -> Iterator[Message]:
    """Usually one message. What tools answered comes first: it belongs to the turn before."""
    role = string(message, "role", where)
    if role not in _ROLES:
        problem = f"{where}.role is {role[:40]!r}; use one of {', '.join(_ROLES)}."
        raise bad_request(problem, param=f"{where}.role")
    content = message.get("content", "")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    place = f"{where}.content"
    blocks = [
        (string(one, "type", f"{place}.{index}"), f"{place}.{index}", one)
        for index, one in enumerate(objects(content, place))
    ]
    results = [_result(one, at) for kind, at, one in blocks if kind == "tool_result"]
    calls = [_call(one, at) for kind, at, one in blocks if kind == "tool_use"]
    texts = [part for block in blocks for part in _texts(*block)]
    yield from results
    if texts or calls or not results:
        said = {"role": role, "content": texts}
        yield {**said, "tool_calls": calls} if calls else said


def _texts(kind: str, where: str, block: Part) -> Iterator[Part]:
    """The text of a block that is not about tools."""
    if kind == "text":
        yield text(string(block, "text", where))
    elif kind == "document":
        source = block.get("source")
        if not isinstance(source, dict) or source.get("type") != "text":
            raise not_text(where, kind)
        yield text(string(source, "data", f"{where}.source"))
    elif kind not in ("tool_use", "tool_result", *_SKIPPED) and not kind.endswith(_FOREIGN):
        raise not_text(where, kind)


def _content(content: object, where: str) -> str | list[Part]:
    """Of the system's message, or of a tool's answer."""
    if isinstance(content, str):
        return content
    return [
        part
        for index, block in enumerate(objects(content, where))
        for part in _texts(string(block, "type", f"{where}.{index}"), f"{where}.{index}", block)
    ]


def _call(block: Part, where: str) -> Part:
    arguments = block.get("input", {})
    if not isinstance(arguments, dict):
        raise bad_request(f"{where}.input must be an object.", param=f"{where}.input")
    return {
        "id": string(block, "id", where, ""),
        "function": {"name": string(block, "name", where), "arguments": arguments},
    }


def _result(block: Part, where: str) -> Message:
    return {
        "role": "tool",
        "tool_call_id": string(block, "tool_use_id", where, ""),
        "content": _content(block.get("content", ""), f"{where}.content"),
    }
