"""Web pages: which may use the server, and what their browsers are told."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server.cors import Cors
from tests.server.asgi import Client, ask, hello

GOOD = [
    "http://localhost",
    "http://localhost:3000",
    "https://LOCALHOST:8443",
    "http://127.0.0.1:5173",
    "http://[::1]:80",
    "vscode-webview://1a2b3c",
    "app://obsidian.md",
]
BAD = [
    "https://evil.example",
    "http://localhost.evil.example",
    "http://localhost@evil.example",
    "http://sub.localhost:3000",
    "http://127.0.0.2",
    "http://0.0.0.0:80",
    "ftp://localhost",
    "localhost",
    "app://obsidian.md.evil",
    "app://other",
    "xvscode-webview://a",
    "file://",
    "null",
    "",
    "http://localhost:80, https://evil.example",
]


@pytest.mark.parametrize("origin", GOOD)
async def test_a_page_of_this_machine_may_read_and_write(origin: str) -> None:
    for method in ("GET", "POST"):
        client = await ask(Cors(hello), method, headers={"origin": origin})
        assert client.status == 200
        assert client.headers["access-control-allow-origin"] == origin
        assert client.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in client.headers


@pytest.mark.parametrize("origin", BAD)
async def test_a_foreign_page_can_neither_write_nor_read(origin: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "WHATEVER"):
        client = await ask(Cors(hello), method, headers={"origin": origin})
        assert client.status == 403
        assert client.json["error"]["code"] == "origin_not_allowed"
        assert "access-control-allow-origin" not in client.headers
    for method in ("GET", "HEAD"):
        client = await ask(Cors(hello), method, headers={"origin": origin})
        assert client.status == 200
        assert "access-control-allow-origin" not in client.headers


async def test_two_origins_are_foreign() -> None:
    headers = [("origin", "http://localhost")] * 2
    client = await ask(Cors(hello), "POST", headers=headers)
    assert client.status == 403
    client = await ask(Cors(hello), "GET", headers=headers)
    assert "access-control-allow-origin" not in client.headers


async def test_programs_send_no_origin() -> None:
    client = await ask(Cors(hello), "POST", "/v1/models", {}, b"abc")
    assert client.body == b"hello 3"
    assert client.headers == {"vary": "Origin"}


def preflight(origin: str, **more: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return {"origin": origin, "access-control-request-method": "POST", **named}


async def test_a_preflight_names_the_headers_asked_for() -> None:
    asked = "authorization, x-stainless-os,X-Stainless-Arch , anthropic-version"
    headers = preflight("http://localhost:3000", access_control_request_headers=asked)
    client = await ask(Cors(hello), "OPTIONS", headers=headers)
    assert client.status == 204
    assert client.body == b""
    assert client.headers["access-control-allow-origin"] == "http://localhost:3000"
    named = "authorization, x-stainless-os, X-Stainless-Arch, anthropic-version"
    assert client.headers["access-control-allow-headers"] == named
    assert "POST" in client.headers["access-control-allow-methods"]
    assert int(client.headers["access-control-max-age"]) > 0
    assert "access-control-allow-private-network" not in client.headers


async def test_a_preflight_of_a_public_page_for_a_private_network() -> None:
    headers = preflight("https://chat.example", access_control_request_private_network="true")
    app = Cors(hello, origins=["https://chat.example"])
    client = await ask(app, "OPTIONS", headers=headers)
    assert client.headers["access-control-allow-private-network"] == "true"
    assert "access-control-allow-headers" not in client.headers


async def test_what_is_no_header_name_is_not_echoed() -> None:
    odd = 'ok, a b, "x", , (y), z\x00'
    headers = preflight("http://localhost", access_control_request_headers=odd)
    client = await ask(Cors(hello), "OPTIONS", headers=headers)
    assert client.headers["access-control-allow-headers"] == "ok"


@pytest.mark.parametrize("origin", BAD)
async def test_a_foreign_preflight_is_refused(origin: str) -> None:
    client = await ask(Cors(hello), "OPTIONS", headers=preflight(origin))
    assert client.status == 403
    assert not [name for name in client.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://localhost"}, {"origin": "https://evil.example"}]
)
async def test_options_alone_names_the_methods(headers: dict[str, str]) -> None:
    client = await ask(Cors(hello), "OPTIONS", "/anything", headers)
    assert client.status == 204
    assert "POST" in client.headers["allow"]
    granted = headers.get("origin") == "http://localhost"
    assert ("access-control-allow-origin" in client.headers) == granted


@pytest.mark.parametrize(
    ("allowed", "origin", "granted"),
    [
        ("https://chat.example", "https://chat.example", True),
        ("HTTPS://Chat.Example/", "https://chat.example", True),
        ("https://chat.example", "https://chat.example:8443", False),
        ("https://chat.example", "https://chat.example.evil", False),
        ("https://chat.example", "http://chat.example", False),
        ("http://box:*", "http://box:3000", True),
        ("http://box:*", "http://box.evil:3000", False),
        ("tauri://*", "tauri://localhost", True),
        ("null", "null", True),
        ("*", "https://anything.example", True),
        ("*", "null", True),
    ],
)
async def test_the_user_may_allow_more(allowed: str, origin: str, granted: bool) -> None:
    app = Cors(hello, origins=[allowed])
    client = await ask(app, "POST", headers={"origin": origin})
    assert client.status == (200 if granted else 403)
    assert (client.headers.get("access-control-allow-origin") == origin) == granted


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "chat.example",
        "https://",
        "https://a/b",
        "https://a b",
        "https://a*",
        "https://*.a",
        "**",
    ],
)
def test_an_origin_that_is_none_is_refused_at_once(origin: str) -> None:
    with pytest.raises(OptionError, match="is not an origin"):
        Cors(hello, origins=[origin])


async def test_other_scopes_pass() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    client = Client()
    for kind in ("websocket", "lifespan"):
        await Cors(app)({"type": kind}, client.receive, client.send)
    assert seen == ["websocket", "lifespan"]
