"""Parts of a message's content. Each fault is named by the place at which the client sent it."""

from __future__ import annotations

from typing import Any

from edgespec.server.errors import ApiError, bad_request

Part = dict[str, Any]


def objects(value: object, where: str) -> list[Part]:
    """A list of objects. Raises ApiError."""
    if not isinstance(value, list):
        raise bad_request(f"{where} must be a string or an array.", param=where)
    for index, one in enumerate(value):
        if not isinstance(one, dict):
            raise bad_request(f"{where}.{index} must be an object.", param=f"{where}.{index}")
    return value


def string(owner: Part, key: str, where: str, default: str | None = None) -> str:
    """What stands under this key. Raises ApiError, also where it is missing without default."""
    value = owner.get(key, default)
    if not isinstance(value, str):
        problem = "is missing" if value is None else "must be a string"
        raise bad_request(f"{where}.{key} {problem}.", param=f"{where}.{key}")
    return value


def text(value: str) -> Part:
    """A part in the form that `Engine.submit` takes."""
    return {"type": "text", "text": value}


def not_text(where: str, kind: str) -> ApiError:
    """The error for a picture, a sound or a file."""
    return bad_request(
        f"{where} is of the type {kind[:40]!r}, but this model reads only text.", param=where
    )
