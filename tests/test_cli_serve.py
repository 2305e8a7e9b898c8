"""`edgespec serve` from its options to the application, which is asked instead of being served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from tests.command import QUICK, run_here
from tests.server.inside import talking_to
from tests.tiny_gguf import write_tiny_gguf


def answers(app: ASGIApp, *paths: tuple[str, str]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        async with talking_to(app) as client:
            return [
                await client.request(method, path, json={"input": "tea"}) for method, path in paths
            ]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("pooling", [1, None])
def test_ollamas_api_and_embeddings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    compat: bool,
    pooling: int | None,
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", pooling=pooling)
    found: list[Any] = []

    def serve(app: ASGIApp, *_: object) -> None:
        found.extend(answers(app, ("GET", "/api/show"), ("POST", "/v1/embeddings")))

    monkeypatch.setattr("edgespec.server.running.serve", serve)
    options = ["--ollama-compat"] if compat else []
    ended = run_here(capfd, "serve", "--target", str(path), "--port", "0", *QUICK, *options)
    assert ended.code == 0, ended
    shown, embedded = found
    assert shown.status_code == (405 if compat else 404)
    assert embedded.status_code == (200 if pooling else 501)
