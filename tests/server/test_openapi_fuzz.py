"""Whatever the OpenAPI document lets a client send is answered as the document says.

EDGESPEC_FUZZ=N sends N bodies of each kind to every path instead of a few, other ones every time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from edgespec.server.app import create_app
from edgespec.server.routes import Endpoint, endpoints
from edgespec.server.settings import Settings
from edgespec.text.fim import Fim
from tests.fake_engine import Loaded

FUZZ = os.environ.get("EDGESPEC_FUZZ", "")
EXAMPLES = int(FUZZ or 5)
CHECKS: Any = [content_type_conformance, response_schema_conformance, status_code_conformance]
FIM = Fim("test", "PSM", prefix=1, suffix=2, middle=3)
# The first path of every endpoint; the others lead to the same.
OPERATIONS = [
    pytest.param(one, id=f"{one.method} {one.paths[0]}") for one in endpoints(like_ollama=True)
]
QUICK = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=not FUZZ,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

TEXTS = st.sampled_from(["", "hi", "é🎉\u2028", "<|im_end|>", "\x00", "x" * 600])
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "other"]),
            "content": TEXTS | PARTS,
        }
    ),
    min_size=1,
    max_size=3,
)
PROMPTS = TEXTS | st.lists(st.integers(0, 255), min_size=1, max_size=3)
# Fields for which a schema alone rarely gives anything that can be answered.
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "messages": MESSAGES,
    "prompt": PROMPTS,
    "input": PROMPTS,
    "stream": st.booleans(),
    "tools": st.just([]),
    "temperature": st.sampled_from([0, 0.5, 2]),
    "options": st.fixed_dictionaries({"temperature": st.sampled_from([0, 1, -1])}),
    "format": st.just(""),
    "response_format": st.just({"type": "text"}),
    "input_prefix": TEXTS,
    "input_suffix": TEXTS,
    "input_extra": st.just([]),
}


class Embedder:
    size = 2

    def embed(self, tokens: object) -> list[float]:
        return [0.6, 0.8]


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    loaded = Loaded(max_sequences=5, fim=FIM)
    with loaded.engine:
        served = Settings(model="fake", max_tokens=8, ollama=True)
        app = create_app(loaded.engine, served, None, Embedder())
        yield schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "localhost"})


@pytest.mark.parametrize("endpoint", OPERATIONS)
def test_every_operation(schema: Any, endpoint: Endpoint) -> None:
    operation = schema[endpoint.paths[0].replace(":path", "")][endpoint.method]
    fields = sorted(LIKELY.keys() & (endpoint.body.model_fields if endpoint.body else {}))

    @QUICK
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE), data=st.data())
    def allowed(case: Case, data: st.DataObject) -> None:
        if isinstance(case.body, dict):
            body: dict[str, Any] = dict(case.body)
            for name in fields:
                if data.draw(st.booleans(), name):
                    body[name] = data.draw(LIKELY[name], name)
            case.body = body
        check(case)

    @QUICK
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def not_allowed(case: Case) -> None:
        check(case)

    allowed()
    if endpoint.body is not None:
        not_allowed()
    good = schema["/v1/chat/completions"]["POST"].Case(
        body={"messages": [{"role": "user", "content": "hi"}]}, media_type="application/json"
    )
    assert check(good).status_code == 200


def check(case: Case) -> Response:
    """Send it, and look at what comes back."""
    response = case.call(headers={"host": "localhost"})
    text = response.text
    # 501 says what this server lacks; everything else is the client's fault, or it is answered.
    assert response.status_code in range(200, 500) or response.status_code == 501, text
    case.validate_response(response, checks=CHECKS)
    assert "internal_error" not in text
    assert "Traceback" not in text
    kind = response.headers["content-type"][0].partition(";")[0]
    if response.status_code >= 400 or kind == "application/json":
        json.loads(text)
    elif kind == "application/x-ndjson":
        assert [json.loads(line) for line in text.splitlines()]
    elif kind == "text/event-stream":
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        assert [json.loads(event) for event in events if event != "[DONE]"]
    return response
