"""Chat messages to a prompt, by the template that came with the model.

The template is a program from whoever made the file: it runs in a sandbox, and all it can do is
fail with TemplateError. (It can still take long: Jinja has no limit on time or memory.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from edgespec.text.messages import Message, arrange, merge

# What the probes say. No template and no chat has these words of its own.
_MARK = "edgespecprobe"
_UNKNOWN = "edgespecrole"
_ID = "edgespec0"  # nine characters, as some templates demand
_ARGUMENTS = {"edgespeckey": "edgespecvalue"}
_USER = {"role": "user", "content": "hello"}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
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
        add_generation_prompt: bool | None = None,
        continue_final_message: bool | None = None,
        **extra: Any,
    ) -> str:
        """The prompt for these messages. It holds the text of special tokens, BOS included.

        add_generation_prompt: end with the opening of the assistant's turn.
        continue_final_message: end with the text of the last message, an assistant's, so that the
            answer goes on from there. Left alone, both follow from who spoke last.
        extra: more variables for the template, such as `tools` or `enable_thinking`.

        Raises OptionError for unusable messages and TemplateError when the template fails or
        refuses them.
        """
        _check_options(extra, add_generation_prompt, continue_final_message)
        known = self.normalize(messages)
        if continue_final_message and not _may_continue(messages[-1]):
            raise OptionError(
                "continue_final_message needs an assistant's message without tool calls at the end."
            )
        unasked = add_generation_prompt is None and continue_final_message is None
        if (unasked or continue_final_message) and _may_continue(known[-1]):
            return self._continued(known, extra)
        # Where the last message said nothing, its turn is opened again.
        opens = add_generation_prompt is not False or bool(continue_final_message)
        return self._prompt(known, {**extra, "add_generation_prompt": opens})

    def normalize(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages as the template gets them; the argument is not changed.

        "developer" becomes "system", lists of text parts become one string, leading system
        messages become one, tool calls get the form that the template wants, and system text goes
        in front of the next user message where the template has no place for it. An assistant's
        message at the end that says nothing is left out.
        Raises OptionError naming the first message that cannot be used.
        """
        return arrange(messages, self)

    # Probes. What a template does is found by trying, when it first matters.

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template shows the text of a system message."""
        return self._shows("system", [], [_USER])

    @cached_property
    def knows_developer(self) -> bool:
        """Whether "developer" means something to it, also behind a system message.

        Templates like ChatML show any word that stands there, which no model was trained on.
        """
        before = [{"role": "system", "content": "be kind"}] if self.takes_system else []
        try:
            shown = self._run([*before, {"role": "developer", "content": _MARK}, _USER], {})
        except TemplateError:
            return False
        try:
            other = self._run([*before, {"role": _UNKNOWN, "content": _MARK}, _USER], {})
        except TemplateError:
            other = ""
        # Some templates write roles in capitals.
        as_any = other.lower().replace(_UNKNOWN, "developer")
        return _MARK in shown and shown.lower() != as_any

    @cached_property
    def late_roles(self) -> frozenset[str]:
        """Which of system and developer it shows in the middle of a chat."""
        before, after = [_USER, {"role": "assistant", "content": "hi"}], [_USER]
        roles = ("system", "developer")
        return frozenset(role for role in roles if self._shows(role, before, after))

    @cached_property
    def wants_objects(self) -> bool:
        """Whether arguments of tool calls have to be objects.

        Text is kept as the model wrote it, unless the template escapes it, or has a form of its
        own for objects.
        """
        content = None if self.wants_null else ""
        text = self._call(json.dumps(_ARGUMENTS), content)
        parsed = self._call(_ARGUMENTS, content)
        kept = json.dumps(_ARGUMENTS) in text
        as_json = json.dumps(_ARGUMENTS, separators=(",", ":")) in "".join(parsed.split())
        usable = all(word in parsed for word in ("edgespeckey", "edgespecvalue"))
        return usable and str(_ARGUMENTS) not in parsed and not (kept and as_json)

    @cached_property
    def wants_short_ids(self) -> bool:
        """Whether it refuses ids of tool calls that have not nine letters or digits."""
        return not self._shows_call(id="call_0") and self._shows_call()

    @cached_property
    def wants_null(self) -> bool:
        """Whether it shows tool calls only where the content is null."""
        return not self._shows_call("") and self._shows_call(None)

    def _shows(self, role: str, before: list[Message], after: list[Message]) -> bool:
        try:
            return _MARK in self._run([*before, {"role": role, "content": _MARK}, *after], {})
        except TemplateError:
            pass
        try:
            self._run([*before, *after], {})
        except TemplateError:
            # It fails anyway, so the failure above says nothing about the role.
            return True
        return False

    def _shows_call(self, *contents: str | None, id: str = _ID) -> bool:
        forms = (json.dumps(_ARGUMENTS), _ARGUMENTS)
        return any(
            _MARK in self._call(arguments, content, id)
            for arguments in forms
            for content in contents or ("", None)
        )

    def _call(self, arguments: object, content: str | None, id: str = _ID) -> str:
        """A tool call as the template shows it; nothing when it fails."""
        call = {"id": id, "type": "function", "function": {"name": _MARK, "arguments": arguments}}
        turn = {"role": "assistant", "content": content, "tool_calls": [call]}
        try:
            return self._run([_USER, turn], {"tools": [_TOOL], "add_generation_prompt": False})
        except TemplateError:
            return ""

    # Running.

    def _continued(self, messages: list[Message], extra: dict[str, Any]) -> str:
        """The prompt that ends with the last message's text.

        A mark behind the text shows where it ends: the text itself may stand in an end-of-turn
        marker as well.
        """
        *before, last = messages
        text: str = last["content"]
        prompt = ""
        closed = {**extra, "add_generation_prompt": False}
        try:
            marked = self._prompt([*before, {**last, "content": text + _MARK}], closed)
            prompt = marked.rpartition(_MARK)[0]
            if text[-1].isspace() and not self._prompt(messages, closed).startswith(prompt):
                prompt = prompt.rstrip()  # the template strips, so whitespace never stands there
        except TemplateError:
            if not before:
                raise
        if prompt.endswith(text.strip()):
            return prompt
        # It refuses such an end, or rewrites what an assistant said: thoughts are cut out.
        return self._prompt(before, {**extra, "add_generation_prompt": True}) + text

    def _prompt(self, messages: list[Message], extra: dict[str, Any]) -> str:
        try:
            return self._run(messages, extra)
        except TemplateError:
            merged = merge(messages, self)
            if merged != messages:
                with suppress(TemplateError):
                    return self._run(merged, extra)
            raise  # what it said about the messages as they are

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


def _check_options(extra: Mapping[str, Any], add: bool | None, go_on: bool | None) -> None:
    for name in _RESERVED:
        if name in extra:
            raise OptionError(f"{name} is set by edgespec; leave it out of the template options.")
    if add and go_on:
        raise OptionError(
            "add_generation_prompt opens a new turn, continue_final_message goes on with the last"
            " one; set one of them."
        )


def _may_continue(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


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
