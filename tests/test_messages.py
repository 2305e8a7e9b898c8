"""What coding assistants send, and what the usual templates get of it."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import OptionError, TemplateError
from edgespec.text.messages import merge
from edgespec.text.template import ChatTemplate
from tests.tiny_gguf import CHATML

# No system, roles take turns, whitespace is cut off.
GEMMA = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('No system') }}{% endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate') }}
    {%- endif %}
    {%- set role = 'model' if message.role == 'assistant' else message.role %}
    {{- '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
"""

# One system message, roles take turns beside tools, and ids have nine characters.
MISTRAL = """\
{%- macro checked(id) %}
    {%- if id is not defined or id | length != 9 %}
        {{- raise_exception('Ids have nine characters') }}
    {%- endif %}
    {{- id }}
{%- endmacro %}
{{- bos_token }}
{%- set turn = namespace(index=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
        {%- if (message.role == 'user') != (turn.index % 2 == 0) %}
            {{- raise_exception('Roles must alternate') }}
        {%- endif %}
        {%- set turn.index = turn.index + 1 %}
    {%- endif %}
    {%- if message.role == 'system' and loop.first %}
        {{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}
    {%- elif message.role == 'user' %}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' and message.tool_calls is defined %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + checked(call.id) + '"}' }}
            {{- '' if loop.last else ', ' }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS]' + checked(message.tool_call_id) + ':' + message.content }}
    {%- else %}
        {{- raise_exception('Only user, assistant and tool') }}
    {%- endif %}
{%- endfor %}
"""

QWEN = """\
{%- if tools %}{{ '<tools>' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# Text of arguments is shown as it is; thoughts are cut out of what was said.
THINKER = """\
{%- for message in messages %}
    {%- set kept = message.content %}
    {%- if message.role == 'assistant' %}{% set kept = kept.split('</think>')[-1] %}{% endif %}
    {{- '<' + message.role + '>' + kept }}
    {%- for call in message.tool_calls or [] %}
        {%- set arguments = call.function.arguments %}
        {{- call.function.name + '(' }}
        {{- arguments if arguments is string else arguments | tojson }}
        {{- ')' }}
    {%- endfor %}
    {{- '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
"""

# One call a time, and whoever has the key `tool_calls` calls; whitespace is cut off.
LLAMA31 = """\
{{- bos_token }}
{%- set system = '' %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- '<|start|>system<|end|>' + system + eos_token }}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('One call a time') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|end|>{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson + '}' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>ipython<|end|>' + message.content | trim }}
    {%- else %}
        {{- '<|start|>' + message.role + '<|end|>' + message.content | trim }}
    {%- endif %}
    {{- eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant<|end|>' }}{% endif %}
"""

# Calls are shown only where the content is null, and their text is added to a string.
DEEPSEEK = """\
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.content is none %}
        {%- for call in message.tool_calls %}
            {{- '<call>' + call.function.name + '\\n' + call.function.arguments }}
        {%- endfor %}
    {%- else %}
        {{- '<' + message.role + '>' + message.content }}
    {%- endif %}
{%- endfor %}
"""

# Arguments have a form of their own, which text has not.
PYTHONIC = """\
{%- for message in messages %}
    {{- '<' + message.role + '>' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {%- set arguments = call.function.arguments %}
        {{- call.function.name }}
        {%- if arguments is mapping %}
            {%- for key, value in arguments | items %} {{ key }}={{ value }}{% endfor %}
        {%- else %}
            {{- arguments }}
        {%- endif %}
    {%- endfor %}
{%- endfor %}
"""

# As before, but text makes it fail.
XML = """\
{%- for message in messages %}
    {{- '<' + message.role + '>' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- call.function.name }}
        {%- for key, value in call.function.arguments | items %} {{ key }}={{ value }}{% endfor %}
    {%- endfor %}
{%- endfor %}
"""

# Knows developer beside system.
O_SERIES = """\
{%- for message in messages %}
    {%- if message.role in ['system', 'developer', 'user', 'assistant'] %}
        {{- '<' + message.role + '>' + message.content }}
    {%- endif %}
{%- endfor %}
"""

# Knows developer, in place of system.
HARMONY = """\
{%- if messages[0].role in ['system', 'developer'] %}
    {{- '<developer>' + messages[0].content }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages if message.role in ['user', 'assistant'] %}
    {{- '<' + message.role + '>' + message.content }}
{%- endfor %}
"""

EVERY = {
    "chatml": CHATML,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "qwen": QWEN,
    "thinker": THINKER,
    "llama": LLAMA31,
    "deepseek": DEEPSEEK,
    "pythonic": PYTHONIC,
    "xml": XML,
    "o-series": O_SERIES,
    "harmony": HARMONY,
}
every_template = pytest.mark.parametrize("source", EVERY.values(), ids=EVERY)

SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Be kind."}
USER = {"role": "user", "content": "Hello"}
ASSISTANT = {"role": "assistant", "content": "Hi"}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def calling(*arguments: Any, ids: tuple[str | None, ...] = (None,) * 9) -> dict[str, Any]:
    """An assistant's turn with one call of `look` for each of the arguments."""
    calls = [
        {"id": id, "type": "function", "function": {"name": "look", "arguments": one}}
        for one, id in zip(arguments, ids, strict=False)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer(content: str, id: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": id}


@cache
def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>")


def normalized(*messages: Any, source: str = CHATML) -> list[dict[str, Any]]:
    return template(source).normalize(messages)


def rendered(source: str, *messages: Any, **options: Any) -> str:
    return template(source).render(messages, **options)


def refusal(source: str, messages: Any) -> str | None:
    """What is said about messages that cannot be used; None where they can. Nothing else raises."""
    made = template(source)
    try:
        made.normalize(messages)
    except OptionError as error:
        return str(error)
    with suppress(TemplateError):  # it may refuse what is well formed
        made.render(messages)
    return None


# Instructions


@pytest.mark.parametrize(
    ("source", "known"),
    [(O_SERIES, True), *((source, False) for source in EVERY.values() if source != O_SERIES)],
)
def test_developer_stays_only_where_it_is_known(source: str, known: bool) -> None:
    assert template(source).knows_developer is known
    role = normalized(DEVELOPER, USER, source=source)[0]["role"]
    takes_system = template(source).takes_system
    assert role == ("developer" if known else "system" if takes_system else "user")


def test_a_role_in_capitals_is_still_any_word() -> None:
    source = "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}{% endfor %}"
    assert not template(source).knows_developer


def test_both_instructions_reach_a_template_that_reads_one() -> None:
    text = rendered(HARMONY, SYSTEM, DEVELOPER, USER)
    assert text == "<developer>Be brief.\n\nBe kind.<user>Hello"


def test_roles_are_merged_apart_where_both_are_known() -> None:
    text = rendered(O_SERIES, SYSTEM, SYSTEM, DEVELOPER, USER, DEVELOPER)
    assert text == (
        "<system>Be brief.\n\nBe brief.<developer>Be kind.<user>Hello<developer>Be kind."
    )


@pytest.mark.parametrize("source", [CHATML, QWEN, LLAMA31, O_SERIES])
def test_late_instructions_stay_where_they_are_taken(source: str) -> None:
    messages = [SYSTEM, USER, ASSISTANT, said("system", "Later."), USER]
    assert normalized(*messages, source=source) == messages


def test_late_instructions_join_the_next_user_turn_elsewhere() -> None:
    for source in (MISTRAL, HARMONY):
        assert template(source).takes_system
        assert normalized(SYSTEM, USER, SYSTEM, ASSISTANT, USER, source=source) == [
            SYSTEM,
            USER,
            ASSISTANT,
            said("user", "Be brief.\n\nHello"),
        ]


def test_instructions_behind_the_last_user_turn_keep_their_place() -> None:
    end = said("assistant", "So")
    assert normalized(USER, SYSTEM, DEVELOPER, end, source=GEMMA) == [
        said("user", "Hello\n\nBe brief.\n\nBe kind."),
        end,
    ]
    assert normalized(USER, ASSISTANT, SYSTEM, end, source=GEMMA) == [
        USER,
        ASSISTANT,
        said("user", "Be brief."),
        end,
    ]


# The line that Claude Code puts in front


BILLING = "x-anthropic-billing-header: cc_version=2.1; cch={};"


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    "content",
    [
        BILLING + "\nYou are a coder.",
        "\n " + BILLING + "\r\n" + BILLING + "\n\nYou are a coder.",
        [{"type": "text", "text": BILLING}, {"type": "text", "text": "You are a coder."}],
    ],
)
def test_the_billing_line_is_not_for_the_model(role: str, content: Any) -> None:
    assert normalized(said(role, content), USER) == [said("system", "You are a coder."), USER]


def test_a_system_message_of_nothing_but_billing_goes() -> None:
    assert normalized(said("system", BILLING), USER) == [USER]
    assert normalized(said("system", BILLING), SYSTEM, USER) == [SYSTEM, USER]
    with pytest.raises(OptionError, match="no messages"):
        normalized(said("system", BILLING))


def test_billing_elsewhere_is_text() -> None:
    messages = [said("system", "About\n" + BILLING), said("user", BILLING)]
    assert normalized(*messages) == messages


# Content


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_lists_of_text_parts_become_text(role: str) -> None:
    kinds = ("text", "input_text", "output_text")
    parts = [{"type": kind, "text": kind, "cache_control": {}} for kind in kinds]
    assert normalized(said(role, parts))[0]["content"] == "text\ninput_text\noutput_text"


@pytest.mark.parametrize("kind", ["image_url", "input_image", "input_audio", "file", None, 7, []])
def test_what_is_no_text_is_refused_by_name(kind: Any) -> None:
    parts = [{"type": "text", "text": "See"}, {"type": kind, kind if kind == "file" else "x": {}}]
    with pytest.raises(OptionError) as caught:
        normalized(USER, said("tool", parts))
    assert str(caught.value).startswith("messages[1].content[1] has the type ")
    assert "this model reads only text" in str(caught.value)


def test_an_assistant_need_not_say_anything() -> None:
    for message in ({"role": "assistant"}, said("assistant", None)):
        assert normalized(USER, message, USER)[1] == said("assistant", "")
    assert normalized(USER, calling("{}"))[1]["content"] == ""


# Who speaks twice


@pytest.mark.parametrize("source", [GEMMA, MISTRAL])
def test_turns_are_merged_where_they_have_to_alternate(source: str) -> None:
    twice = rendered(source, USER, said("user", "Hey"), ASSISTANT, said("assistant", "Ho"), USER)
    once = rendered(source, said("user", "Hello\n\nHey"), said("assistant", "Hi\n\nHo"), USER)
    assert twice == once


@pytest.mark.parametrize("source", [CHATML, QWEN, LLAMA31])
def test_turns_are_left_alone_where_they_may_repeat(source: str) -> None:
    text = rendered(source, USER, said("user", "Hey"))
    assert "Hello\n\nHey" not in text
    assert "Hello" in text
    assert "Hey" in text


def test_merging_keeps_calls_and_other_keys() -> None:
    first = {**calling("{}", ids=("aaaaaaaaa",)), "reasoning": "Hm"}
    second = {**calling("{}", ids=("bbbbbbbbb",)), "content": "Look", "name": "Ada"}
    source = "{{ raise_exception('twice') if messages | length > 2 }}{{ messages[1] | tojson }}"
    merged = json.loads(rendered(source, USER, first, second, add_generation_prompt=True))
    assert [call["id"] for call in merged["tool_calls"]] == ["aaaaaaaaa", "bbbbbbbbb"]
    assert (merged["content"], merged["reasoning"], merged["name"]) == ("Look", "Hm", "Ada")


def test_a_user_may_speak_after_a_tool() -> None:
    messages = (USER, calling("{}"), answer("42"))
    done = rendered(MISTRAL, *messages, said("assistant", "Done."), USER)
    assert rendered(MISTRAL, *messages, USER) == done
    assert "Done." not in rendered(QWEN, *messages, USER)


def test_a_template_is_asked_twice_at_most() -> None:
    seen: list[int] = []
    source = "{{ seen(messages | length) }}{{ raise_exception('never') }}"
    with pytest.raises(TemplateError, match="never"):
        rendered(source, USER, USER, seen=seen.append)
    assert seen == [2, 1]
    seen.clear()
    with pytest.raises(TemplateError, match="never"):
        rendered(source, USER, ASSISTANT, USER, seen=seen.append)
    assert seen == [3]


# Tool calls


ARGUMENTS = '{"path": "<a> & \'b\'",  "n": 1}'
OBJECT = json.loads(ARGUMENTS)
SPACED = json.dumps(OBJECT)


@pytest.mark.parametrize(
    ("source", "objects"),
    [
        (CHATML, False),  # shows no calls
        (GEMMA, False),
        (MISTRAL, True),
        (QWEN, True),
        (LLAMA31, True),
        (THINKER, False),
        (DEEPSEEK, False),
        (PYTHONIC, True),
        (XML, True),
    ],
)
def test_arguments_get_the_form_that_the_template_wants(source: str, objects: bool) -> None:
    assert template(source).wants_objects is objects
    for arguments in (SPACED, OBJECT):
        turn = normalized(USER, calling(arguments), source=source)[1]
        sent = turn["tool_calls"][0]["function"]["arguments"]
        assert sent == (OBJECT if objects else SPACED)


@pytest.mark.parametrize("source", [MISTRAL, QWEN, LLAMA31])
def test_arguments_are_not_escaped(source: str) -> None:
    text = rendered(source, USER, calling(ARGUMENTS), answer("42"))
    assert SPACED in text
    assert text == rendered(source, USER, calling(OBJECT), answer("42"))


def test_text_stays_as_the_model_wrote_it_where_it_may() -> None:
    assert ARGUMENTS in rendered(THINKER, USER, calling(ARGUMENTS), answer("42"))
    assert ARGUMENTS in rendered(DEEPSEEK, USER, calling(ARGUMENTS), answer("42"))


@pytest.mark.parametrize(
    "broken",
    ['{"path": "a', "[1]", "null", "[" * 100_000, "9" * 5000, "nonsense \ud800"],
    ids=["cut", "list", "null", "deep", "big", "surrogate"],
)
@every_template
def test_arguments_that_are_no_object_stay_text(source: str, broken: str) -> None:
    call = calling(broken)
    turn = normalized(USER, call, source=source)[1]
    assert turn["tool_calls"][0]["function"]["arguments"] == broken
    if source != GEMMA:  # which has no tools
        rendered(source, USER, call, answer("42"), USER)


def test_a_template_that_cannot_show_text_gets_it_wrapped() -> None:
    text = rendered(XML, USER, calling('{"a": 1}', '{"path'), answer("42"))
    assert 'look a=1look arguments={"path<tool>' in text


@pytest.mark.parametrize("nothing", ["", " ", None, "{}", {}])
def test_no_arguments_are_an_empty_object(nothing: Any) -> None:
    assert '"arguments": {}}' in rendered(QWEN, USER, calling(nothing), answer("42"))


def test_ids_are_made_up_and_handed_on() -> None:
    messages = normalized(
        USER,
        calling("{}", "{}", ids=(None, "")),
        answer("a"),
        answer("b", ""),
        calling("{}", "{}", "{}", ids=("x", None, None)),
        answer("c", "call_3"),
        answer("d"),
        said("tool", "e"),
        said("tool", "nobody asked"),
    )
    calls = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert calls == ["call_0", "call_1", "x", "call_3", "call_4"]
    answers = [message.get("tool_call_id") for message in messages if message["role"] == "tool"]
    assert answers == ["call_0", "call_1", "call_3", "x", "call_4", None]


def test_ids_are_cut_short_where_they_have_to_be() -> None:
    assert template(MISTRAL).wants_short_ids
    assert not template(QWEN).wants_short_ids
    long = "toolu_01A09q90qw90lq917835lq9"
    text = rendered(
        MISTRAL, USER, calling("{}", "{}", ids=(long, "Abcdefgh9")), answer("a"), answer("b"), USER
    )
    assert text.count("000000000") == 2
    assert text.count("Abcdefgh9") == 2


def test_calls_are_shown_where_only_null_shows_them() -> None:
    assert template(DEEPSEEK).wants_null
    assert "<call>look\n{}<tool>42" in rendered(DEEPSEEK, USER, calling("{}"), answer("42"))
    assert not template(QWEN).wants_null


@pytest.mark.parametrize("none", [None, []])
def test_no_calls_are_no_key(none: Any) -> None:
    turn = {**ASSISTANT, "tool_calls": none, "function_call": None, "refusal": None}
    assert normalized(USER, turn, USER)[1] == {**ASSISTANT, "refusal": None}
    assert "Hi" in rendered(LLAMA31, USER, turn, USER)


def test_functions_of_old_are_tools() -> None:
    old = {"role": "assistant", "function_call": {"name": "look", "arguments": '{"a": 1}'}}
    result = {"role": "function", "name": "look", "content": "42"}
    assert normalized(USER, old, result)[1:] == [
        {**calling('{"a": 1}', ids=("call_0",)), "content": ""},
        {"role": "tool", "name": "look", "content": "42", "tool_call_id": "call_0"},
    ]


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ("look", r"tool_calls is of type str"),
        ({"function": {}}, r"tool_calls is of type dict"),
        (7, r"tool_calls is of type int"),
        ([7], r"tool_calls\[0\] names no function"),
        ([{"function": "look"}], r"tool_calls\[0\] names no function"),
        ([{"function": {"arguments": "{}"}}], r"tool_calls\[0\] names no function"),
        ([{"function": {"name": ["x"]}}], r"tool_calls\[0\] names no function"),
        ([{"type": "custom", "custom": {"name": "x"}}], r"tool_calls\[0\] names no function"),
        ([{"function": {"name": "x", "arguments": [1]}}], r"arguments is of type list"),
        ([{"function": {"name": "x", "arguments": {"a": {1}}}}], r"arguments is not JSON"),
        ([{"function": {"name": "x", "arguments": {(1, 2): 3}}}], r"arguments is not JSON"),
        ([{"function": {"name": "x"}, "id": 7}], r"tool_calls\[0\]\.id is of type int"),
    ],
)
def test_unusable_calls_are_named(calls: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=r"^messages\[1\]\..*" + reason):
        normalized(USER, {**ASSISTANT, "tool_calls": calls})


def test_an_id_of_an_answer_is_text() -> None:
    with pytest.raises(OptionError, match=r"^messages\[0\]\.tool_call_id is of type int"):
        normalized({**answer("42"), "tool_call_id": 7})


def test_calls_of_others_are_their_business() -> None:
    odd = {**USER, "tool_calls": 7}
    for source in (CHATML, GEMMA):
        assert normalized(odd, source=source) == [odd]
        rendered(source, odd, odd, ASSISTANT, odd)


# An assistant at the end


@every_template
@pytest.mark.parametrize("text", ["Sure:", "end", "im_end", "<", "assistant", "Hello", "é 😀"])
@pytest.mark.parametrize("asked", [{}, {"continue_final_message": True}])
def test_an_answer_begun_is_gone_on_with(source: str, text: str, asked: dict[str, Any]) -> None:
    prompt = rendered(source, USER, said("assistant", text), **asked)
    before = rendered(source, USER, said("assistant", "@@"), add_generation_prompt=False)
    assert prompt == before.partition("@@")[0] + text


@pytest.mark.parametrize("source", [CHATML, MISTRAL, QWEN, THINKER])
def test_whitespace_at_the_end_stays(source: str) -> None:
    assert rendered(source, USER, said("assistant", " Sure: \n")).endswith(" Sure: \n")


@pytest.mark.parametrize("source", [GEMMA, LLAMA31])
def test_whitespace_goes_where_the_template_strips_it(source: str) -> None:
    prompt = rendered(source, USER, said("assistant", "Sure: \n"))
    assert prompt == rendered(source, USER, said("assistant", "Sure:"))
    assert prompt.endswith("Sure:")


def test_thoughts_are_gone_on_with() -> None:
    begun = "<think>Hm</think>So"
    assert rendered(THINKER, USER, said("assistant", begun)) == (
        "<user>Hello<end><assistant>" + begun
    )


def test_a_template_that_refuses_an_assistant_at_the_end() -> None:
    source = "{{ raise_exception('Ask!') if messages[-1].role != 'user' }}<a>"
    assert rendered(source, USER, ASSISTANT) == "<a>Hi"
    with pytest.raises(TemplateError, match="Ask!"):
        rendered(source, ASSISTANT)


def test_two_answers_begun_are_one_where_turns_alternate() -> None:
    prompt = rendered(GEMMA, USER, ASSISTANT, said("assistant", "So"))
    assert prompt.endswith("<start_of_turn>model\nHi\n\nSo")


@every_template
@pytest.mark.parametrize("nothing", ["", " \n", None, []])
@pytest.mark.parametrize("asked", [{}, {"continue_final_message": True}])
def test_an_empty_answer_is_left_out(source: str, nothing: Any, asked: dict[str, Any]) -> None:
    empty = said("assistant", nothing)
    prompt = rendered(source, USER, empty, empty, **asked)
    assert prompt == rendered(source, USER, add_generation_prompt=True)
    with pytest.raises(OptionError, match="no messages"):
        rendered(source, empty)


def test_the_end_can_be_chosen() -> None:
    messages = (USER, ASSISTANT)
    closed = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n"
    assert rendered(CHATML, *messages, add_generation_prompt=False) == closed
    opened = closed + "<|im_start|>assistant\n"
    assert rendered(CHATML, *messages, add_generation_prompt=True) == opened
    assert rendered(CHATML, *messages, continue_final_message=False) == opened


def test_an_answer_that_calls_is_complete() -> None:
    messages = (USER, calling("{}"))
    assert rendered(QWEN, *messages).endswith("</tool_call><|im_end|>\n<|im_start|>assistant\n")
    for odd in (messages, (USER,), (USER, ASSISTANT, USER)):
        with pytest.raises(OptionError, match="needs an assistant's message"):
            rendered(QWEN, *odd, continue_final_message=True)


def test_a_new_turn_does_not_go_on() -> None:
    with pytest.raises(OptionError, match="set one of them"):
        rendered(QWEN, USER, ASSISTANT, add_generation_prompt=True, continue_final_message=True)


# Whatever comes

PIECES = [
    SYSTEM,
    DEVELOPER,
    USER,
    said("user", [{"type": "text", "text": "Look"}]),
    ASSISTANT,
    said("assistant", None),
    calling(ARGUMENTS),
    calling({}, '{"broken', ids=("a", None)),
    answer("42"),
    said("system", BILLING + "\nMore."),
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7))
def test_the_zoo_passes_without_change_to_it(messages: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(messages)
    for source in (CHATML, QWEN, THINKER, PYTHONIC, XML):
        made = template(source)
        if reason := refusal(source, messages):
            assert reason.startswith("There are no messages")
            return
        once = made.normalize(messages)
        assert made.normalize(once) == once
        assert made.render(messages)
        assert messages == before


CALLS = [calling("{}", '{"broken'), answer("42"), answer("43")]
TURNS = st.lists(st.sampled_from([[USER], [SYSTEM], [ASSISTANT], [DEVELOPER], CALLS]), max_size=7)


@given(TURNS)
def test_templates_with_alternation_take_what_begins_with_a_user(turns: list[Any]) -> None:
    assert rendered(MISTRAL, USER, *chain.from_iterable(turns))
    assert rendered(GEMMA, USER, *(turn[0] for turn in turns if turn is not CALLS))


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from(["system", "user", "assistant", "tool", "function", "text", "\ud800", "{"]),
)
KEYS = st.one_of(
    st.sampled_from(["role", "content", "type", "text", "id", "name", "function"]),
    st.sampled_from(["tool_calls", "tool_call_id", "function_call", "arguments", "\udfff"]),
    st.integers(),
    st.none(),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ODD = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "function"])},
    optional={
        "content": st.text(max_size=3) | VALUES,
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"function": st.fixed_dictionaries({"name": st.text(), "arguments": VALUES})},
                optional={"id": VALUES},
            )
        )
        | VALUES,
        "tool_call_id": VALUES,
        "function_call": VALUES,
        "name": VALUES,
    },
)


@given(st.lists(ODD | VALUES, max_size=4) | VALUES)
def test_hostile_values_pass_or_are_refused(messages: Any) -> None:
    for source in (CHATML, MISTRAL):
        assert "\n" not in (refusal(source, messages) or "")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


HUGE = {"deep": nested(100_000), "long": "x" * 10**6, "big": 10**5000, "map": {"a": nested(9999)}}


@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("key", ["role", "content", "tool_calls", "tool_call_id"])
def test_a_refusal_is_short_whatever_it_refuses(key: str, value: Any) -> None:
    message = {"role": "tool" if key == "tool_call_id" else "assistant", "content": "x"}
    part = said("user", [{"type": value, "text": "x"}])
    call = calling({"a": value})
    for messages in ([USER, {**message, key: value}], [part], [call], [USER, call, USER]):
        assert len(refusal(CHATML, messages) or "") < 200


def test_lone_surrogates_pass() -> None:
    turn = calling('{"a": "\ud83d"}')
    assert "cut \ud83d" in rendered(QWEN, said("user", "cut \ud83d"), turn, answer("\ude00"))


@pytest.mark.parametrize("source", [CHATML, GEMMA, MISTRAL])
@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM] * 100_000,
        [USER, *[SYSTEM] * 100_000],
        [USER, *[SYSTEM] * 100_000, USER],
        [USER, ASSISTANT] * 50_000,
        [USER] * 100_000,
        [USER, calling(*["{}"] * 100_000, ids=(None,) * 100_000), *[answer("42")] * 100_000],
        [said("system", (BILLING + "\n") * 100_000), USER],
    ],
    ids=["leading", "trailing", "late", "turns", "twice", "calls", "billing"],
)
def test_long_chats_take_no_longer_than_they_are(source: str, messages: list[Any]) -> None:
    arranged = template(source).normalize(messages)
    assert len(arranged) <= len(messages)
    assert len(merge(arranged, template(source))) <= len(messages)


# Probes


def test_nothing_is_tried_before_it_matters() -> None:
    class Counting(ChatTemplate):
        runs = 0

        def _run(self, messages: list[dict[str, Any]], extra: dict[str, Any]) -> str:
            self.runs += 1
            return super()._run(messages, extra)

    counting = Counting(MISTRAL)
    assert counting.runs == 0
    counting.render([USER])
    assert counting.runs == 1
    messages = [SYSTEM, DEVELOPER, USER, calling("{}"), answer("42"), ASSISTANT, SYSTEM, USER]
    counting.render(messages)
    tried = counting.runs
    counting.render(messages)
    assert counting.runs == tried + 1


@pytest.mark.parametrize(
    "source", ["{{ raise_exception('no') }}", "{{ 1 / 0 }}", "{{ messages.x.y }}", "", "x"]
)
def test_probes_never_fail(source: str) -> None:
    made = template(source)
    assert isinstance(made.takes_system, bool)
    assert isinstance(made.late_roles, frozenset)
    assert not made.knows_developer
    assert not made.wants_objects
    assert not made.wants_short_ids
    assert not made.wants_null
