"""The Host header: names of this machine pass, names that a web page made up do not."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from edgespec.errors import OptionError
from edgespec.server.hosts import HostCheck, host_name
from tests.server.asgi import Client, ask, hello

GOOD = [
    "localhost",
    "LocalHost:8080",
    "localhost.",
    "localhost:",
    "localhost.:80",
    "127.0.0.1",
    "127.0.0.1:1",
    "[::1]",
    "[::1]:65535",
    "[0:0:0:0:0:0:0:1]:80",
    "[::ffff:127.0.0.1]:80",
    "[::FFFF:7f00:1]",
]
BAD = [
    "",
    " ",
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io",
    "sub.localhost",
    "localhost..",
    "xlocalhost",
    "127.0.0.2",
    "0.0.0.0",
    "[::]",
    "2130706433",
    "0x7f.1",
    "127.1",
    "user@localhost",
    "localhost@evil.example",
    "localhost:80@evil.example",
    "localhost/evil",
    "localhost:80:80",
    "localhost:port",
    "localhost:123456",
    "::1",
    "[::1",
    "[localhost]",
    "[::1%eth0]",
    "localhost, evil.example",
    "localhost evil.example",
    "http://localhost",
    "löcalhost",
    "localhost\x00",
    "localhost\\",
    "host.docker.internal",
]


async def status(host: str, **options: object) -> int:
    app = HostCheck(hello, **options)  # type: ignore[arg-type]
    return (await ask(app, headers={"host": host})).status


@pytest.mark.parametrize("host", GOOD)
async def test_this_machine_passes(host: str) -> None:
    assert await status(host) == 200


@pytest.mark.parametrize("host", BAD)
async def test_anything_else_is_forbidden(host: str) -> None:
    client = await ask(HostCheck(hello), "POST", "/v1/chat/completions", {"host": host})
    assert client.status == 403
    assert client.json["error"]["type"] == "permission_error"
    assert client.json["error"]["code"] == "host_not_allowed"


async def test_http_1_0_has_no_host() -> None:
    assert (await ask(HostCheck(hello))).status == 200


async def test_two_hosts_are_forbidden() -> None:
    headers = [("host", "localhost"), ("host", "evil.example")]
    assert (await ask(HostCheck(hello), headers=headers)).status == 403
    assert (await ask(HostCheck(hello), headers=[("host", "localhost")] * 2)).status == 403


async def test_the_refusal_has_the_shape_of_the_path() -> None:
    headers = {"host": "evil.example"}
    client = await ask(HostCheck(hello), "POST", "/v1/messages", headers)
    assert client.json["type"] == "error"
    client = await ask(HostCheck(hello), "POST", "/api/chat", headers)
    assert "evil.example" in client.json["error"]


async def test_the_users_names_pass() -> None:
    names = ["Host.Docker.Internal", "mybox.local:8080", "fe80::1", "[fe80::2]:80"]
    for host in ("host.docker.internal:80", "MYBOX.local", "[fe80::1]:80", "[FE80::2]"):
        assert await status(host, names=names) == 200
    assert await status("other.local", names=names) == 403
    assert await status("other.local", names=["*"]) == 200


async def test_the_bind_address_passes() -> None:
    assert await status("192.168.1.5:80", bind="192.168.1.5") == 200
    assert await status("192.168.1.6:80", bind="192.168.1.5") == 403
    assert await status("mybox", bind="mybox") == 200
    assert await status("[fe80::1]", bind="fe80::1") == 200


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "[::]", ""])
async def test_every_address_passes_where_all_are_bound_but_no_name(bind: str) -> None:
    assert await status("192.168.1.5:80", bind=bind) == 200
    assert await status("[fe80::1]:80", bind=bind) == 200
    assert await status("localhost", bind=bind) == 200
    assert await status("evil.example", bind=bind) == 403
    assert await status("192.168.1.5.nip.io", bind=bind) == 403


@pytest.mark.parametrize("name", ["http://box", "box/path", "", "a b", "user@box"])
def test_a_name_that_is_none_is_refused_at_once(name: str) -> None:
    with pytest.raises(OptionError, match="is not a host name"):
        HostCheck(hello, names=[name])


def test_names_have_one_spelling() -> None:
    assert host_name("LOCALHOST.:80") == "localhost"
    assert host_name("[::ffff:7f00:1]") == "127.0.0.1"
    assert host_name(".") is None
    assert host_name("a@b") is None


async def test_websockets_are_closed_and_lifespan_passes() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    client = Client()
    client.say({"type": "websocket.connect"})
    await HostCheck(app)({"type": "websocket", "headers": []}, client.receive, client.send)
    assert client.sent == [{"type": "websocket.close", "code": 1008}]
    await HostCheck(app)({"type": "lifespan"}, client.receive, client.send)
    assert seen == ["lifespan"]
