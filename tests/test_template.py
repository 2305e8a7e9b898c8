"""Chat templates: the usual shapes, messages put right, and templates that mean harm."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import OptionError, TemplateError
from edgespec.text.template import ChatTemplate, require_template

CHATML = """\
{%- if messages[0]['role'] != 'system' -%}
{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""

GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {{ raise_exception('System role not supported') }}
{%- endif -%}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must take turns') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\\n' if add_generation_prompt }}
"""

# Drops a system message without a word.
DEAF = """\
{% for message in messages if message.role != 'system' %}
[{{ message.role }}]{{ message.content }}
{% endfor %}
"""

LLAMA3 = """\
{{- bos_token }}
{%- set date = strftime_now('%d %b %Y') if strftime_now is defined else '?' %}
{%- set system = '' %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' ~ date ~ '\\n\\n' }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=2) }}
    {%- endfor %}
{%- endif %}
{{- system + eos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('One call a time') }}
        {%- endif %}
        {{- message.tool_calls[0].function | tojson }}
    {%- endif %}
    {%- generation %}
    {{- message.content | trim }}
    {%- endgeneration %}
    {{- eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
ASSISTANT = {"role": "assistant", "content": "Hi"}


def clock() -> datetime:
    return datetime(2024, 7, 26)


# Shapes


def test_chatml() -> None:
    assert ChatTemplate(CHATML).render([SYSTEM, USER, ASSISTANT, USER]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\nHi<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_chatml_brings_its_own_system_text() -> None:
    text = ChatTemplate(CHATML).render([USER], add_generation_prompt=False)
    assert text == ("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n")


def test_gemma() -> None:
    assert ChatTemplate(GEMMA, bos="<bos>").render([USER, ASSISTANT, USER]) == (
        "<bos><start_of_turn>user\nHello<end_of_turn>\n"
        "<start_of_turn>model\nHi<end_of_turn>\n"
        "<start_of_turn>user\nHello<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_llama3() -> None:
    template = ChatTemplate(LLAMA3, bos="<|bos|>", eos="<|eot|>", clock=clock)
    assert template.render([SYSTEM, USER]) == (
        "<|bos|><|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul 2024\n\n"
        "Be brief.<|eot|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_llama3_with_tools() -> None:
    call = {"function": {"name": "búsqueda", "arguments": {"q": "<a> & 'b'"}}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"role": "tool", "content": "42", "tool_call_id": "1"}
    template = ChatTemplate(LLAMA3, clock=clock)
    text = template.render([USER, turn, answer], tools=[{"name": "búsqueda"}])
    assert '\n\n{\n  "name": "búsqueda"\n}<|start' in text
    assert '{"name": "búsqueda", "arguments": {"q": "<a> & \'b\'"}}<|start' in text
    assert "<|start_header_id|>tool<|end_header_id|>\n\n42" in text


# What templates may use


def render(source: str, **extra: Any) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>", clock=clock).render([USER], **extra)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'b': 1, 'a': '<é>'} | tojson }}", '{"b": 1, "a": "<é>"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("{{ strftime_now('%Y-%m-%d') }}", "2024-07-26"),
        ("{% generation %}{% set x = 1 %}a{% endgeneration %}{{ x }}", "a1"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ tools is none }} {{ documents is none }}", "True True"),
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{{ '<b>' }}", "<b>"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
        ("{{ nothing }}.{{ messages[0].nothing }}", "."),
        ("{{ '{:>3}'.format('x') }}", "  x"),
    ],
)
def test_dialect(source: str, expected: str) -> None:
    assert render(source) == expected


def test_extra_variables_reach_the_template() -> None:
    source = "{{ enable_thinking }} {{ tools }}"
    assert render(source, enable_thinking=False, tools=[1]) == "False [1]"


def test_keys_of_messages_reach_the_template() -> None:
    template = ChatTemplate("{{ messages[0].name }} {{ messages[0]._private }}")
    assert template.render([{**USER, "name": "Ada", "_private": "p"}]) == "Ada p"


@pytest.mark.parametrize("name", ["messages", "bos_token", "eos_token"])
def test_extra_variables_may_not_replace_ours(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is set by edgespec"):
        render("x", **{name: "y"})


def test_default_clock_is_now() -> None:
    before = datetime.now().year
    year = int(ChatTemplate("{{ strftime_now('%Y') }}").render([USER]))
    assert before <= year <= datetime.now().year


@pytest.mark.parametrize("source", ["{{ [1, 2] | random }}", "{{ lipsum() }}"])
def test_chance_is_not_available(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


# Messages put right


def test_normalize_copies() -> None:
    parts = [{"type": "text", "text": "a"}]
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": parts},
        {**USER, "name": "Ada"},
    ]
    before = copy.deepcopy(messages)
    assert ChatTemplate(GEMMA).normalize(messages) == [
        {"role": "user", "content": "a\n\nHello", "name": "Ada"}
    ]
    assert messages == before


def test_developer_is_system() -> None:
    template = ChatTemplate(CHATML)
    developer = {**SYSTEM, "role": "developer"}
    assert template.render([developer, USER]) == template.render([SYSTEM, USER])


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    for role in ("user", "assistant", "tool"):
        message = {"role": role, "content": parts}
        assert ChatTemplate(CHATML).normalize([message]) == [{"role": role, "content": "one\ntwo"}]


def test_empty_content_is_content() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": []},
        USER,
    ]
    contents = [message["content"] for message in ChatTemplate(CHATML).normalize(messages)]
    assert contents == ["", "", "Hello"]


def test_leading_system_messages_become_one() -> None:
    second = {"role": "developer", "content": "Be kind."}
    empty = {"role": "system", "content": ""}
    assert ChatTemplate(CHATML).normalize([SYSTEM, second, empty, USER, SYSTEM]) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        USER,
        SYSTEM,
    ]


@pytest.mark.parametrize("source", [GEMMA, DEAF])
def test_system_text_goes_in_front_of_the_first_user_message(source: str) -> None:
    template = ChatTemplate(source)
    assert not template.takes_system
    second = {"role": "system", "content": "Be kind."}
    assert template.render([SYSTEM, second, USER, ASSISTANT, USER]) == template.render(
        [{"role": "user", "content": "Be brief.\n\nBe kind.\n\nHello"}, ASSISTANT, USER]
    )


def test_later_system_text_goes_in_front_of_the_next_user_message() -> None:
    assert ChatTemplate(GEMMA).normalize([USER, ASSISTANT, SYSTEM, USER]) == [
        USER,
        ASSISTANT,
        {"role": "user", "content": "Be brief.\n\nHello"},
    ]


def test_system_text_without_a_next_user_message_is_not_lost() -> None:
    normalize = ChatTemplate(GEMMA).normalize
    assert normalize([SYSTEM]) == [{"role": "user", "content": "Be brief."}]
    assert normalize([USER, SYSTEM]) == [{"role": "user", "content": "Hello\n\nBe brief."}]
    assert normalize([USER, ASSISTANT, SYSTEM]) == [
        USER,
        ASSISTANT,
        {"role": "user", "content": "Be brief."},
    ]


def test_empty_system_text_leaves_no_trace_where_there_is_no_role_for_it() -> None:
    empty = {"role": "system", "content": ""}
    assert ChatTemplate(GEMMA).normalize([empty, USER]) == [USER]


def test_templates_with_a_system_role_keep_it() -> None:
    for source in (CHATML, LLAMA3):
        template = ChatTemplate(source)
        assert template.takes_system
        assert template.normalize([SYSTEM, USER]) == [SYSTEM, USER]


def test_a_template_that_always_fails_keeps_its_own_message() -> None:
    template = ChatTemplate("{{ raise_exception('needs tools') if not tools }}{{ messages }}")
    with pytest.raises(TemplateError, match="needs tools"):
        template.render([SYSTEM, USER])
    assert "'role': 'system'" in template.render([SYSTEM, USER], tools=[1])


def test_normalizing_twice_changes_nothing() -> None:
    messages = [SYSTEM, {**SYSTEM, "role": "developer"}, USER, ASSISTANT, SYSTEM]
    for source in (CHATML, GEMMA):
        template = ChatTemplate(source)
        once = template.normalize(messages)
        assert template.normalize(once) == once


ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": st.uuids().map(str)}), min_size=1, max_size=6
)


@given(MESSAGES)
def test_no_text_is_ever_lost(messages: list[dict[str, Any]]) -> None:
    for source in (CHATML, DEAF):
        text = ChatTemplate(source).render(messages)
        assert [text.count(message["content"]) for message in messages] == [1] * len(messages)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "bot", "content": "x"}, "has the role 'bot'; use one of system"),
        ({"content": "x"}, "has the role None"),
        ({"role": ["user"], "content": "x"}, "has the role"),
        ({"role": "user"}, "has no content"),
        ({"role": "user", "content": None}, "has no content"),
        ({"role": "user", "content": None, "tool_calls": [1]}, "has no content"),
        ({"role": "tool", "content": None, "tool_call_id": "1"}, "has no content"),
        ({"role": "system"}, "has no content"),
        ({"role": "user", "content": 7}, "has a content of type int"),
        ({"role": "user", "content": b"x"}, "has a content of type bytes"),
        ({"role": "user", "content": {"type": "text"}}, "has a content of type dict"),
        ("hello", "is not an object"),
    ],
)
def test_unusable_messages_are_named(message: Any, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        ChatTemplate(CHATML).render([USER, message])
    assert str(caught.value).startswith(f"messages[1] {reason}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, "has the type 'image_url'"),
        ({"text": "x"}, "has the type None"),
        ("x", "has the type None"),
        ({"type": "text"}, "has no text"),
        ({"type": "text", "text": None}, "has no text"),
    ],
)
def test_unusable_parts_are_named(part: Any, reason: str) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, part]}
    with pytest.raises(OptionError) as caught:
        ChatTemplate(CHATML).render([message])
    assert str(caught.value).startswith(f"messages[0].content[1] {reason}")


def test_no_messages_are_refused() -> None:
    with pytest.raises(OptionError, match="no messages"):
        ChatTemplate(CHATML).render([])


# Templates that fail


@pytest.mark.parametrize(
    "source",
    [
        "{% for x in %}",
        "{% if true %}",
        "{{ x | no_such_filter }}",
        "{% generation %}",
        "{% nonsense %}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
        "{% for a in [1] %}" * 50 + "{% endfor %}" * 50,
    ],
)
def test_broken_templates_fail_when_compiled(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^The chat template is broken: .*--raw") as caught:
        ChatTemplate(source)
    assert "\n" not in str(caught.value)


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(TemplateError, match=r"\(line 3\)"):
        ChatTemplate("a\nb\n{% if %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ nothing() }}",
        "{{ nothing | tojson }}",
        "{{ 'x' * 10 ** 15 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'other' %}",
        "{% import 'os' as os %}{{ os }}",
    ],
)
def test_failing_templates_say_so_in_one_line(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^The chat template failed: .*--raw") as caught:
        render(source)
    assert "\n" not in str(caught.value)


def test_a_refusal_gives_the_templates_reason_in_one_short_line() -> None:
    source = "{{ raise_exception('Roles must\n take turns. ' ~ 'x' * 9999) }}"
    with pytest.raises(
        TemplateError, match=r"^The chat template refuses these messages: Roles"
    ) as caught:
        render(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_refusal_is_about_the_messages_as_they_were_sent() -> None:
    with pytest.raises(TemplateError, match="Roles must take turns; change"):
        ChatTemplate(GEMMA).render([ASSISTANT, USER, USER])


@pytest.mark.parametrize("source", [None, "", " \n"])
def test_a_model_without_template_is_told_the_way_out(source: str | None) -> None:
    with pytest.raises(
        TemplateError, match=r"^tiny has no chat template; use `edgespec run --raw`"
    ):
        require_template(source, "tiny")


def test_a_template_that_is_there_is_returned() -> None:
    assert require_template(CHATML, "tiny") == CHATML


# Templates that mean harm


class Canary:
    """Something a template must not get at."""

    sang = False
    _hidden = "secret"

    def __init__(self) -> None:
        self.items = ["secret"]

    def _sing(self) -> str:
        Canary.sang = True
        return "secret"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__']['__mro__'][1]['__subclasses__']() }}",
        "{{ '' | attr('__class__') }}",
        "{{ ['']|map(attribute='__class__')|list }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ ('{0.__class__}' | attr('format'))('') }}",
        "{{ '{x.__class__}'.format_map({'x': 1}) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__closure__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ namespace.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ canary._sing() }}",
        "{{ canary._hidden }}",
        "{{ canary['_hidden'] }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ messages[0].pop('role') }}",
        "{{ canary.items.clear() }}",
        "{% set messages[0].role = 'x' %}",
        "{% set messages.x = 1 %}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ range(100001) | list }}",
    ],
)
def test_hostile_templates_are_stopped(source: str) -> None:
    canary = Canary()
    messages = [dict(USER)]
    Canary.sang = False
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source).render(messages, canary=canary)
    assert not Canary.sang
    assert canary.items == ["secret"]
    assert messages == [USER]
    assert "secret" not in str(caught.value)


def test_one_rendering_leaves_nothing_for_the_next() -> None:
    template = ChatTemplate("{{ seen }}{% set seen = messages[0].content %}{{ seen }}")
    assert template.render([USER]) == "Hello"
    assert template.render([{**USER, "content": "Bye"}]) == "Bye"


FRAGMENTS = st.one_of(
    st.sampled_from(["{{", "}}", "{%", "%}", "{#", "#}", "-", "~", "=", "|", "(", ")", ",", "\n"]),
    st.sampled_from(["messages", "x", "[0]", ".role", "._x", "'", "é", "1", "not", "tojson"]),
    st.sampled_from(["for", "in", "if", "else", "endif", "endfor", "set", "raise_exception"]),
    st.sampled_from(["generation", "endgeneration", "break", "continue"]),
)


@given(st.lists(FRAGMENTS, max_size=15).map(" ".join))
def test_any_source_renders_or_raises_a_template_error(source: str) -> None:
    try:
        template = ChatTemplate(source)
        first = template.render([USER])
    except TemplateError:
        return
    assert template.render([USER]) == first
