"""Parsing Responses requests: items become chat messages; a malformed one gets a 400."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.dialects.dialect import EarlierTurns
from afterwit.dialects.request import Field, JsonForm, ModelRequest, RequestLimits, ToolChoice
from afterwit.dialects.responses import (
    DEFAULTS,
    MOST_REFERENCES,
    OPENAI_RESPONSES,
    error_body,
    parse_request,
    references_of,
)
from afterwit.errors import RequestError
from afterwit.turn import Conversation, Message, ToolCall
from tests.fakes.turns import a_turn
from tests.timing import check_linear

LIMITS = RequestLimits(max_choices=16, default_max_tokens=8192, max_messages=64)
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"type": "function", "name": "read", "strict": True, "parameters": PARAMETERS, "description": "Reads."}
WRITE = {"type": "function", "name": "write", "parameters": None}
CALLED = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a"}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "milk"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Why."}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]}
USER = {"role": "user", "content": "Open it."}
LISTED = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "files", "error": None}
CALL = ToolCall(id="c1", name="read", arguments='{"path": "a"}')


def parse(input: Any = "Hi", turns: Any = (), **body: Any) -> ModelRequest:
    references = references_of({"input": input, **body})
    known = {one.id: one for one in turns}
    quoted = {name: known[name].message for name in references.quoted if name in known}
    earlier = EarlierTurns(previous=known.get(references.previous or ""), quoted=quoted)
    return parse_request({"input": input, **body}, LIMITS, earlier)


def messages(*items: Any, turns: Any = (), **body: Any) -> tuple[Message, ...]:
    return parse(list(items), turns, **body).conversation.messages


def refused(**body: Any) -> tuple[int, str | None]:
    with pytest.raises(RequestError) as error:
        parse(**body)
    return error.value.status, error.value.param


def test_a_bare_request_gets_openais_defaults():
    request = parse()
    assert request.conversation.messages == (Message(role="user", content="Hi"),)
    assert (request.choices, request.stream, request.tool_choice) == (1, False, ToolChoice.AUTO)
    assert request.sampling.max_tokens == LIMITS.default_max_tokens
    assert request.echoed == DEFAULTS


def test_null_is_absent_everywhere():
    assert parse(**dict.fromkeys([*DEFAULTS, "stream", "include", "conversation", "prompt"])) == parse()


def test_the_items_of_one_response_become_one_message():
    (reply,) = messages(THOUGHT, SAID, CALLED, CALLED | {"call_id": "c2"})
    assert (reply.reasoning, reply.content) == ("Why.", "So.")
    assert [call.id for call in reply.tool_calls] == ["c1", "c2"]
    assert messages(CALLED, SAID) == (Message(role="assistant", content="So.", tool_calls=(CALL,)),)
    (around,) = messages(SAID, CALLED, SAID)
    assert around == Message(role="assistant", content="So.So.", tool_calls=(CALL,))


def test_the_items_of_two_responses_become_two_messages():
    assert [message.content for message in messages(SAID, SAID)] == ["So.", "So."]
    assert [message.reasoning for message in messages(THOUGHT, SAID, THOUGHT, SAID)] == ["Why.", "Why."]
    roles = [message.role for message in messages(CALLED, RESULT, CALLED, RESULT, USER, SAID)]
    assert roles == ["assistant", "tool", "assistant", "tool", "user", "assistant"]


def test_a_thought_is_read_from_its_content_or_its_summary_and_a_sealed_one_is_dropped():
    open_thought = THOUGHT | {"content": [{"type": "reasoning_text", "text": "In full."}]}
    assert messages(open_thought)[0].reasoning == "In full."
    assert messages(THOUGHT | {"content": None, "encrypted_content": None})[0].reasoning == "Why."
    assert messages({"type": "reasoning", "summary": [], "encrypted_content": "x"}, SAID)[0].reasoning is None
    for part in ({"type": "summary_text", "text": None}, {"type": "summary_text"}):
        assert messages({"type": "reasoning", "summary": [part]}, SAID)[0].reasoning is None


def test_a_message_that_holds_a_thought_alone_is_a_thought():
    said = {"role": "assistant", "content": "<think>\nWhy.\n</think>"}
    assert messages(said, SAID, CALLED) == messages(THOUGHT, SAID, CALLED)
    more = said | {"content": "<think>Why.</think> So. <think>What.</think>"}
    for quoted in (more, said | {"role": "user"}):
        assert messages(quoted)[0].content == quoted["content"]


@pytest.mark.parametrize("end", ["", "</think>", "b</think> c"])
def test_a_thought_of_white_space_is_read_in_linear_time(end: str):
    check_linear(messages, lambda size: {"role": "assistant", "content": f"<think>{' ' * size}{end}"}, 500)


def test_content_and_outputs_are_strings_or_parts():
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]
    assert messages({"role": "developer", "content": parts}) == (
        Message(role="developer", content="one\ntwo"),
    )
    assert messages(RESULT | {"output": parts})[0].content == "one\ntwo"
    assert messages(RESULT)[0] == Message(role="tool", content="milk", tool_call_id="c1")
    assert messages(RESULT | {"output": {"id": 1}})[0].content == '{"id": 1}'
    assert messages(RESULT | {"call_id": None})[0] == Message(role="tool", content="milk", tool_call_id="")


def test_a_note_stands_for_items_that_cannot_be_read():
    odd = [
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "mcp_approval_response", "approve": True},
    ]
    offered = [{"name": "read", "input_schema": {"type": "object"}, "annotations": None}]
    listed = [{"type": "web_search_call", "id": "ws_1"}, LISTED | {"tools": offered}, LISTED | {"tools": []}]
    note = Message(role="user", content="[part omitted: this model reads text]")
    assert messages(USER, *listed, *odd) == (*messages(USER), note, note)


def test_calls_of_custom_tools_and_their_outputs_stay_in_the_history():
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"}
    assert messages(USER, call, output)[1:] == (
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="c1", name="apply_patch", arguments='{"input": "*** Begin"}'),),
        ),
        Message(role="tool", content="Done", tool_call_id="c1"),
    )


def test_instructions_come_before_the_input():
    request = parse([USER], instructions="Be brief.")
    assert request.conversation.messages[0] == Message(role="system", content="Be brief.")
    assert request.conversation.instructed
    assert not parse([{"role": "system", "content": "Be brief."}]).conversation.instructed


def test_functions_are_offered_as_chat_templates_print_them_and_other_tools_are_left_out():
    other = [{"type": "web_search"}, {"type": "custom"}]
    tools = parse(tools=[READ, *other, {"type": "local_shell"}, WRITE]).conversation.tools
    function = {"name": "read", "description": "Reads.", "parameters": PARAMETERS}
    assert tools == (
        {"type": "function", "function": function},
        {"type": "function", "function": {"name": "write"}},
    )
    assert list(tools[0]["function"]) == list(function)


def test_tools_of_a_namespace_are_offered_and_called_under_names_that_begin_with_it():
    grouped = [
        {"type": "namespace", "name": name, "tools": [READ, {"type": "custom", "name": "exec"}]}
        for name in ("mcp__files", "mcp__notes__", "functions")
    ]
    calls = [CALLED | {"namespace": group["name"]} for group in grouped]
    request = parse([USER, *calls], tools=[WRITE, *grouped])
    names = ["mcp__files__read", "mcp__notes__read", "read"]
    assert [tool["function"]["name"] for tool in request.conversation.tools] == ["write", *names]
    assert [call.name for call in request.conversation.messages[1].tool_calls] == names
    assert request.unserved_tool == "custom"
    assert request.echoed["tools"][1:] == grouped
    for tools in ({}, [3], [{"type": "function"}]):
        assert refused(tools=[{"type": "namespace", "name": "files", "tools": tools}])[0] == 400


def test_items_add_tools_to_those_of_the_request():
    group = {"type": "namespace", "name": "mcp__files", "tools": [READ]}
    added = {"type": "additional_tools", "role": "developer", "tools": [group]}
    found = {"type": "tool_search_output", "call_id": "c1", "tools": [WRITE]}
    request = parse([added, USER, {"type": "tool_search_call", "call_id": "c1", "arguments": {}}, found])
    assert [tool["function"]["name"] for tool in request.conversation.tools] == ["mcp__files__read", "write"]
    user, call, result = request.conversation.messages
    assert (user, call.tool_calls[0].name) == (messages(USER)[0], "tool_search")
    assert (result.role, json.loads(result.content)) == ("tool", [WRITE])
    assert refused(input=[added | {"tools": None}])[0] == 400
    assert refused(input=[added], tools={}) == (400, "tools")


def test_tools_that_many_items_add_are_counted_in_linear_time():
    def count(items: list[Any]) -> None:
        assert refused(input=items) == (400, "tools")

    check_linear(count, lambda size: [{"type": "additional_tools", "tools": [3] * 200}] * size, 500)


@pytest.mark.parametrize(
    ("choice", "kind", "name", "offered"),
    [
        (None, ToolChoice.AUTO, None, ["read", "write"]),
        ("auto", ToolChoice.AUTO, None, ["read", "write"]),
        ("none", ToolChoice.NONE, None, ["read", "write"]),
        ("required", ToolChoice.REQUIRED, None, ["read", "write"]),
        ({"type": "function", "name": "write"}, ToolChoice.REQUIRED, "write", ["read", "write"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [READ]}, ToolChoice.AUTO, None, ["read"]),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [WRITE]},
            ToolChoice.REQUIRED,
            None,
            ["write"],
        ),
    ],
)
def test_every_form_of_tool_choice_is_read(
    choice: Any, kind: ToolChoice, name: str | None, offered: list[str]
):
    request = parse(tools=[READ, WRITE], tool_choice=choice)
    assert (request.tool_choice, request.required_tool) == (kind, name)
    assert [tool["function"]["name"] for tool in request.conversation.tools] == offered


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": 3}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "read"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": 3, "output": "x"}]}, "input[0].call_id"),
        ({"input": [USER] * 65}, "input"),
        ({"input": [{"type": "mcp_list_tools", "tools": []}]}, "input[0].server_label"),
        ({"input": [LISTED]}, "input[0].tools"),
        ({"input": [LISTED | {"tools": {}}]}, "input[0].tools"),
        ({"input": [LISTED | {"tools": ["read"]}]}, "input[0].tools[0]"),
        ({"input": [LISTED | {"tools": [{"name": None}]}]}, "input[0].tools[0].name"),
        ({"instructions": 3}, "instructions"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": [READ]}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ],
)
def test_what_is_malformed_or_cannot_be_kept_is_a_400_that_names_the_field(body: dict, param: str):
    assert refused(**body) == (400, param)


def test_what_other_servers_understand_is_accepted():
    parse(
        store=False,
        include=["reasoning.encrypted_content"],
        truncation="auto",
        metadata={"a": "b"},
        reasoning={"effort": "high", "summary": "auto"},
        text={"format": {"type": "text"}, "verbosity": "low"},
        prompt_cache_key="k",
        service_tier="flex",
        client_metadata={"x": 1},
        stream_options={"include_obfuscation": False},
        max_tool_calls=3,
        unknown=[1],
    )


def test_log_probs_are_asked_for_by_an_include():
    request = parse(include=["message.output_text.logprobs"], top_logprobs=3)
    assert (request.logprobs, request.top_logprobs, request.echoed["top_logprobs"]) == (True, 3, 3)
    assert not parse(top_logprobs=3).logprobs


def test_a_text_format_is_the_form_of_the_response():
    request = parse(
        text={"format": {"type": "json_schema", "name": "n", "schema": PARAMETERS, "strict": True}}
    )
    assert request.form is not None
    assert json.loads(request.form.schema) == PARAMETERS
    assert request.form.strict
    assert request.echoed["text"]["format"]["name"] == "n"


@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_audio", "hologram"])
def test_what_is_no_text_is_replaced_by_a_note(kind: str):
    part = [{"type": "input_text", "text": "See:"}, {"type": kind, "image_url": "x"}]
    name = kind.removeprefix("input_").replace("hologram", "part")
    answer = {"type": "function_call_output", "call_id": "c1", "output": part}
    for message in messages({"role": "user", "content": part}, CALLED, answer)[::2]:
        assert message.content == f"See:\n[{name} omitted: this model reads text]"


EARLIER = a_turn(
    "01k742sg0000000000000000g0",
    conversation=Conversation(
        messages=(Message(role="system", content="Old."), Message(role="user", content="Before.")),
        instructed=True,
    ),
    message=Message(role="assistant", content="So.", reasoning="Why.", tool_calls=(CALL,)),
)


def test_a_previous_response_comes_first_without_its_instructions():
    said = messages(RESULT, turns=[EARLIER], previous_response_id=f"resp_{EARLIER.id}", instructions="New.")
    before = Message(role="user", content="Before.")
    assert said == (Message(role="system", content="New."), before, EARLIER.message, messages(RESULT)[0])
    request = parse("Hi", [EARLIER], previous_response_id=f"resp_{EARLIER.id}")
    assert request.follows == EARLIER.id
    assert request.conversation.messages[0] == before
    alone = parse(None, [EARLIER], previous_response_id=f"resp_{EARLIER.id}")
    assert alone.conversation.messages == (before, EARLIER.message)


@pytest.mark.parametrize("identifier", [None, 3])
def test_a_reference_without_an_id_is_refused(identifier: object):
    assert refused(input=[{"type": "item_reference", "id": identifier}]) == (400, "input[0].id")


def test_items_are_referred_to_by_their_ids():
    ids = [f"rs_{EARLIER.id}0", f"msg_{EARLIER.id}0", f"fc_{EARLIER.id}0"]
    typed = [{"type": "item_reference", "id": identifier} for identifier in ids]
    assert references_of({"input": typed}).quoted == (EARLIER.id,)
    assert messages(USER, *typed, turns=[EARLIER])[1] == EARLIER.message
    assert messages(*({"id": identifier} for identifier in ids), turns=[EARLIER]) == (EARLIER.message,)
    assert messages({"id": f"msg_{EARLIER.id}1"}, USER, turns=[EARLIER]) == messages(USER)


@pytest.mark.parametrize("name", [f"resp_{EARLIER.id}", "resp_x", "", "msg_" + EARLIER.id])
def test_a_response_that_is_not_there_is_a_404(name: str):
    assert refused(previous_response_id=name) == (404, "previous_response_id")
    assert refused(input=[{"type": "item_reference", "id": name}]) == (404, "input[0]")


def test_a_request_refers_to_a_limited_number_of_responses():
    items = [{"type": "item_reference", "id": f"msg_{number:026}0"} for number in range(MOST_REFERENCES + 1)]
    assert len(references_of({"input": items[1:]}).quoted) == MOST_REFERENCES
    with pytest.raises(RequestError) as error:
        references_of({"input": items})
    assert (error.value.status, error.value.param) == (400, "input")


@given(
    st.lists(
        st.sampled_from(["user", "thought", "said", "called"]).flatmap(
            lambda kind: st.tuples(st.just(kind), st.text(min_size=1, max_size=5))
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_conversation_has_the_same_messages_as_in_chat(steps: list[tuple[str, str]]):
    """Each step but the user's is a whole response, followed by what answers it."""
    items: list[dict] = []
    chat: list[dict] = []
    for kind, words in steps:
        if kind == "user":
            items.append({"role": "user", "content": words})
            chat.append({"role": "user", "content": words})
            continue
        reply: dict[str, Any] = {"role": "assistant"}
        if kind == "thought":
            items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": words}]})
            reply["reasoning_content"] = words
        if kind == "said":
            items.append({"type": "message", "role": "assistant", "content": words})
            reply["content"] = words
        items.append({"type": "function_call", "call_id": "c", "name": "f", "arguments": words})
        reply["tool_calls"] = [{"id": "c", "function": {"name": "f", "arguments": words}}]
        items.append({"type": "function_call_output", "call_id": "c", "output": words})
        chat += [reply, {"role": "tool", "tool_call_id": "c", "content": words}]
    asked = OPENAI_CHAT.parse({"messages": chat}, LIMITS)
    assert parse(items).conversation.messages == asked.conversation.messages


def test_the_dialect_names_its_own_fields_in_errors():
    error = RequestError(400, "context_length_exceeded", "Too long.", param=Field.MESSAGES)
    assert error_body(error)["error"]["param"] == "input"
    assert OPENAI_RESPONSES.owns("/v1/responses/resp_1")


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        (
            {"type": "local_shell_call", "action": {"command": ["ls"]}},
            "local_shell",
            {"action": {"command": ["ls"]}},
        ),
        (
            {"type": "apply_patch_call", "operation": {"path": "a"}},
            "apply_patch",
            {"operation": {"path": "a"}},
        ),
        ({"type": "mcp_call", "name": "read", "arguments": '{"path": "a"}'}, "read", {"path": "a"}),
    ],
)
def test_a_call_of_a_tool_of_openais_and_its_output_stay_in_the_history(item, name, arguments):
    answer = {"type": f"{item['type']}_output", "call_id": "call_1", "output": [{"stdout": "a.txt"}]}
    call, result = messages({**item, "id": "x", "call_id": "call_1", "status": "completed"}, answer)
    assert call.tool_calls[0].name == name
    assert json.loads(call.tool_calls[0].arguments) == arguments
    assert (result.role, result.content) == ("tool", '[{"stdout": "a.txt"}]')
    assert result.tool_call_id == call.tool_calls[0].id


def test_the_output_of_a_local_shell_names_its_call_in_its_own_id():
    call = {"type": "local_shell_call", "id": "x", "call_id": "call_1", "action": {"command": ["ls"]}}
    _, result = messages(call, {"type": "local_shell_call_output", "id": "call_1", "output": "a.txt"})
    assert result == Message(role="tool", content="a.txt", tool_call_id="call_1")


def test_an_item_with_its_own_output_is_a_call_and_its_result():
    item = {"type": "mcp_call", "id": "mcp_1", "name": "read", "arguments": "{}", "output": "words"}
    call, result = messages(item)
    assert (call.tool_calls[0].name, result.content) == ("read", "words")


def test_a_screenshot_is_replaced_by_a_note():
    shot = {"type": "computer_screenshot", "image_url": "data:..."}
    (result,) = messages({"type": "computer_call_output", "call_id": "c", "output": shot})
    assert result.content == "[part omitted: this model reads text]"


def test_an_effort_of_reasoning_reaches_the_template():
    assert parse(reasoning={"effort": "low"}).conversation.template_args == {"reasoning_effort": "low"}
    assert refused(reasoning={"effort": "much"}) == (400, "reasoning.effort")


def test_an_item_that_replaces_settings_is_no_message():
    def update(**settings: Any) -> dict[str, Any]:
        return {"type": "configuration_update", "id": None, **settings}

    form = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
    items = [
        USER,
        update(reasoning={"effort": "high"}, text={"format": form}),
        SAID,
        update(reasoning={"effort": "none"}, text=None),
        USER,
    ]
    request = parse(items, reasoning={"effort": "low", "summary": "auto"}, text={"verbosity": "low"})
    assert request.conversation.messages == messages(USER, SAID, USER)
    assert request.conversation.template_args == {"reasoning_effort": "none"}
    assert request.form == JsonForm(schema='{"type":"object"}', strict=False)
    assert request.echoed["reasoning"] == {"effort": "none", "summary": "auto"}
    assert request.echoed["text"] == {"verbosity": "low", "format": form}
    assert refused(input=[USER, update(reasoning="low")]) == (400, "input[1].reasoning")


def test_a_function_and_an_object_that_are_repeated_have_all_of_their_fields():
    function = {"type": "function", "name": "f"}
    echoed = parse(tools=[function], reasoning={"effort": "low"}, text={"verbosity": "low"}).echoed
    assert echoed["tools"] == [{**function, "description": None, "parameters": None, "strict": None}]
    assert echoed["reasoning"] == {"effort": "low", "summary": None}
    assert echoed["text"] == {"format": {"type": "text"}, "verbosity": "low"}
