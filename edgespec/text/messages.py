"""Chat messages put right: what clients send, in the form that a template understands.

`arrange` does what is always right and what probes of the template ask for. `merge` is for
messages that the template refused even so. Neither changes its argument.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from typing import Any, Protocol, TypeGuard

from edgespec.errors import OptionError

Message = dict[str, Any]
"""role: system, developer, user, assistant or tool. content: str, or None in an assistant's calls
for templates that want it so. Other keys are the template's business."""


class Habits(Protocol):
    """What a template does with messages. Each is found by trying, so ask only when it matters."""

    @property
    def takes_system(self) -> bool:
        """It shows a system message at the beginning."""

    @property
    def knows_developer(self) -> bool:
        """It shows "developer", and not just as any word that stands there."""

    @property
    def late_roles(self) -> frozenset[str]:
        """Which of system and developer it shows in the middle of a chat."""

    @property
    def wants_objects(self) -> bool:
        """The arguments of a tool call have to be an object, not JSON text."""

    @property
    def wants_short_ids(self) -> bool:
        """The id of a tool call has to have nine letters or digits."""

    @property
    def wants_null(self) -> bool:
        """It shows tool calls only where the content is null."""


_ROLES = ("system", "developer", "user", "assistant", "tool")
_OLD_ROLES = {"function": "tool"}  # from before there were parallel calls
_INSTRUCTIONS = ("system", "developer")
_TEXT_PARTS = ("text", "input_text", "output_text")
_SHORT_ID = 9

# Claude Code's first line. It changes with every request, so no prefix could be used again.
_BILLING = re.compile(r"(?:\s*+x-anthropic-billing-header:[^\n]*+)++\n*+")


def arrange(messages: Sequence[Mapping[str, Any]], habits: Habits) -> list[Message]:
    """The messages as the template should get them.

    Raises OptionError naming the first message that cannot be used.
    """
    if not isinstance(messages, Sequence):
        raise OptionError(f"The messages are of type {_type(messages)}; give a list of objects.")
    checked = [_checked(index, message) for index, message in enumerate(messages)]
    arranged = _placed(list(_without_billing(checked)), habits)
    while arranged and _is_blank(arranged[-1]):
        arranged.pop()
    if not arranged:
        raise OptionError("There are no messages; give at least one user message.")
    _link(arranged)
    _shape(arranged, habits)
    return arranged


def merge(messages: Sequence[Message], habits: Habits) -> list[Message]:
    """The plainest form of arranged messages, for a template that refused them.

    Instructions stand at the beginning alone, user and assistant never speak twice in a row, the
    assistant speaks between a tool's answer and the user, and arguments that are no JSON object
    are wrapped into one where the template wants objects.
    """
    start = _leading(messages)
    late = [
        index >= start and message["role"] in _INSTRUCTIONS
        for index, message in enumerate(messages)
    ]
    runs: list[list[Message]] = []
    for message in _fold(messages, late):
        role = message["role"]
        if runs and role in ("user", "assistant") and runs[-1][0]["role"] == role:
            runs[-1].append(message)
            continue
        if runs and role == "user" and runs[-1][0]["role"] == "tool":
            # Whoever stops an agent speaks there. Templates may also refuse an empty turn.
            runs.append([{"role": "assistant", "content": "Done."}])
        runs.append([message])
    merged = [_joined(run) for run in runs]
    if any(map(_calls_of, merged)) and habits.wants_objects:
        return [_wrapped(message) for message in merged]
    return merged


# One message


def _checked(index: int, message: Mapping[str, Any]) -> Message:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise OptionError(f"{where} is not an object; give a role and a content.")
    role = message.get("role")
    role = _OLD_ROLES.get(role, role) if isinstance(role, str) else role
    if not isinstance(role, str) or role not in _ROLES:
        raise OptionError(f"{where} has the role {_shown(role)}; use one of {', '.join(_ROLES)}.")
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""  # for instance a turn that only calls tools
    checked = {**message, "role": role, "content": _content(where, content)}
    if role == "assistant":
        _take_calls(where, checked)
    elif role == "tool":
        _take_id(where, checked, "tool_call_id")
    return checked


def _content(where: str, content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise OptionError(f"{where} has no content; give a string, '' if nothing is meant.")
    if not _is_list(content):
        raise OptionError(
            f"{where} has a content of type {_type(content)}; give a string or a list of text"
            " parts."
        )
    # One part a line, as llama.cpp's server does it.
    return "\n".join(_part(f"{where}.content[{n}]", part) for n, part in enumerate(content))


def _part(where: str, part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise OptionError(
            f"{where} has the type {_shown(kind)}, but this model reads only text; send text parts"
            " alone."
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise OptionError(f"{where} has no text; give a string under 'text'.")
    return text


def _is_blank(message: Message) -> bool:
    """An assistant's turn that says nothing."""
    return (
        message["role"] == "assistant"
        and not message["content"].strip()
        and not message.get("tool_calls")
    )


def _without_billing(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        line = _BILLING.match(message["content"]) if message["role"] in _INSTRUCTIONS else None
        if line is None:
            yield message
        elif rest := message["content"][line.end() :]:
            yield {**message, "content": rest}


# Tool calls


def _take_calls(where: str, message: Message) -> None:
    """Check the calls of an assistant; templates test for the key, so without calls it goes."""
    calls = message.pop("tool_calls", None)
    old = message.get("function_call")
    if old is None:
        message.pop("function_call", None)
    elif calls is None:
        del message["function_call"]
        calls = [{"function": old}]
    if calls is None:
        return
    if not _is_list(calls):
        raise OptionError(f"{where}.tool_calls is of type {_type(calls)}; give a list of calls.")
    if calls:
        message["tool_calls"] = [
            _call(f"{where}.tool_calls[{number}]", call) for number, call in enumerate(calls)
        ]


def _call(where: str, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if (
        not isinstance(call, Mapping)
        or not isinstance(function, Mapping)
        or not isinstance(name, str)
        or not name
    ):
        raise OptionError(f"{where} names no function; give function.name and function.arguments.")
    arguments = _arguments(f"{where}.function.arguments", function.get("arguments"))
    checked = {**call, "type": "function", "function": {**function, "arguments": arguments}}
    _take_id(where, checked, "id")
    return checked


def _arguments(where: str, arguments: object) -> str:
    """As text, which is what the OpenAI API says they are."""
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return "{}"
    if not isinstance(arguments, Mapping):
        raise OptionError(f"{where} is of type {_type(arguments)}; give an object or its JSON.")
    try:
        return json.dumps(dict(arguments), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"{where} is not JSON; give an object of JSON values.") from error


def _take_id(where: str, owner: dict[str, Any], key: str) -> None:
    """An empty id is none."""
    id = owner.get(key)
    if id is not None and not isinstance(id, str):
        raise OptionError(f"{where}.{key} is of type {_type(id)}; give a string.")
    if not id:
        owner.pop(key, None)


def _calls_of(message: Message) -> list[dict[str, Any]]:
    # Under this key of any other role may be anything.
    calls: list[dict[str, Any]] = message.get("tool_calls", [])
    return calls if message["role"] == "assistant" else []


def _link(messages: Sequence[Message]) -> None:
    """Give each call an id, and each answer without one that of the oldest open call."""
    numbers = count()
    waiting: OrderedDict[str, None] = OrderedDict()  # a dict is slow at finding its first key
    for message in messages:
        if calls := _calls_of(message):
            for call, number in zip(calls, numbers, strict=False):
                call.setdefault("id", f"call_{number}")
            waiting = OrderedDict.fromkeys(call["id"] for call in calls)
        elif message["role"] == "tool":
            if waiting:
                message.setdefault("tool_call_id", next(iter(waiting)))
            waiting.pop(message.get("tool_call_id", ""), None)


def _shape(messages: Sequence[Message], habits: Habits) -> None:
    """Tool calls and their ids in the form that the template wants."""
    calling = [message for message in messages if _calls_of(message)]
    if calling and habits.wants_objects:
        for call in (call for message in calling for call in message["tool_calls"]):
            call["function"]["arguments"] = _parsed(call["function"]["arguments"])
    if calling and habits.wants_null:
        for message in calling:
            message["content"] = message["content"] or None
    if calling and habits.wants_short_ids:
        _shorten(messages)


def _parsed(text: str) -> dict[str, Any] | str:
    """The object, or the text when it holds none: a model may have written it."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _shorten(messages: Iterable[Message]) -> None:
    known: dict[str, str] = {}

    def short(id: str) -> str:
        if len(id) == _SHORT_ID and id.isascii() and id.isalnum():
            return id
        return known.setdefault(id, f"{len(known):0{_SHORT_ID}d}")

    for message in messages:
        for call in _calls_of(message):
            call["id"] = short(call["id"])
        if message["role"] == "tool" and "tool_call_id" in message:
            message["tool_call_id"] = short(message["tool_call_id"])


def _wrapped(message: Message) -> Message:
    calls = [_with_object(call) for call in _calls_of(message)]
    return {**message, "tool_calls": calls} if calls else message


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    if isinstance(function["arguments"], dict):
        return call
    return {**call, "function": {**function, "arguments": {"arguments": function["arguments"]}}}


# Several messages


def _placed(messages: list[Message], habits: Habits) -> list[Message]:
    """The instructions where the template reads them, under the role that it knows."""
    if any(message["role"] == "developer" for message in messages) and not habits.knows_developer:
        messages = [
            {**message, "role": "system"} if message["role"] == "developer" else message
            for message in messages
        ]
    start = _leading(messages)
    leading = [_joined(list(run)) for _, run in groupby(messages[:start], lambda one: one["role"])]
    placed = leading + messages[start:]
    refused = [
        message["role"] in _INSTRUCTIONS
        and _refuses(message["role"], index >= len(leading), habits)
        for index, message in enumerate(placed)
    ]
    return _fold(placed, refused) if any(refused) else placed


def _leading(messages: Sequence[Message]) -> int:
    """How many instructions there are at the beginning."""
    others = (n for n, message in enumerate(messages) if message["role"] not in _INSTRUCTIONS)
    return next(others, len(messages))


def _refuses(role: str, late: bool, habits: Habits) -> bool:
    if role == "system" and not habits.takes_system:
        return True
    return late and role not in habits.late_roles


def _fold(messages: Sequence[Message], folds: Sequence[bool]) -> list[Message]:
    """Put each text that folds in front of the next user message.

    Behind the last one it becomes a user message at its own place, or the end of one just before.
    """
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    last = users[-1] if users else -1
    runs: list[list[Message]] = []  # each becomes one message
    pending: list[Message] = []
    for index, (message, folding) in enumerate(zip(messages, folds, strict=True)):
        if not folding:
            takes = message["role"] == "user"
            runs.append([*pending, message] if takes else [message])
            pending = [] if takes else pending
        elif message["content"]:
            text = {"role": "user", "content": message["content"]}
            if index < last:
                pending.append(text)
            elif runs and runs[-1][0]["role"] == "user":
                runs[-1].append(text)
            else:
                runs.append([text])
    return [_joined(run) for run in runs]


def _joined(run: Sequence[Message]) -> Message:
    """One message: the texts as paragraphs, all calls; of other keys the first one's count."""
    if len(run) == 1:
        return run[0]
    joined: Message = {}
    for message in reversed(run):
        joined.update(message)
    texts = [message["content"] for message in run if message["content"]]
    joined["content"] = "\n\n".join(texts) if texts else run[0]["content"]
    if calls := [call for message in run for call in _calls_of(message)]:
        joined["tool_calls"] = calls
    return joined


# What a value is


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _shown(value: object) -> str:
    """For an error: short, on one line, and safe to make, as a value can be anything."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    return "None" if value is None else f"of type {_type(value)}"


def _type(value: object) -> str:
    return type(value).__name__
