"""The body of a request to the Responses API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from edgespec.server.api.responses_input import STATELESS
from edgespec.server.errors import bad_request, not_supported
from edgespec.server.fields import Sampling
from edgespec.types import SamplingParams

_NO_TOOLS = "Function tools are not supported yet; leave them out, or send tool_choice none."
_NO_FORMATS = "Only the text format is supported yet; ask for JSON in the prompt."
_STATEFUL = ("previous_response_id", "conversation", "prompt")
_LOGPROBS = "message.output_text.logprobs"
_USUAL = SamplingParams()


class ResponsesBody(Sampling):
    """A request for a response."""

    input: str | list[Any]
    instructions: str | None = None
    stream: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[Any] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The tools that the client runs itself. Others belong to OpenAI's servers."""
        tools = [tool for tool in self.tools or () if isinstance(tool, dict)]
        return [tool for tool in tools if tool.get("type", "function") == "function"]

    @property
    def effort(self) -> str | None:
        """How much to think."""
        effort = (self.reasoning or {}).get("effort")
        return effort if isinstance(effort, str) else None

    def template_options(self) -> dict[str, Any]:
        """Variables for the model's template."""
        found = dict(self.chat_template_kwargs or {})
        if self.effort is not None:
            found["reasoning_effort"] = self.effort
        if self.effort == "none":
            found.setdefault("enable_thinking", False)
        return found

    def check(self) -> None:
        """Raise ApiError for what cannot be honoured."""
        for name in _STATEFUL:
            if getattr(self, name):
                raise bad_request(STATELESS, param=name, code="unsupported_parameter")
        if self.background:
            problem = "Nothing runs in the background here; send background false."
            raise bad_request(problem, param="background", code="unsupported_parameter")
        if self.functions and self.tool_choice != "none":
            raise not_supported(_NO_TOOLS, param="tools")
        form = (self.text or {}).get("format")
        if isinstance(form, dict) and form.get("type", "text") != "text":
            raise not_supported(_NO_FORMATS, param="text.format")

    def request(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """For `Engine.submit`."""
        wanted = _LOGPROBS in (self.include or ()) or self.top_logprobs
        return {
            **self.options(),
            "messages": messages,
            "template_options": self.template_options(),
            "logprobs": (self.top_logprobs or 0) if wanted else None,
        }

    def echo(self) -> dict[str, Any]:
        """What a response repeats of its request, or what was taken instead."""
        most, metadata = self.max_tokens, self.metadata or {}
        return {
            "background": False,
            "instructions": self.instructions,
            "max_output_tokens": most if most is None or most >= 0 else None,
            "metadata": {key: one for key, one in metadata.items() if isinstance(one, str)},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": self.effort, "summary": None},
            "store": False,
            "temperature": _USUAL.temperature if self.temperature is None else self.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none" if self.tool_choice == "none" else "auto",
            "tools": [],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": _USUAL.top_p if self.top_p is None else self.top_p,
            "truncation": "disabled",
        }
