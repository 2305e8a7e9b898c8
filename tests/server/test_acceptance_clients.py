"""The acceptance list of the reference (http_api.md, section 7): what clients send, and limits.

The numbers are those of the list; the others are in the file beside this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import AliasChoices

from edgespec.server.routes import Endpoint, endpoints
from edgespec.text.template import ChatTemplate
from tests.fake_engine import Loaded
from tests.server.gaps import FIM
from tests.server.live import Connection, head
from tests.server.whole import CHAT, GREEDY, Whole, chat, whole
from tests.tiny_gguf import CHATML

N_CTX = 512
KEY = "secret-key"


@pytest.fixture(scope="module")
def server() -> Iterator[Whole]:
    """One that can all there is, and needs no key."""
    with whole(Loaded(fim=FIM, max_sequences=5, n_ctx=N_CTX), ollama=True) as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[Whole]:
    """The same with a key."""
    with whole(ollama=True, keys=(KEY,)) as server:
        yield server


# Prefixes.


def test_06_the_second_turn_of_a_long_chat_reads_only_what_is_new() -> None:
    with whole(Loaded(n_ctx=16384, max_sequences=5)) as server:
        messages = [{"role": "user", "content": "All my code. " * 800}]
        body = {"messages": messages, "max_tokens": 20, **GREEDY}
        first = server.post(CHAT, body).json()
        assert first["usage"]["prompt_tokens"] > 10_000
        messages.append(first["choices"][0]["message"])
        messages.append({"role": "user", "content": "And now?"})
        rows = sum(server.model.rows_seen)
        second = server.post(CHAT, body).json()
        # The last token of an answer is not in memory.
        cached = first["usage"]["prompt_tokens"] + 20 - 1
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert second["timings"]["cache_n"] == cached
        new = second["usage"]["prompt_tokens"] - cached
        assert second["timings"]["prompt_n"] == new < 100
        # Every answer's last token is emitted, but not decoded.
        assert sum(server.model.rows_seen) - rows == new + 20 - 1


def test_07_a_line_that_changes_with_every_request_does_not_void_the_cache() -> None:
    def asked(server: Whole, checksum: str, *messages: dict[str, Any]) -> dict[str, int]:
        billing = f"x-anthropic-billing-header: cc_version=2.1; cch={checksum};"
        system = [{"type": "text", "text": text} for text in (billing, "You are an agent. " * 99)]
        body = {"model": "claude", "system": system, "max_tokens": 4, "messages": list(messages)}
        answer = server.post("/v1/messages?beta=true", body)
        assert answer.status_code == 200
        used: dict[str, int] = answer.json()["usage"]
        return used

    question = {"role": "user", "content": "Look at it."}
    turn = {"role": "assistant", "content": "Yes."}, question
    with whole(Loaded(n_ctx=4096, max_sequences=5)) as server:
        first = asked(server, "00a1b", question)
        assert first["input_tokens"] > 18 * 99
        second = asked(server, "fe77c", question, *turn)
        assert second["cache_read_input_tokens"] >= first["input_tokens"] - 4
        assert second["input_tokens"] < 100


# What does not fit.


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x" * N_CTX}]}, "messages"),
        ("/v1/completions", {"prompt": "x" * N_CTX}, "prompt"),
        ("/v1/completions", {"prompt": [120] * N_CTX}, "prompt"),
        ("/completion", {"prompt": "x" * N_CTX}, "prompt"),
        ("/v1/fim/completions", {"prompt": "x" * N_CTX, "suffix": "y"}, "prompt"),
    ],
)
def test_08_a_prompt_that_does_not_fit_is_told_as_all_clients_know_it(
    server: Whole, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    answer = server.post(path, {**body, "stream": stream})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    message = error.pop("message")
    assert f"This model's maximum context length is {N_CTX} tokens" in message
    assert "exceeds the available context size" in message
    assert N_CTX <= error.pop("n_prompt_tokens") < 2 * N_CTX
    assert error == {
        "type": "exceed_context_size_error",
        "param": param,
        "code": "context_length_exceeded",
        "n_ctx": N_CTX,
    }


def test_08_what_is_far_too_long_is_not_even_counted(server: Whole) -> None:
    error = server.post(CHAT, chat("x" * 10_000_000)).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["n_prompt_tokens"] is None
    assert error["n_ctx"] == N_CTX


# Who may come in.


def test_09_a_foreign_host_is_refused(server: Whole) -> None:
    for path in ("/health", "/v1/models", "/", "/nowhere"):
        refused = server.get(path, host="evil.example")
        assert refused.status_code == 403
        assert refused.json()["error"]["type"] == "permission_error"
        assert server.get(path, host=f"evil.example:{server.port}").status_code == 403
    for host in ("localhost:1", "localhost", "127.0.0.1:65535", "[::1]:8080", "LOCALHOST:9"):
        assert server.get("/v1/models", host=host).status_code == 200


def test_10_a_preflight_needs_no_key(locked: Whole) -> None:
    wanted = "authorization, content-type, x-stainless-os, x-stainless-retry-count"
    answer = locked.ask(
        "OPTIONS",
        CHAT,
        origin="http://localhost:3000",
        access_control_request_method="POST",
        access_control_request_headers=wanted,
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert answer.headers["access-control-allow-headers"] == wanted
    assert "POST" in answer.headers["access-control-allow-methods"]


GUARDED = [
    (endpoint.method, path.partition("{")[0])
    for endpoint in endpoints(like_ollama=True)
    for path in endpoint.paths
    if path not in ("/health", "/v1/health")
]


@pytest.mark.parametrize(("method", "path"), [*GUARDED, ("GET", "/nowhere")])
def test_11_every_path_asks_for_the_key(locked: Whole, method: str, path: str) -> None:
    wrong: list[dict[str, str]] = [{}, {"authorization": "Bearer no"}, {"x_api_key": f"{KEY}x"}]
    for headers in wrong:
        answer = locked.ask(method, path, **headers)
        assert answer.status_code == 401
        found = answer.json()
        if path.startswith("/v1/messages"):
            assert found["error"]["type"] == "authentication_error"
        elif path.startswith("/api/"):
            assert "key" in found["error"]
        else:
            assert found["error"]["code"] == "invalid_api_key"
    for headers in ({"authorization": f"Bearer {KEY}"}, {"x_api_key": KEY}):
        assert locked.ask(method, path, **headers).status_code != 401


def test_11_health_asks_nobody(locked: Whole) -> None:
    for path in ("/health", "/v1/health"):
        assert locked.get(path).json() == {"status": "ok"}


# Fields.

MINIMAL: dict[str, dict[str, Any]] = {
    "/apply-template": chat(),
    "/v1/responses": {"input": "Hello"},
    "/v1/responses/input_tokens": {"input": "Hello"},
    "/v1/embeddings": {"input": "Hello"},
    "/api/embed": {"input": "Hello"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/tokenize": {"content": "Hello"},
    "/detokenize": {"tokens": [65]},
    "/v1/completions": {"prompt": "Hello"},
    "/completion": {"prompt": "Hello"},
    "/v1/fim/completions": {"prompt": "Hello"},
}
FOREIGN = ("store", "metadata", "service_tier", "user", "verbosity", "prompt_cache_key")


def names(endpoint: Endpoint) -> set[str]:
    """Every name of every field of its body."""
    assert endpoint.body is not None
    found = set(FOREIGN)
    for name, field in endpoint.body.model_fields.items():
        alias = field.validation_alias
        found |= {str(one) for one in alias.choices} if isinstance(alias, AliasChoices) else {name}
    return found


@pytest.mark.parametrize(
    "endpoint",
    [one for one in endpoints(like_ollama=True) if one.body is not None],
    ids=lambda endpoint: endpoint.paths[0],
)
def test_12_null_is_the_same_as_nothing(server: Whole, endpoint: Endpoint) -> None:
    path = endpoint.paths[0]
    few = {"max_tokens": 3, "options": {"num_predict": 3}}
    body = {**few, **MINIMAL.get(path, chat())}
    plain = server.post(path, body)
    # No embeddings are made here, nor is there a model by the name that is asked for.
    assert plain.status_code in ((200, 404, 501) if "embed" in path else (200,)), plain.text
    nulls = dict.fromkeys(names(endpoint) - set(body))
    assert set(nulls) > set(FOREIGN) or path in ("/tokenize", "/detokenize")
    answer = server.post(path, {**nulls, **body})
    assert answer.status_code == plain.status_code, answer.text
    assert shape(answer) == shape(plain)


def shape(answer: httpx.Response) -> set[str]:
    """The keys that an answer has, whatever the values."""
    return set(re.findall(r'"([a-z_]+)":', answer.text))


def test_12_null_within_is_the_same_as_nothing(server: Whole) -> None:
    message = {"role": "user", "content": "Hi", "name": None, "tool_calls": None}
    stream = {"stream": False, "stream_options": {"include_usage": None}}
    speculation = {"speculative": {"num_draft_tokens": None}, "prediction": {"content": None}}
    body = {"messages": [message], "max_tokens": 3, **stream, **speculation}
    assert server.post(CHAT, body).status_code == 200


STRICT = ChatTemplate(
    "{% for message in messages %}"
    "{% if (message.role in ['user', 'tool']) != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:",
    bos="<s>",
    eos="</s>",
)
USER = {"role": "user", "content": "Hi"}
CALL = {"id": None, "type": "function", "function": {"name": "f", "arguments": "{}"}}
FINE: list[list[dict[str, Any]]] = [
    [{"role": "developer", "content": "Be brief."}, USER],
    [{"role": "system", "content": "A"}, {"role": "system", "content": "B"}, USER],
    [USER, {"role": "system", "content": "Stop."}, USER],
    [USER, USER],
    [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, USER],
    [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": None, "content": [{"type": "text", "text": "1"}]},
    ],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [{"role": "system", "content": "Alone."}],
    [USER, {"role": "assistant", "content": "Begun"}],
    [USER, {"role": "assistant", "content": ""}],
    [USER, {"role": "assistant"}, USER],
    [USER, {"role": "assistant"}, {"role": "function", "name": "f", "content": "1"}],
]
WRONG: list[list[Any]] = [
    [],
    [{}],
    ["Hi"],
    [{"role": "user"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": 7}],
    [{"role": "user", "content": {"text": "x"}}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": ["x"]}],
    [{"role": "wizard", "content": "x"}],
    [{"role": None, "content": "x"}],
    [{"role": ["user"], "content": "x"}],
    [{"role": "assistant", "tool_calls": 7}],
    [{"role": "assistant", "tool_calls": [7]}],
]


@pytest.fixture(scope="module", params=["chatml", "strict"])
def any_template(request: pytest.FixtureRequest) -> Iterator[Whole]:
    template = STRICT if request.param == "strict" else ChatTemplate(CHATML, bos="", eos="")
    with whole(Loaded(template=template, max_sequences=5)) as server:
        yield server


@pytest.mark.parametrize("messages", FINE, ids=range(len(FINE)))
def test_21_every_role_is_taken(any_template: Whole, messages: list[dict[str, Any]]) -> None:
    answer = any_template.post(CHAT, {"messages": messages, "max_tokens": 2})
    assert answer.status_code == 200, answer.text


def test_21_what_the_template_refuses_is_the_clients_fault() -> None:
    messages = [{"role": "assistant", "content": "I begin."}, USER]
    with whole(Loaded(template=STRICT)) as server:
        answer = server.post(CHAT, {"messages": messages, "stream": True})
    assert answer.status_code == 400
    assert "Roles must alternate" in answer.json()["error"]["message"]


@pytest.mark.parametrize("messages", WRONG, ids=range(len(WRONG)))
def test_21_what_makes_no_sense_is_the_clients_fault(
    any_template: Whole, messages: list[Any]
) -> None:
    for path in (CHAT, CHAT + "/input_tokens", "/apply-template"):
        answer = any_template.post(path, {"messages": messages, "max_tokens": 2})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert "messages" in error["message"]


def test_22_infill_gives_several_answers_and_warms_up() -> None:
    files = [{"filename": "a.py", "text": "def add(one, two): return one + two\n" * 3}]
    body = {"input_extra": files, "input_prefix": "x = ", "input_suffix": "\n", "prompt": ""}
    warm = {**body, "input_prefix": "", "input_suffix": "", "n_predict": 0, "samplers": []}
    sampling = {"n_predict": 8, "top_k": 40, "samplers": ["top_k", "top_p", "infill"]}
    with whole(Loaded(fim=FIM, max_sequences=5, n_ctx=2048)) as server:
        answer = server.post("/infill", {**warm, "response_fields": [""], "t_max_predict_ms": 1})
        assert (answer.status_code, answer.json()) == (200, {})
        found = server.post("/infill", {**body, **sampling, "n_cmpl": 3}).json()
        assert len(found) == 3
        assert all(one["content"] and one["stop"] for one in found)
        assert len({one["content"] for one in found}) > 1
        assert found[0]["timings"]["cache_n"] > len(files[0]["text"])  # of the warming up
        alone = server.post("/infill", {**body, **sampling}).json()
        assert alone["content"] == found[0]["content"]
        assert server.post("/infill", {**body, **sampling, "n_cmpl": 1000}).status_code == 200


# Limits.


def test_25_a_hundred_megabytes_are_refused_without_being_read(server: Whole) -> None:
    with Connection(server.port) as connection:
        connection.send(head("POST", CHAT, content_length="100000000"))
        answer = connection.answer()  # nothing of the body was sent
        assert answer.status == 413
        assert json.loads(answer.body)["error"]["code"] == "request_too_large"
    assert server.get("/health").status_code == 200


def test_25_a_body_of_unknown_length_is_read_up_to_the_limit(server: Whole) -> None:
    piece = b"%x\r\n%b\r\n" % (1 << 20, b" " * (1 << 20))
    with Connection(server.port) as connection:
        connection.send(head("POST", CHAT, transfer_encoding="chunked"))
        for _ in range(33):  # and the end of it is not in sight
            connection.send(piece)
        assert connection.answer().status == 413
        assert connection.rest() == b""
    assert server.get("/health").status_code == 200
