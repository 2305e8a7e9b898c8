"""`edgespec serve`: an HTTP server for editors, agents and chats, by the APIs that they know."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgespec.cli import options as opt
from edgespec.cli.groups import grouped
from edgespec.errors import OptionError

if TYPE_CHECKING:
    from edgespec.loading import LoadedPair
    from edgespec.server.card import Card
    from edgespec.server.settings import Settings

PORT = 8080
_USUAL_CONTEXT = 16384  # agents send long prompts


def _server(name: str, *more: str, **settings: Any) -> Any:
    return opt.option(name, *more, rich_help_panel="Server", **settings)


Host = Annotated[str, _server("--host", help="The address to listen on.")]
Port = Annotated[
    int,
    _server("--port", min=0, max=65535, help="The port; 0: any free."),
]
Keys = Annotated[
    list[str] | None,
    _server(
        "--api-key",
        metavar="KEY",
        help="Ask every client for this key; repeatable.",
    ),
]
Open = Annotated[
    bool,
    _server(
        "--allow-anyone",
        help="Listen beyond this machine without a key: everyone on the network may use it.",
    ),
]
Names = Annotated[
    list[str] | None,
    _server(
        "--allow-host",
        metavar="NAME",
        help="Another name by which clients reach this machine; repeatable.",
    ),
]
Origins = Annotated[
    list[str] | None,
    _server(
        "--allow-origin",
        metavar="ORIGIN",
        help="A web page that may use the server, as https://chat.example; repeatable.",
    ),
]
Parallel = Annotated[
    int,
    _server(
        "--parallel",
        min=1,
        max=64,
        help="Answers at the same time; they share the context. One more may be short.",
    ),
]
Queue = Annotated[
    int,
    _server("--queue", min=0, max=4096, help="Requests that may wait."),
]
Alias = Annotated[
    str | None,
    _server(
        "--alias",
        metavar="NAME",
        help="The name of the model; default: that of the pair or file.",
    ),
]
Strict = Annotated[
    bool,
    _server(
        "--strict-model",
        help="Refuse requests for other models instead of answering with this one.",
    ),
]
Ollama = Annotated[
    bool,
    _server(
        "--ollama-compat",
        help="Answer Ollama's API as well, under /api; its usual port is 11434.",
    ),
]
AnswerTokens = Annotated[
    int,
    _server(
        "--max-tokens",
        "-n",
        min=0,
        help="Tokens of an answer whose request sets no limit; 0: as many as fit.",
    ),
]


PromptCache = Annotated[
    Path | None,
    _server(
        "--prompt-cache",
        metavar="DIR",
        help="Keep long prompts in this directory when the server ends, to begin with them again. "
        "They hold what was said, and may be large.",
    ),
]


@grouped
def serve(
    loading: opt.Loading,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    api_key: Keys = None,
    allow_anyone: Open = False,
    allow_host: Names = None,
    allow_origin: Origins = None,
    parallel: Parallel = 4,
    queue: Queue = 64,
    alias: Alias = None,
    strict_model: Strict = False,
    max_tokens: AnswerTokens = 0,
    prompt_cache: PromptCache = None,
    ollama_compat: Ollama = False,
) -> None:
    """Serve a model to editors, agents and chats on this machine, by OpenAI's API and others.

    Ctrl-C ends it; answers in the making get a few seconds. docs/clients.md has settings for
    clients.
    """
    from edgespec.loading import embedder
    from edgespec.server.app import create_app
    from edgespec.server.running import listen
    from edgespec.server.running import serve as run
    from edgespec.server.settings import Settings

    keys = tuple(api_key or ())
    _check_reach(host, keys, allow_anyone)
    listen(host, port).close()  # before a model is loaded in vain
    settings = Settings(
        model=alias or _name(loading),
        parallel=parallel,
        queue=queue,
        strict_model=strict_model,
        max_tokens=max_tokens or None,
        created=int(time.time()),
        host=host,
        hosts=tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        keys=keys,
        ollama=ollama_compat,
    )
    sequences = parallel + settings.short_lane
    more = {"usual_ctx": _USUAL_CONTEXT, "prompt_cache": prompt_cache}
    with loading.loaded(max_sequences=sequences, **more) as pair:
        for decision in pair.engine.info.decisions:
            typer.echo(decision, err=True)
        with embedder(pair) as embeds:
            app = create_app(pair.engine, settings, _card(pair), embeds)
            run(app, host, port, lambda address: _announce(address, settings))


def _check_reach(host: str, keys: tuple[str, ...], allow_anyone: bool) -> None:
    if keys or allow_anyone or _is_loopback(host):
        return
    raise OptionError(
        f"--host {host} can be reached from other machines: set an --api-key, or say "
        "--allow-anyone."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _name(loading: opt.Loading) -> str:
    name = loading.target or loading.pair or "default"
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def _announce(address: str, settings: Settings) -> None:
    typer.echo(f"{settings.model} is served at {address}/v1", err=True)


def _card(pair: LoadedPair) -> Card:
    from edgespec.server.card import Card

    target = pair.target
    return Card(
        description=target.description,
        architecture=target.metadata("general.architecture") or "",
        size=target.size,
        parameters=target.n_params,
        n_vocab=target.vocabulary.size,
        n_ctx_train=target.n_ctx_train,
        template=target.chat_template or "",
    )
