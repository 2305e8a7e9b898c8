"""The input of the Responses API as the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgespec.server.errors import bad_request
from edgespec.server.parts import Part, not_text, objects, string, text

Message = dict[str, Any]

STATELESS = (
    "This server keeps nothing between requests: send the whole conversation as input, and store"
    " false."
)

_ROLES = ("user", "assistant", "system", "developer")
# Under which key each type of part has its text.
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}


def conversation(instructions: str | None, given: str | list[Any]) -> list[Message]:
    """The messages. Items of a kind that no chat has, such as reasoning, are left out.

    Raises ApiError naming the item that cannot be used.
    """
    messages: list[Message] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for index, item in enumerate(objects(given, "input")):
        _take(item, f"input.{index}", messages)
    return messages


def _take(item: Part, where: str, messages: list[Message]) -> None:
    match string(item, "type", where, "message"):
        case "message":
            messages.append(_message(item, where))
        case "function_call":
            _calling(messages).append(_call(item, where))
        case "function_call_output":
            messages.append(_result(item, where))
        case "item_reference":
            raise bad_request(f"{where} refers to a response. {STATELESS}", param=where)
        case "input_text":
            messages.append({"role": "user", "content": string(item, "text", where)})
        case str(kind) if kind.startswith("input_") or "image" in kind:
            raise not_text(where, kind)


def _message(item: Part, where: str) -> Message:
    role = string(item, "role", where)
    if role not in _ROLES:
        problem = f"{where}.role is {role[:40]!r}; use one of {', '.join(_ROLES)}."
        raise bad_request(problem, param=f"{where}.role")
    return {"role": role, "content": _content(item.get("content", ""), f"{where}.content")}


def _content(content: object, where: str) -> str | list[Part]:
    return content if isinstance(content, str) else list(_texts(content, where))


def _texts(content: object, where: str) -> Iterator[Part]:
    for index, part in enumerate(objects(content, where)):
        place = f"{where}.{index}"
        kind = string(part, "type", place)
        if kind not in _TEXTS:
            raise not_text(place, kind)
        yield text(string(part, _TEXTS[kind], place))


def _calling(messages: list[Message]) -> list[Part]:
    """The calls of the turn under way: what is said and all calls are one message in a chat."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    calls: list[Part] = messages[-1].setdefault("tool_calls", [])
    return calls


def _call(item: Part, where: str) -> Part:
    return {
        "id": string(item, "call_id", where, ""),
        "function": {
            "name": string(item, "name", where),
            "arguments": string(item, "arguments", where, "{}"),
        },
    }


def _result(item: Part, where: str) -> Message:
    return {
        "role": "tool",
        "tool_call_id": string(item, "call_id", where, ""),
        "content": _content(item.get("output", ""), f"{where}.output"),
    }
