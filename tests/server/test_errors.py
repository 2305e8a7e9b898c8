"""Every failure is told in the shape that the client's API has, and tells nothing else."""

from __future__ import annotations

import json
import logging

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from edgespec.errors import (
    BackendError,
    ContextFullError,
    EngineClosedError,
    OptionError,
    TemplateError,
)
from edgespec.server.encoding import compact
from edgespec.server.errors import (
    ApiError,
    anthropic_body,
    api_error,
    bad_request,
    error_response,
    handle,
    not_found,
    not_supported,
    ollama_body,
    openai_body,
    unavailable,
)
from tests.server.asgi import request


@pytest.mark.parametrize("exception", [OptionError("bad k"), TemplateError("bad k")])
def test_what_the_request_did_wrong_is_a_400(exception: Exception) -> None:
    error = api_error(exception)
    assert error.status == 400
    assert openai_body(error) == {
        "error": {
            "message": "bad k",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }


def test_overflow_has_the_words_and_keys_that_clients_look_for() -> None:
    error = api_error(ContextFullError("full", 900, 512), param="prompt")
    body = openai_body(error)["error"]
    assert error.status == 400
    assert "This model's maximum context length is 512 tokens" in body["message"]
    assert "exceeds the available context size" in body["message"]
    assert {key: body[key] for key in body if key != "message"} == {
        "type": "exceed_context_size_error",
        "param": "prompt",
        "code": "context_length_exceeded",
        "n_prompt_tokens": 900,
        "n_ctx": 512,
    }
    message = anthropic_body(error)["error"]["message"]
    assert message.startswith("prompt is too long: ")
    assert body["message"] in message


def test_overflow_of_unknown_size_says_no_wrong_number() -> None:
    body = openai_body(api_error(ContextFullError("full")))["error"]
    assert body["n_prompt_tokens"] is None
    assert body["n_ctx"] is None
    assert "This model's maximum context length is" in body["message"]
    assert "exceeds the available context size" in body["message"]
    assert "None" not in body["message"]
    assert body["param"] == "messages"


def test_a_closed_engine_is_unavailable_and_worth_another_try() -> None:
    error = api_error(EngineClosedError("closed"))
    assert (error.status, error.type) == (503, "unavailable_error")
    assert int(error.headers["retry-after"]) > 0


@pytest.mark.parametrize("exception", [BackendError("/home/me/x.gguf"), ValueError("/home/me")])
def test_anything_else_is_logged_and_told_to_nobody(
    exception: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="edgespec"):
        error = api_error(exception)
    assert (error.status, error.type, error.code) == (500, "server_error", "internal_error")
    assert error.message.startswith("internal error")
    assert "/home" not in json.dumps(openai_body(error))
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is exception


def test_what_starlette_refuses_is_told_in_the_same_shape() -> None:
    error = api_error(HTTPException(404))
    assert (error.status, error.type, error.code) == (404, "not_found_error", "unknown_url")
    error = api_error(HTTPException(405, headers={"Allow": "POST"}))
    assert (error.status, error.type) == (405, "invalid_request_error")
    assert error.headers == {"Allow": "POST"}
    assert api_error(HTTPException(418, "teapot")).message == "teapot"


def test_a_client_that_went_away_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    assert api_error(ClientDisconnect()).code == "client_gone"
    assert not caplog.records


def test_an_api_error_stays_what_it_is() -> None:
    error = bad_request("no", param="stop", code="x")
    assert api_error(error) is error
    assert str(error) == "no"
    assert openai_body(error)["error"]["param"] == "stop"
    assert not_found("no such model", code="model_not_found").status == 404
    assert not_supported("no FIM").type == "not_supported_error"
    assert unavailable("busy", retry_after=3, status=429).headers == {"retry-after": "3"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropic_has_names_of_its_own(status: int, kind: str) -> None:
    body = {"type": "error", "error": {"type": kind, "message": "m"}}
    assert anthropic_body(ApiError(status, "m")) == body


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/messages", anthropic_body),
        ("/v1/messages/count_tokens", anthropic_body),
        ("/v1/messagesx", openai_body),
        ("/api/chat", ollama_body),
        ("/v1/chat/completions", openai_body),
        ("/nowhere", openai_body),
    ],
)
def test_the_path_chooses_the_shape(path: str, shape: object) -> None:
    assert callable(shape)
    error = unavailable("busy")
    response = error_response(error, path)
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "1"
    assert json.loads(bytes(response.body)) == shape(error)


async def test_starlette_can_be_given_the_handler() -> None:
    response = await handle(request(), OptionError("bad"))
    assert response.status_code == 400
    assert json.loads(bytes(response.body))["error"]["message"] == "bad"


def test_a_message_with_half_a_character_does_not_fail() -> None:
    body = error_response(bad_request("no \ud800 role"), "/").body
    assert json.loads(bytes(body))["error"]["message"] == "no \ufffd role"


def test_compact_json_is_one_line_to_every_client() -> None:
    odd = "a\u2028b\u2029c\x85d\ne\r\x0b\x0c\x1c é 🙂"
    line = compact({"x": [odd, 1, None]})
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {"x": [odd, 1, None]}
    assert "é 🙂".encode() in line
    assert b": " not in line
    assert json.loads(compact("\ud83d\ude42 \ude42")) == "🙂 \ufffd"
    with pytest.raises(ValueError, match="Out of range"):
        compact(float("nan"))
