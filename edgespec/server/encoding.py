"""JSON as bytes that every client can read, line by line."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

# Line ends to many clients that read a stream line by line, but plain text inside JSON.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def compact(value: object) -> bytes:
    """One line of JSON in UTF-8. Lone surrogates become U+FFFD. Raises ValueError for NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.translate(_LINE_ENDS)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return utf8(text)


def utf8(text: str) -> bytes:
    """UTF-8, whatever the string holds: surrogates are joined to pairs, lone ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


class JsonResponse(Response):
    """A whole answer in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return compact(content)
