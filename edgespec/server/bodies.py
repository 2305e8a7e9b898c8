"""A request's body: JSON in, a checked pydantic model out, 400 for anything else."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from edgespec.server.encoding import utf8
from edgespec.server.errors import ApiError, bad_request

MAX_DEPTH = 64

Model = TypeVar("Model", bound=BaseModel)

_LARGE = 256 * 1024  # bytes whose parsing other requests would notice
_SHOWN = 60  # characters of a wrong value
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# What stands under these keys is the user's own data, in which null has a meaning.
_FOREIGN = frozenset(
    ("arguments", "parameters", "input_schema", "schema", "chat_template_kwargs", "metadata")
)
# In a JSON schema, wherever it stands, these two say something even when they are null.
_MEANT = frozenset(("const", "default"))
_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "list_type": "an array",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
}


async def read(request: Request, model: type[Model]) -> Model:
    """The body as `model`; null counts as absent.

    Raises ApiError: 415 for a type of content that a web page may send unasked, 400 for the rest.
    pydantic collects every fault of a list, so long lists should stop at the first (`FailFast`).
    """
    _check_type(request)
    raw = await request.body()
    if len(raw) > _LARGE:
        return await asyncio.to_thread(_parse, raw, model)
    return _parse(raw, model)


def _check_type(request: Request) -> None:
    # A browser sends other types to any server without asking it first.
    if "origin" not in request.headers:
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise ApiError(
            415,
            f"The content type {_shown(kind)} is not taken from web pages; use application/json.",
            code="unsupported_media_type",
        )


def _parse(raw: bytes, model: type[Model]) -> Model:
    value = _loads(raw)
    if not isinstance(value, dict):
        raise bad_request(f"The body must be a JSON object, not {_shown(value)}.")
    _tidy(value, 1, False)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
    raise _fault(faults, value)


def _loads(raw: bytes) -> object:
    if not raw.strip():
        raise bad_request("The body is empty; send a JSON object.")
    try:
        # Some programs on Windows put a byte order mark in front.
        text = raw.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
        if _SURROGATE.search(text):
            # Editors cut text in the middle of an emoji, but half of one is no Unicode.
            value = json.loads(utf8(json.dumps(value, ensure_ascii=False)))
        return value
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        reason = str(error) if isinstance(error, _BadNumber) else "a number is too long"
    raise bad_request(f"The body is not valid JSON: {reason}.")


class _BadNumber(ValueError):
    """A number that JSON does not have."""


def _refuse_number(name: str) -> NoReturn:
    raise _BadNumber(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _BadNumber(f"{_cut(text)} is too large")
    return number


def _tidy(value: dict[str, Any] | list[Any], depth: int, foreign: bool) -> None:
    """Remove null members, in place, and refuse what is nested too deeply."""
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, list):
        for inner in value:
            if isinstance(inner, (dict, list)):
                _tidy(inner, depth + 1, foreign)
        return
    for key, inner in list(value.items()):
        if isinstance(inner, (dict, list)):
            _tidy(inner, depth + 1, foreign or _is_foreign(key, inner))
        elif inner is None and not foreign and key not in _MEANT:
            del value[key]


def _is_foreign(key: str, value: object) -> bool:
    # As an object, "input" is what a model gave to a tool; as a list, it is a conversation.
    return key in _FOREIGN or (key == "input" and isinstance(value, dict))


def _too_deep() -> ApiError:
    return bad_request(f"The body is nested too deeply; {MAX_DEPTH} levels are allowed.")


def _fault(faults: list[ErrorDetails], body: dict[str, Any]) -> ApiError:
    """The first fault, with everything else that would have been right at its place."""
    first = faults[0]
    path = _path(first, body)
    where = path or "The body"
    if first["type"] == "missing":
        return bad_request(f"{where} is missing.", param=path or None)
    if first["type"] in ("value_error", "assertion_error"):
        message = _line(first["msg"].partition(", ")[2]).rstrip(".")
        return bad_request(f"{where}: {message}.", param=path or None)
    # A field of several types has one fault for each of them.
    same = [_expected(fault) for fault in faults[:20] if _path(fault, body) == path]
    expected = " or ".join(dict.fromkeys(same))
    message = f"{where} must be {expected}, not {_shown(first['input'])}."
    return bad_request(message, param=path or None)


def _path(fault: ErrorDetails, body: object) -> str:
    """pydantic's location without the names of the types that it tried."""
    location = fault["loc"]
    absent = len(location) - 1 if fault["type"] == "missing" else None
    parts: list[str] = []
    value: Any = body
    for index, part in enumerate(location):
        if _has(value, part):
            value = value[part]
        elif index != absent:
            continue
        parts.append(str(part))
    return _cut(".".join(parts))


def _has(value: object, part: int | str) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int)


def _expected(fault: ErrorDetails) -> str:
    known = _EXPECTED.get(fault["type"])
    return known or _line(fault["msg"]).removeprefix("Input should be ")


def _shown(value: object) -> str:
    """A value for a message, never a long one."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, str):
        # Cut first: the whole may be megabytes.
        return json.dumps(_cut(value), ensure_ascii=False)
    return _cut(json.dumps(value, default=str))


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
