"""Parsing chat requests: real clients' fields are read, and a malformed one gets a 400 that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.dialects.request import ANY_OBJECT, JsonForm, ModelRequest, RequestLimits, ToolChoice
from afterwit.errors import RequestError
from afterwit.turn import Message, ToolCall

LIMITS = RequestLimits(max_choices=16, default_max_tokens=8192)

HI = [{"role": "user", "content": "Hi"}]
READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}

MANY = {f"k{number}": 0 for number in range(16_385)}

BEGUN = [*HI, {"role": "assistant", "content": "Once "}]

FIELDS = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "n",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "stop_token_ids",
    "ignore_eos",
    "continue_final_message",
    "add_generation_prompt",
]
"""Every field that is read."""


def parse(**body: Any) -> ModelRequest:
    return OPENAI_CHAT.parse({"messages": HI, **body}, LIMITS)


def message(**fields: Any) -> Message:
    return parse(messages=[fields]).conversation.messages[0]


def test_a_bare_request_gets_openais_defaults():
    request = parse()
    assert request.conversation.messages == (Message(role="user", content="Hi"),)
    assert (request.choices, request.stream, request.include_usage) == (1, False, False)
    assert (request.tool_choice, request.required_tool, request.parallel_calls) == (
        ToolChoice.AUTO,
        None,
        True,
    )
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (1.0, 1.0, 0, None)
    assert sampling.max_tokens == LIMITS.default_max_tokens
    assert not sampling.penalised


def test_null_is_absent_everywhere():
    assert parse(**dict.fromkeys(name for name in FIELDS if name != "messages")) == parse()


def test_every_sampling_setting_is_read():
    sampling = parse(
        max_completion_tokens=7,
        max_tokens=9,
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        seed=-3,
        stop=["a", "", "b"],
        stop_token_ids=[5],
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={"5": -100, "6": 1.5},
        ignore_eos=True,
    ).sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (7, 0.0, 0.5, 0)
    assert (sampling.min_p, sampling.seed, sampling.stop, sampling.stop_ids) == (0.1, -3, ("a", "b"), (5,))
    assert sampling.logit_bias == ((5, -100.0), (6, 1.5))
    assert sampling.penalised
    assert sampling.ignore_eos
    assert parse(stop="x").sampling.stop == ("x",)


def test_a_limit_of_minus_one_is_none_and_the_next_field_counts():
    assert parse(max_tokens=-1) == parse()
    assert parse(max_completion_tokens=-1, max_tokens=9).sampling.max_tokens == 9


def test_no_mass_at_all_keeps_the_most_likely_token():
    assert 0 < parse(top_p=0).sampling.top_p < 1e-5


def test_content_is_a_string_or_its_parts():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": {}}]
    assert message(role="user", content=parts).content == "one\ntwo"
    assert message(role="user", content=[{"type": "text", "text": "one"}]).content == "one"
    assert message(role="assistant", content=[{"type": "refusal", "refusal": "no"}]).content == "no"
    assert message(role="assistant", content=parts).content == "onetwo"  # the deltas of a stream
    assert message(role="assistant", content=None).content is None
    assert message(role="user", content=None).content is None


def test_an_assistant_message_keeps_its_calls_and_its_reasoning():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    said = message(role="assistant", content="x", reasoning_content="why", tool_calls=[call])
    assert said.tool_calls == (ToolCall(id="c", name="f", arguments='{"a":1}'),)
    assert said.reasoning == "why"
    call["function"]["arguments"] = {"a": 1}
    assert message(role="assistant", tool_calls=[call]).tool_calls[0].arguments == '{"a": 1}'


def test_a_tool_result_names_its_call():
    result = message(role="tool", content="ok", tool_call_id="c", name="f")
    assert (result.role, result.tool_call_id, result.name) == ("tool", "c", "f")
    assert message(role="function", content="ok", name="f").role == "tool"


@pytest.mark.parametrize(
    ("returned", "read"),
    [
        ({"city": "Kyōto"}, '{"city": "Kyōto"}'),
        ({"type": "error", "code": 3}, '{"type": "error", "code": 3}'),
        ([{"id": 1}, {"id": 2}], '[{"id": 1}, {"id": 2}]'),
        ([1, 2], "[1, 2]"),
        (42, "42"),
        (False, "false"),
        (None, None),
        ([], ""),
        (["a", {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_what_a_tool_returned_is_read_as_json_unless_it_is_text(returned, read):
    assert message(role="tool", content=returned, tool_call_id="c").content == read


def test_consecutive_and_trailing_user_messages_are_kept():
    request = parse(messages=HI * 3)
    assert [said.role for said in request.conversation.messages] == ["user"] * 3


def test_tools_are_kept_as_they_were_sent():
    assert parse(tools=[READ]).conversation.tools == (READ,)


@pytest.mark.parametrize(
    ("asked", "choice", "named"),
    [
        ("auto", ToolChoice.AUTO, None),
        ("none", ToolChoice.NONE, None),
        ("required", ToolChoice.REQUIRED, None),
        ("any", ToolChoice.REQUIRED, None),
        ({"type": "auto"}, ToolChoice.AUTO, None),
        ({"type": "none"}, ToolChoice.NONE, None),
        ({"type": "required"}, ToolChoice.REQUIRED, None),
        ({"type": "function", "function": {"name": "read"}}, ToolChoice.REQUIRED, "read"),
        ({"type": "function", "name": "read"}, ToolChoice.REQUIRED, "read"),
    ],
)
def test_every_form_of_tool_choice_is_read(asked, choice, named):
    request = parse(tools=[READ], tool_choice=asked)
    assert (request.tool_choice, request.required_tool) == (choice, named)


def test_tools_in_the_form_of_the_responses_api_become_those_of_chat():
    flat = {"type": "function", **READ["function"]}
    nested = parse(tools=[READ]).conversation.tools
    assert parse(tools=[flat | {"strict": False}]).conversation.tools == nested
    assert parse(tools=[{"function": READ["function"]}]).conversation.tools == nested


def test_tools_that_are_no_functions_are_left_out():
    custom = {"type": "custom", "custom": {"name": "patch"}}
    assert parse(tools=[custom, READ, {"type": "web_search"}]).conversation.tools == (READ,)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_choice_may_name_the_tools_that_are_allowed(mode):
    other = {"type": "function", "function": {"name": "write"}}
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "write"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    request = parse(tools=[READ, other], tool_choice=choice)
    assert request.conversation.tools == (other,)
    assert (request.tool_choice, request.required_tool) == (mode, None)


def test_template_arguments_reach_the_conversation():
    assert parse(chat_template_kwargs={"enable_thinking": False}).conversation.template_args == {
        "enable_thinking": False
    }


def test_unknown_fields_are_ignored():
    assert (
        parse(store=False, service_tier="auto", reasoning={"effort": "low"}, user="u", metadata={}) == parse()
    )


def test_usage_is_sent_in_the_stream_when_asked_for():
    assert parse(stream=True, stream_options={"include_usage": True}).include_usage
    assert not parse(stream=True, stream_options={}).include_usage


def nested(levels: int) -> dict:
    return {"a": nested(levels - 1)} if levels else {}


BAD = [
    ({"messages": None}, "invalid_type", "messages"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": ["x"]}, "invalid_type", "messages[0]"),
    ({"messages": [{"content": "x"}]}, "invalid_type", "messages[0].role"),
    ({"messages": [{"role": "human", "content": "x"}]}, "invalid_value", "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "invalid_type", "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "invalid_type",
        "messages[0].content[0].text",
    ),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "invalid_type", "messages[0].tool_calls"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]},
        "invalid_type",
        "messages[0].tool_calls[0].function",
    ),
    ({"messages": HI * 5000}, "invalid_value", "messages"),
    ({"messages": [{"role": "user"}]}, "invalid_value", "messages[0].content"),
    ({"temperature": "hot"}, "invalid_type", "temperature"),
    ({"temperature": 2.1}, "invalid_value", "temperature"),
    ({"temperature": True}, "invalid_type", "temperature"),
    ({"temperature": float("nan")}, "invalid_value", "temperature"),
    ({"top_p": -0.1}, "invalid_value", "top_p"),
    ({"top_k": 1.5}, "invalid_type", "top_k"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_completion_tokens": -2}, "invalid_value", "max_completion_tokens"),
    ({"n": 0}, "invalid_value", "n"),
    ({"n": 17}, "invalid_value", "n"),
    ({"seed": 2**63}, "invalid_value", "seed"),
    ({"stop": 5}, "invalid_type", "stop"),
    ({"stop": ["x"] * 33}, "invalid_value", "stop"),
    ({"stop": [None]}, "invalid_type", "stop"),
    ({"logit_bias": {"x": 1}}, "invalid_type", "logit_bias"),
    ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias"),
    ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"stream_options": []}, "invalid_type", "stream_options"),
    ({"tools": {}}, "invalid_type", "tools"),
    ({"tools": [{}]}, "invalid_type", "tools[0].type"),
    ({"tools": [{"name": "read", "input_schema": {}}]}, "invalid_type", "tools[0].type"),
    ({"tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "unsupported_tool_choice", "tool_choice"),
    ({"tools": [{"type": "custom"}], "tool_choice": "required"}, "invalid_value", "tool_choice"),
    (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [READ | {"function": {}}]}}},
        "invalid_type",
        "tool_choice.allowed_tools.tools.function.name",
    ),
    ({"tools": [{"type": "function", "function": {}}]}, "invalid_type", "tools[0].function.name"),
    ({"tool_choice": "maybe"}, "invalid_value", "tool_choice"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    (
        {"tools": [READ], "tool_choice": {"type": "function", "function": {"name": "w"}}},
        "invalid_value",
        "tool_choice",
    ),
    ({"response_format": {"type": "xml"}}, "unsupported_response_format", "response_format"),
    ({"response_format": {}}, "invalid_type", "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "invalid_type", "response_format.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        "invalid_type",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": nested(260)}}},
        "invalid_value",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"title": "x" * 131_072}}}},
        "invalid_value",
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "json_object", "schema": 3}}, "invalid_type", "response_format.schema"),
    ({"continue_final_message": True}, "invalid_value", "continue_final_message"),
    ({"messages": [{"role": "user", "content": "Go", "prefix": True}]}, "invalid_value", "prefix"),
    (
        {"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True},
        "invalid_value",
        "continue_final_message",
    ),
    ({"chat_template_kwargs": {"messages": []}}, "invalid_value", "chat_template_kwargs"),
    ({"chat_template_kwargs": {"x": nested(260)}}, "invalid_value", "chat_template_kwargs"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": nested(260)}}]},
        "invalid_value",
        "tools[0]",
    ),
    ({"model": 3}, "invalid_type", "model"),
    ({"top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD)
def test_what_is_malformed_is_a_400_that_names_the_field(body, code, param):
    with pytest.raises(RequestError) as refused:
        parse(**body)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, code, param)


def test_a_number_that_is_not_whole_is_named():
    with pytest.raises(RequestError, match=r"seed must be a whole number, not 1\.5"):
        parse(seed=1.5)


def test_what_is_no_text_is_replaced_by_a_note():
    parts = [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": "x"}}]
    expected = "See:\n[image omitted: this model reads text]"
    assert message(role="user", content=parts).content == expected
    assert message(role="tool", tool_call_id="a", content=parts).content == expected


def test_a_response_format_is_read():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert parse(response_format={"type": "text"}).form is None
    asked = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert parse(response_format=asked).form == JsonForm(
        schema='{"type":"object","properties":{"a":{"type":"string"}}}', strict=False
    )
    asked["json_schema"]["strict"] = True
    assert parse(response_format=asked).form.strict
    assert parse(response_format={"type": "json_object"}).form == ANY_OBJECT
    assert parse(response_format={"type": "json_object", "schema": None}).form == ANY_OBJECT


def test_an_object_may_have_a_schema_as_for_llama_cpp():
    schema = {"type": "object", "required": ["a"]}
    form = parse(response_format={"type": "json_object", "schema": schema}).form
    assert parse(response_format={"type": "json_schema", "schema": schema}).form == form
    assert form == JsonForm(schema='{"type":"object","required":["a"]}', strict=False)


def test_a_last_message_of_the_assistant_is_gone_on_from_if_the_client_says_so():
    assert len(parse(messages=BEGUN).conversation.messages) == 2
    request = parse(messages=BEGUN, continue_final_message=True, add_generation_prompt=False)
    assert request.prefill == "Once "
    assert [message.role for message in request.conversation.messages] == ["user"]
    *before, last = BEGUN
    assert parse(messages=[*before, last | {"prefix": True}]).prefill == "Once "
    assert parse(messages=[*before, last | {"prefix": False}]).prefill == ""
    assert parse(messages=[*before, last | {"prefix": True}, *before]).prefill == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MESSAGE_FIELDS = [
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning_content",
    "function",
    "type",
]
half_right = st.dictionaries(
    st.sampled_from(MESSAGE_FIELDS),
    json_values | st.sampled_from(["user", "assistant", "tool", "text"]),
    max_size=5,
)


@given(
    body=json_values
    | st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6)
    | st.fixed_dictionaries({"messages": st.lists(half_right, min_size=1, max_size=3)})
    | st.fixed_dictionaries({"messages": st.just(HI), "tools": st.lists(half_right, max_size=2)})
)
def test_any_json_is_parsed_or_refused_with_a_400(body):
    status = None
    try:
        OPENAI_CHAT.parse(body, LIMITS)
    except RequestError as refused:
        status = refused.status
    assert status in (None, 400)


CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": HI * (LIMITS.max_messages + 1)}, "messages"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CALL] * (LIMITS.max_calls // 2 + 1)}] * 2},
            "messages",
        ),
        ({"tools": [READ] * (LIMITS.max_tools + 1)}, "tools"),
    ],
)
def test_more_pieces_than_a_request_may_have_are_refused(body: dict[str, Any], field: str):
    with pytest.raises(RequestError) as refused:
        parse(**body)
    assert (refused.value.status, refused.value.param) == (400, field)
    assert "more than" in refused.value.message


def test_calls_of_custom_tools_in_the_history_keep_their_text_as_an_argument():
    custom = {"id": "call_1", "type": "custom", "custom": {"name": "apply_patch", "input": '*** "Begin"\n'}}
    silent = {"id": "call_2", "type": "custom", "custom": {"name": "look"}}
    history = [
        {"role": "user", "content": "Patch it."},
        {"role": "assistant", "content": None, "tool_calls": [custom, silent]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Done"},
        {"role": "tool", "tool_call_id": "call_2", "content": "Seen"},
    ]
    calls = parse(messages=history).conversation.messages[1].tool_calls
    assert [(call.id, call.name, json.loads(call.arguments)["input"]) for call in calls] == [
        ("call_1", "apply_patch", '*** "Begin"\n'),
        ("call_2", "look", ""),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": MANY}}}]},
        {"chat_template_kwargs": MANY},
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": MANY}}],
                }
            ]
        },
    ],
    ids=["tool", "template", "arguments"],
)
def test_a_value_that_holds_too_many_is_refused(body: dict[str, Any]):
    with pytest.raises(RequestError, match="holds more than 16384 values"):
        parse(**body)


def test_calls_and_results_in_the_form_of_2023_stay_in_the_history():
    call = {"name": "read", "arguments": '{"path": "a"}'}
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "read", "content": "milk"},
    ]
    _, called, result = parse(messages=said).conversation.messages
    assert called.tool_calls == (ToolCall(id="", **call),)
    assert (result.role, result.name, result.content) == ("tool", "read", "milk")


@pytest.mark.parametrize(
    "body",
    [
        {"functions": [{"name": "f"}]},
        {"function_call": "auto"},
        {"guided_json": {"type": "object"}},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"reasoning_effort": "much"},
    ],
)
def test_what_would_be_ignored_silently_is_refused_by_name(body):
    with pytest.raises(RequestError) as error:
        parse(**body)
    assert (error.value.status, error.value.param) == (400, *body)


def test_the_effort_of_reasoning_is_a_template_argument_that_the_clients_own_overrule():
    assert parse(reasoning_effort="low").conversation.template_args == {"reasoning_effort": "low"}
    assert parse(reasoning_effort="default").conversation.template_args == {}
    own = parse(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"})
    assert own.conversation.template_args == {"reasoning_effort": "high"}
