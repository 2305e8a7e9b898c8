"""Keys: without one, nothing but /health and OPTIONS."""

from __future__ import annotations

import hmac

import pytest
from starlette.types import Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server.auth import Auth
from tests.server.asgi import Client, Headers, ask, hello

KEYS = ["secret-1", "clé-2"]
PATHS = ["/", "/v1/models", "/models", "/props", "/v1/chat/completions", "/infill", "/metrics"]
PATHS += [
    "/api/chat",
    "/api/version",
    "/health/",
    "/health/x",
    "/HEALTH",
    "//health",
    "/v1/health2",
]


def raw(key: str) -> str:
    """A key as the bytes of a header that a client in UTF-8 sends."""
    return key.encode().decode("latin-1")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("authorization", "Bearer {}"),
        ("Authorization", "bearer  {}"),
        ("x-api-key", "{}"),
        ("api-key", " {} "),
    ],
)
async def test_a_key_opens_by_any_of_its_headers(header: str, form: str, key: str) -> None:
    headers = {header: form.format(raw(key))}
    assert (await ask(Auth(hello, keys=KEYS), headers=headers)).status == 200


WRONG: list[Headers] = [
    {},
    {"authorization": "Bearer "},
    {"authorization": "Bearer"},
    {"authorization": "Bearer wrong"},
    {"authorization": "Bearer secret-1x"},
    {"authorization": "Bearer secret-"},
    {"authorization": "Bearer Secret-1"},
    {"authorization": "Bearer secret-1, secret-1"},
    {"authorization": "secret-1"},
    {"authorization": "Basic secret-1"},
    {"x-api-key": ""},
    {"x-api-key": "Bearer secret-1"},
    {"x-api-key": "\xff\xfe"},
    {"cookie": "secret-1"},
    [("x-api-key", "wrong"), ("authorization", "Bearer wrong")],
]


@pytest.mark.parametrize("headers", WRONG, ids=str)
async def test_anything_else_does_not(headers: Headers) -> None:
    client = await ask(Auth(hello, keys=KEYS), headers=headers)
    assert client.status == 401
    assert client.headers["www-authenticate"] == "Bearer"
    error = client.json["error"]
    assert error.pop("message")
    assert error == {
        "type": "authentication_error",
        "param": None,
        "code": "invalid_api_key",
    }


async def test_one_right_key_of_several_is_enough() -> None:
    headers = [("authorization", "Bearer anything"), ("x-api-key", "secret-1")]
    assert (await ask(Auth(hello, keys=KEYS), headers=headers)).status == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
async def test_every_path_is_guarded(path: str, method: str) -> None:
    assert (await ask(Auth(hello, keys=KEYS), method, path)).status == 401


async def test_health_and_options_are_open() -> None:
    app = Auth(hello, keys=KEYS)
    assert (await ask(app, "GET", "/health")).status == 200
    assert (await ask(app, "GET", "/v1/health", {"x-api-key": "wrong"})).status == 200
    assert (await ask(app, "OPTIONS", "/v1/chat/completions")).status == 200


async def test_without_keys_everything_is_open() -> None:
    assert (await ask(Auth(hello))).status == 200
    assert (await ask(Auth(hello), headers={"authorization": "Bearer sk-x"})).status == 200


async def test_the_refusal_has_the_shape_of_the_path() -> None:
    app = Auth(hello, keys=KEYS)
    client = await ask(app, "POST", "/v1/messages")
    assert client.json["error"]["type"] == "authentication_error"
    assert isinstance((await ask(app, "POST", "/api/chat")).json["error"], str)


async def test_every_key_is_compared_whichever_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(given: bytes, key: bytes) -> bool:
        compared.append(key)
        return given == key

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in (*KEYS, "wrong"):
        compared.clear()
        await ask(Auth(hello, keys=KEYS), headers={"x-api-key": raw(key)})
        assert compared == [key.encode() for key in KEYS]


@pytest.mark.parametrize("key", ["", " ", " a", "a ", "a\n", "a\x00b"])
def test_a_key_that_no_header_can_carry_is_refused_at_once(key: str) -> None:
    with pytest.raises(OptionError, match="API key"):
        Auth(hello, keys=[key])


async def test_other_scopes_pass() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    client = Client()
    await Auth(app, keys=KEYS)({"type": "lifespan"}, client.receive, client.send)
    assert seen == ["lifespan"]
