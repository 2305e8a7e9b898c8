"""The OpenAPI document, made from the table of endpoints and the models of their bodies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic.json_schema import models_json_schema

from edgespec import __version__
from edgespec.server.auth import OPEN
from edgespec.server.routes import Endpoint

_SCHEMAS = "#/components/schemas/"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_TEXT = {"type": "string"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_WHOLE = {"application/json": {"type": ["object", "array"]}}

_ERRORS = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": _MAYBE_TEXT,
                    "code": _MAYBE_TEXT,
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": _TEXT, "message": _TEXT},
            },
        },
    },
    "OllamaError": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": _TEXT},
    },
}
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def document(endpoints: Iterable[Endpoint], *, needs_key: bool) -> dict[str, Any]:
    """The whole document. needs_key: whether the server asks for a key."""
    endpoints = list(endpoints)
    bodies = {one.body for one in endpoints if one.body is not None}
    ordered = sorted(bodies, key=lambda body: (body.__name__, body.__module__))
    references, definitions = models_json_schema(
        [(body, "validation") for body in ordered], ref_template=_SCHEMAS + "{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        schema = references.get((endpoint.body, "validation")) if endpoint.body else None
        for path, operation in _operations(endpoint, schema):
            paths.setdefault(path, {})[endpoint.method.lower()] = operation
    security = [{name: list[str]()} for name in _SECURITY]
    return {
        "openapi": "3.1.0",
        "info": {"title": "edgespec", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**definitions.get("$defs", {}), **_ERRORS},
            "securitySchemes": _SECURITY,
        },
        "security": security if needs_key else [{}, *security],
    }


def _operations(
    endpoint: Endpoint, schema: dict[str, Any] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is done at each of the paths."""
    said = inspect.getdoc(endpoint.handler) or ""
    for path in endpoint.paths:
        words = [endpoint.method.lower(), *re.findall(r"\w+", _PARAMETER.sub(r"\1", path))]
        operation: dict[str, Any] = {
            "operationId": "_".join(words),
            "summary": said.partition("\n")[0],
            "description": said,
            "responses": {"200": _answer(endpoint), "default": _failure(path)},
        }
        if parameters := [_parameter(found) for found in _PARAMETER.findall(path)]:
            operation["parameters"] = parameters
        if schema is not None:
            body = {"required": True, "content": {"application/json": {"schema": schema}}}
            operation["requestBody"] = body
        if path in OPEN:
            operation["security"] = []
        yield _PARAMETER.sub(r"{\1}", path), operation


def _answer(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {endpoint.media: {"schema": _WHOLE.get(endpoint.media, _TEXT)}}
    if endpoint.streams and "stream" in getattr(endpoint.body, "model_fields", ()):
        media = "application/x-ndjson" if _is_ollama(endpoint.paths[0]) else "text/event-stream"
        content[media] = {}  # a schema would be that of one event, and there are many kinds
    return {"description": "The answer.", "content": content}


def _failure(path: str) -> dict[str, Any]:
    name = "Error"
    if path.startswith("/v1/messages"):
        name = "AnthropicError"
    elif _is_ollama(path):
        name = "OllamaError"
    schema = {"$ref": _SCHEMAS + name}
    return {"description": "An error.", "content": {"application/json": {"schema": schema}}}


def _is_ollama(path: str) -> bool:
    return path.startswith("/api/")


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}
