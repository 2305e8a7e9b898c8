"""Chat messages to a prompt, by the template that came with the model.

The template is a program from whoever made the file: it runs in a sandbox, and all it can do is
fail with TemplateError. (It can still take long: Jinja has no limit on time or memory.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edgespec.errors import OptionError, TemplateError

Message = dict[str, Any]
"""role: system, user, assistant or tool. content: str. Other keys are the template's business."""

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_RESERVED = ("messages", "bos_token", "eos_token")
_WAY_OUT = "use `edgespec run --raw` (the prompt is passed as it is) or another file of this model"


class ChatTemplate:
    """A compiled chat template.

    source: Jinja text, as in the GGUF key `tokenizer.chat_template`.
    bos, eos: text of the tokens the template may place at the beginning and after turns.
    clock: what `strftime_now` in a template reads; nothing else in a rendering can vary.

    Raises TemplateError when the source cannot be compiled.
    """

    def __init__(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._compiled = _compile(source, clock)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """The prompt for these messages. It holds the text of special tokens, BOS included.

        add_generation_prompt: end with the opening of the assistant's turn.
        extra: more variables for the template, such as `tools` or `enable_thinking`.

        Raises OptionError for unusable messages and TemplateError when the template fails or
        refuses them.
        """
        for name in _RESERVED:
            if name in extra:
                raise OptionError(
                    f"{name} is set by edgespec; leave it out of the template options."
                )
        extra["add_generation_prompt"] = add_generation_prompt
        return self._run(self.normalize(messages), extra)

    def normalize(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages as the template gets them; the argument is not changed.

        "developer" becomes "system", lists of text parts become one string, leading system
        messages become one, and a template without a system role gets the text in front of the
        next user message. Raises OptionError naming the first message that cannot be used.
        """
        if not messages:
            raise OptionError("There are no messages; give at least one user message.")
        checked = [_checked(index, message) for index, message in enumerate(messages)]
        merged = _merge_leading(checked)
        if any(message["role"] == "system" for message in merged) and not self.takes_system:
            return _fold_system(merged)
        return merged

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template shows the text of a system message (found by trying)."""
        marker = "edgespecprobe"
        user = {"role": "user", "content": "hello"}
        try:
            return marker in self._run([{"role": "system", "content": marker}, user], {})
        except TemplateError:
            pass
        try:
            self._run([user], {})
        except TemplateError:
            # It fails anyway, so the failure above says nothing about the role.
            return True
        return False

    def _run(self, messages: list[Message], extra: dict[str, Any]) -> str:
        # Templates written for Hugging Face expect these two to be defined.
        context = {"tools": None, "documents": None, **extra, **self._tokens, "messages": messages}
        try:
            return self._compiled.render(context)
        except TemplateError:  # raise_exception
            raise
        except Exception as error:
            # A template can cause any exception, from TypeError to MemoryError.
            raise TemplateError(f"The chat template failed: {_line(error)}; {_WAY_OUT}.") from error


def require_template(source: str | None, model_name: str) -> str:
    """The template's source. Raises TemplateError when the model has none."""
    if source is None or not source.strip():
        raise TemplateError(
            f"{model_name} has no chat template; use `edgespec run --raw` (the prompt is passed as"
            " it is) or a model trained for chat (often named Instruct)."
        )
    return source


def _checked(index: int, message: Mapping[str, Any]) -> Message:
    if not isinstance(message, Mapping):
        raise OptionError(f"messages[{index}] is not an object; give a role and a content.")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise OptionError(
            f"messages[{index}] has the role {role!r}; use one of {', '.join(_ROLES)}."
        )
    content = message.get("content")
    if content is None and role == "assistant" and message.get("tool_calls"):
        content = ""  # a turn that only calls tools
    return {**message, "role": _ROLES[role], "content": _content(index, content)}


def _content(index: int, content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise OptionError(
            f"messages[{index}] has no content; give a string, '' if nothing is meant."
        )
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise OptionError(
            f"messages[{index}] has a content of type {type(content).__name__}; give a string or a"
            " list of text parts."
        )
    # One part a line, as llama.cpp's server does it.
    return "\n".join(_part(index, number, part) for number, part in enumerate(content))


def _part(index: int, number: int, part: object) -> str:
    where = f"messages[{index}].content[{number}]"
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or kind != "text":
        raise OptionError(
            f"{where} has the type {kind!r}, but only text can be read; send text parts alone."
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise OptionError(f"{where} has no text; give a string under 'text'.")
    return text


def _merge_leading(messages: list[Message]) -> list[Message]:
    count = 0
    while count < len(messages) and messages[count]["role"] == "system":
        count += 1
    if count < 2:
        return messages
    text = _paragraphs(*(message["content"] for message in messages[:count]))
    return [{**messages[0], "content": text}, *messages[count:]]


def _fold_system(messages: list[Message]) -> list[Message]:
    """Put each system text in front of the next user message, or at the end of the last one."""
    folded: list[Message] = []
    pending = ""
    for message in messages:
        if message["role"] == "system":
            pending = _paragraphs(pending, message["content"])
        elif message["role"] == "user":
            folded.append({**message, "content": _paragraphs(pending, message["content"])})
            pending = ""
        else:
            folded.append(message)
    if not pending:
        return folded
    if folded and folded[-1]["role"] == "user":  # such templates want the roles to alternate
        last = folded.pop()
        return [*folded, {**last, "content": _paragraphs(last["content"], pending)}]
    return [*folded, {"role": "user", "content": pending}]


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _compile(source: str, clock: Callable[[], datetime]) -> jinja2.Template:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[LoopControlExtension, _GenerationBlock],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: clock().strftime(form)
    # Both draw random numbers, but the same messages must give the same prompt.
    del environment.globals["lipsum"]
    del environment.filters["random"]
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        reason = f"{_line(error)} (line {error.lineno})"
        raise TemplateError(f"The chat template is broken: {reason}; {_WAY_OUT}.") from error
    except Exception as error:
        # For instance RecursionError, or SyntaxError for blocks nested too deeply for Python.
        raise TemplateError(f"The chat template is broken: {_line(error)}; {_WAY_OUT}.") from error


class _Sandbox(ImmutableSandboxedEnvironment):
    """No attribute that begins with an underscore, and no change to lists and dicts."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        # Jinja would go on with an undefined value; whoever asks for this is up to no good.
        if attribute.startswith("_"):
            raise SecurityError(f"access to {attribute!r} is not allowed")
        return super().unsafe_undefined(obj, attribute)


class _GenerationBlock(Extension):
    """`{% generation %}` marks text for training; here its body is plain text."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: object) -> NoReturn:
    reason = _line(message).rstrip(".")
    raise TemplateError(
        f"The chat template refuses these messages: {reason}; change their roles, order or content."
    )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Not jinja2's own: that one escapes HTML and sorts keys, which no model was trained on.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _line(reason: object) -> str:
    """One short line about an error."""
    text = " ".join(str(reason).split())[:300]
    return text or type(reason).__name__
