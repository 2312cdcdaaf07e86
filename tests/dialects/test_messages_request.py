"""Parsing Anthropic requests: clients' fields are read, and a malformed one gets a 400 that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.binding.request import plain_text
from afterwit.dialects.chat import parse_request as parse_chat
from afterwit.dialects.fields import omitted, omitted_kind
from afterwit.dialects.messages import parse_request
from afterwit.dialects.request import ModelRequest, RequestLimits, ToolChoice
from afterwit.errors import RequestError
from afterwit.judging.unvoted import failed_call
from afterwit.turn import Message, ToolCall, call_id, turn_of_call

LIMITS = RequestLimits(
    max_choices=16, default_max_tokens=8192, max_messages=40, max_calls=50, max_parts=99, max_tools=9
)

HI = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"name": "read", "description": "Read a file.", "input_schema": SCHEMA}
CACHED = {"cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
FIELDS = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "thinking",
    "thread",
    "metadata",
    "output_config",
    "output_format",
    "compaction",
]
"""Every field that is read."""


def parse(**body: Any) -> ModelRequest:
    return parse_request({"messages": HI, **body}, LIMITS)


def messages(*said: dict[str, Any]) -> tuple[Message, ...]:
    """The parsed messages before a last message of the user."""
    return parse_request({"messages": [*said, *HI]}, LIMITS).conversation.messages[:-1]


def says(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(identifier: str = "toolu_1", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identifier, "name": "read", "input": given}


def result(content: Any = None, identifier: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": identifier, "content": content, **more}


def refused(**body: Any) -> RequestError:
    with pytest.raises(RequestError) as error:
        parse(**body)
    assert error.value.status == 400
    return error.value


def test_a_bare_request_gets_the_defaults():
    request = parse()
    assert request.conversation.messages == (Message(role="user", content="Hi"),)
    assert (request.choices, request.stream, request.show_reasoning) == (1, False, False)
    assert (request.tool_choice, request.required_tool, request.parallel_calls) == (
        ToolChoice.AUTO,
        None,
        True,
    )
    assert request.sampling.max_tokens == LIMITS.default_max_tokens
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (1.0, 1.0, 0)


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "thinking", "signature": "s"}, {"type": "text", "text": "Yes."}],
        [{"type": "thinking", "thinking": None, "signature": None}, {"type": "text", "text": "Yes."}],
        [{"type": "text", "text": None}, {"type": "text", "text": "Yes."}],
    ],
)
def test_a_block_without_its_text_that_a_client_sends_back_is_empty(blocks: list[dict[str, Any]]):
    """Clients that put blocks together from a stream leave out what no delta brought."""
    assert messages(*HI, says("assistant", *blocks))[1:] == (Message(role="assistant", content="Yes."),)


def test_null_is_absent_everywhere():
    assert parse(**dict.fromkeys(name for name in FIELDS if name != "messages")) == parse()


def test_every_sampling_setting_is_read():
    sampling = parse(
        max_tokens=5, temperature=0.3, top_p=0.9, top_k=7, stop_sequences=["a", "", "b"]
    ).sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (5, 0.3, 0.9, 7)
    assert sampling.stop == ("a", "b")


def test_system_text_is_the_first_message_whether_a_string_or_blocks():
    said = parse(system=[text("Be brief.") | CACHED, text("Be kind.")]).conversation.messages
    assert said[0] == Message(role="system", content="Be brief.\nBe kind.")
    assert parse(system="Be brief.\nBe kind.").conversation.messages == said
    for nothing in ("", [], [text("")]):
        assert len(parse(system=nothing).conversation.messages) == 1


def test_a_line_of_billing_that_changes_with_every_request_is_no_part_of_the_system_text():
    billing = "x-anthropic-billing-header: cc_version=2.1.1; cch={};"
    blocks = [[text(billing.format(count)), text("Be brief.")] for count in ("36ee5", "0aaa9")]
    one, other = (parse(system=system).conversation.messages for system in blocks)
    assert one == other == (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    assert parse(system=billing.format(1) + "\nBe brief.").conversation.messages == one
    (said,) = messages({"role": "user", "content": billing})
    assert said.content == billing


def test_content_as_a_string_and_as_blocks_is_the_same():
    assert messages({"role": "user", "content": "Hi"}) == messages(says("user", text("Hi") | CACHED))


def test_tool_results_are_messages_and_what_stands_between_them_too():
    said = messages(
        says("assistant", text("Let me look."), use(path="a")),
        says(
            "user", result("milk"), result([text("one"), text("two")], "toolu_2"), text("And?"), text("So?")
        ),
    )
    assert said == (
        Message(
            role="assistant",
            content="Let me look.",
            tool_calls=(ToolCall(id="toolu_1", name="read", arguments='{"path": "a"}'),),
        ),
        Message(role="tool", content="milk", tool_call_id="toolu_1"),
        Message(role="tool", content="one\ntwo", tool_call_id="toolu_2"),
        Message(role="user", content="And?\nSo?"),
    )


def test_a_failed_tool_says_so_in_its_text():
    texts = ("no such file", "Error: no such file", "error while reading", "Errors: 2", "")
    failed = messages(says("user", *(result(text, is_error=True) for text in texts)))
    assert failed[0].content == failed[1].content == "Error: no such file"
    assert all(failed_call([message]) for message in failed)
    (fine,) = messages(says("user", result("no such file", is_error=False)))
    assert fine.content == "no such file"
    (empty,) = messages(says("user", result()))
    assert empty.content == ""


def test_thought_is_kept_apart_and_its_signature_ignored():
    thought = {"type": "thinking", "thinking": "Which?", "signature": "c2ln"}
    (said,) = messages(says("assistant", thought, {"type": "redacted_thinking", "data": "x"}, text("This.")))
    assert said == Message(role="assistant", content="This.", reasoning="Which?")


def test_an_assistants_text_goes_on_behind_a_call():
    (said,) = messages(says("assistant", text("One"), use(), text("two.")))
    assert (said.content, len(said.tool_calls)) == ("Onetwo.", 1)
    (silent,) = messages(says("assistant", use()))
    assert silent.content is None
    (empty,) = messages(says("assistant"))
    assert empty.content == ""


def test_our_own_call_ids_are_read_back_in_the_form_in_which_they_are_stored():
    ours = call_id("0" * 26, 3)
    for sent in ("toolu" + ours[4:], "toolu_" + ours[4:].upper()):
        called, answered = messages(says("assistant", use(sent)), says("user", result("x", sent)))
        assert called.tool_calls[0].id == answered.tool_call_id == ours
        assert turn_of_call(sent) == "0" * 26


def test_what_a_tool_returned_is_read_as_json_unless_it_is_text():
    (said,) = messages(says("user", result({"id": 1})))
    assert said.content == '{"id": 1}'


def test_documents_of_text_and_search_results_are_read():
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Milk."}}
    (said,) = messages(says("user", document, text("Eggs.")))
    assert said.content == "Milk.\nEggs."
    made = {"type": "document", "source": {"type": "content", "content": [text("Milk."), IMAGE]}}
    assert messages(says("user", made))[0].content == f"Milk.\n{omitted('image')}"
    found = {"type": "search_result", "title": "Notes", "source": "a.txt", "content": [text("Milk.")]}
    assert messages(says("user", result([found])))[0].content == "Notes\na.txt\nMilk."


PDF = {"type": "document", "source": {"type": "base64", "data": ""}}


@pytest.mark.parametrize(("block", "name"), [(IMAGE, "image"), (PDF, "file"), ({"type": "hologram"}, "part")])
def test_what_is_no_text_is_replaced_by_a_note(block: dict[str, Any], name: str):
    """Agents keep a screenshot in their history: a 400 would come back for ever."""
    note = f"[{name} omitted: this model reads text]"
    assert messages(says("user", text("See:"), block))[0].content == f"See:\n{note}"
    assert messages(says("user", result([block])))[0].content == note
    assert omitted_kind(note) == name


def test_blocks_of_anthropics_own_tools_are_passed_over():
    searched = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    called = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "maps", "input": {}}
    told = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": []}
    listed = {"type": "mcp_tool_listing", "mcp_server_name": "maps", "tools": []}
    handed_on = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None}
    (said,) = messages(says("assistant", searched, found, called, told, listed, handed_on, text("Paris.")))
    assert said == Message(role="assistant", content="Paris.")


def test_consecutive_messages_of_one_role_stay_apart():
    assert [message.role for message in messages(*HI, *HI)] == ["user", "user"]


def test_system_text_inside_the_conversation_is_a_reminder_that_binding_passes_over():
    """Many templates refuse a system message that is not the first."""
    rule = {"role": "system", "content": "New rule."}
    _, reminder, _ = messages(*HI, rule, *HI)
    assert reminder == Message(role="user", content="<system-reminder>\nNew rule.\n</system-reminder>")
    assert plain_text(reminder) == ""
    assert messages(rule, *HI)[0] == Message(role="system", content="New rule.")
    (system, _) = parse(system="Be brief.", messages=[rule, *HI]).conversation.messages
    assert system.content == "Be brief.\nNew rule."


def test_system_text_for_one_message_of_the_user_is_shown_until_the_next_one():
    now, always = (
        {"role": "system", "content": "It is noon.", "clear_at": when}
        for when in ("next_user_message", "never")
    )

    def shown(*said: dict[str, Any]) -> list[str]:
        texts = [message.content or "" for message in parse(messages=[*HI, *said]).conversation.messages]
        return ["noon" if "noon" in text else text for text in texts]

    call, done = says("assistant", use()), says("user", result("Done."))
    assert shown(now) == ["Hi", "noon"]
    assert shown(now, call, done) == shown(call, done) == ["Hi", "", "Done."]
    assert shown(now, call, done, now) == ["Hi", "", "Done.", "noon"]
    assert shown(always, call, done) == ["Hi", "noon", "", "Done."]


def test_a_message_of_the_assistant_at_the_end_is_how_the_response_begins():
    request = parse(messages=[*HI, says("assistant", text("The answer is "))])
    assert request.prefill == "The answer is"
    assert [message.role for message in request.conversation.messages] == ["user"]
    assert parse(messages=[*HI, says("assistant", text(" "))]) == parse()
    called = parse(messages=[*HI, says("assistant", use())])
    assert (called.prefill, len(called.conversation.messages)) == ("", 2)
    assert refused(messages=[says("assistant", text("The"))]).param == "messages"


def test_a_schema_is_the_form_of_the_response_in_todays_field_and_in_the_betas():
    form = {"type": "json_schema", "schema": SCHEMA}
    for asked in (parse(output_config={"format": form, "effort": "low"}), parse(output_format=form)):
        assert asked.form is not None
        assert asked.form.strict
        assert json.loads(asked.form.schema) == SCHEMA


def test_tools_are_read_without_marks_and_anthropics_own_are_left_out():
    marked = READ | CACHED | {"type": "custom", "strict": True, "defer_loading": True}
    own = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "from_the_future", "name": 3},
    ]
    function = {"name": "read", "description": "Read a file.", "parameters": SCHEMA}
    assert parse(tools=[marked, *own]).conversation.tools == ({"type": "function", "function": function},)
    assert parse(tools=[{"name": "go"}]).conversation.tools[0]["function"] == {"name": "go"}


def test_messages_change_the_tools_and_say_nothing_by_it():
    """As the tool runners of Anthropic's SDKs and Claude Code send them, with servers that connect late."""

    def changed(*changes: tuple[str, dict[str, Any]]) -> list[str]:
        blocks = [{"type": f"tool_{what}", "tool": tool} for what, tool in changes]
        request = parse(
            tools=[READ], messages=[*HI, says("assistant", text("Hm.")), says("system", *blocks), *HI]
        )
        assert [message.content for message in request.conversation.messages] == ["Hi", "Hm.", "Hi"]
        return [tool["function"]["name"] for tool in request.conversation.tools]

    read = {"type": "tool_reference", "name": "read"}
    write = {"type": "tool_definition", "definition": READ | {"name": "write"}}
    hosted = {"type": "tool_definition", "definition": {"type": "web_search_20250305", "name": "web_search"}}
    server = {"type": "mcp_toolset_reference", "server_name": "files"}
    assert changed(("addition", write), ("addition", read)) == ["read", "write"]
    assert changed(("removal", read), ("addition", write)) == ["write"]
    assert changed(("removal", read), ("removal", read), ("addition", read)) == ["read"]
    gone = {"type": "tool_reference", "name": "gone"}
    assert changed(("addition", hosted), ("addition", server), ("removal", server), ("addition", gone)) == [
        "read"
    ]
    for wrong in ({"type": "tool_reference", "name": []}, {"type": "tool_definition"}, None):
        with pytest.raises(RequestError, match=r"messages\[0\].content\[0\].tool"):
            parse(messages=[says("system", {"type": "tool_addition", "tool": wrong}), *HI])
    many = [write | {"definition": READ | {"name": f"tool_{index}"}} for index in range(LIMITS.max_tools)]
    with pytest.raises(RequestError, match="make 10 tools, more than 9"):
        changed(*(("addition", tool) for tool in many))


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ({"type": "auto"}, (ToolChoice.AUTO, None, True)),
        ({"type": "none"}, (ToolChoice.NONE, None, True)),
        ({"type": "any", "disable_parallel_tool_use": True}, (ToolChoice.REQUIRED, None, False)),
        ({"type": "tool", "name": "read"}, (ToolChoice.REQUIRED, "read", True)),
    ],
)
def test_every_tool_choice_is_read(choice, read):
    request = parse(tools=[READ], tool_choice=choice)
    assert (request.tool_choice, request.required_tool, request.parallel_calls) == read


def test_thinking_is_shown_if_it_is_asked_for_and_switched_off_if_it_is_disabled():
    for kind in ("enabled", "adaptive"):
        asked = parse(thinking={"type": kind, "budget_tokens": 3072})
        assert (asked.show_reasoning, asked.conversation.template_args) == (True, {"enable_thinking": True})
    off = parse(thinking={"type": "disabled"})
    assert (off.show_reasoning, off.conversation.template_args) == (False, {"enable_thinking": False})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": HI * 41}, "messages"),
        ({"messages": [says("assistant", *([use()] * 26)), says("user", *([result()] * 26))]}, "messages"),
        ({"messages": [says("user", *[text("x")] * 100)]}, "messages"),
        ({"messages": [says("user", result([text("x")] * 99))]}, "messages"),
        ({"system": [text("x")] * 100}, "system"),
        ({"tools": [READ] * 10}, "tools"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [says("user", {"type": "text"})]}, "messages[0].content[0].text"),
        ({"messages": [says("user", {})]}, "messages[0].content[0].type"),
        ({"messages": [says("user", {"type": "tool_result"})]}, "messages[0].content[0].tool_use_id"),
        ({"messages": [says("assistant", {"type": "tool_use"})]}, "messages[0].content[0].id"),
        ({"system": 3}, "system"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"stop_sequences": [3]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 33}, "stop_sequences"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": ""}]}, "tools[0].name"),
        ({"tools": [{"name": "x", "input_schema": 3}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [READ], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"thinking": True}, "thinking"),
        ({"stream": "yes"}, "stream"),
        ({"output_config": {"format": {"type": "json_object"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema", "schema": 3}}}, "output_config.format.schema"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
        ({"compaction": {"type": "summarize"}}, "compaction"),
    ],
)
def test_what_is_malformed_is_refused_and_the_field_named(body, param):
    error = refused(**body)
    assert error.param == param
    assert error.param in error.message


def test_unknown_fields_are_ignored():
    more = {"service_tier": "auto", "container": {}, "mcp_servers": [], "context_management": {"edits": []}}
    assert parse(**more, output_config={"effort": "high"}, anthropic_beta=["x"]) == parse()


def test_values_that_nest_too_deep_are_refused():
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    said = [says("assistant", use(**deep)), *HI]
    assert refused(messages=said).param == "messages[0].content[0].input"
    assert refused(tools=[READ | {"input_schema": deep}]).param == "tools[0]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_whatever_arrives_is_read_or_refused_with_a_400(body):
    status = 200
    try:
        parse_request(body, LIMITS)
    except RequestError as error:
        status = error.status
    assert status in (200, 400)


def test_a_conversation_is_read_as_in_openai_chats_form():
    """Text, thought, parallel calls, results, reminders: the same messages and the same tools."""
    ids = [call_id("1" * 26, index) for index in range(2)]
    theirs = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Open both."},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "Which?",
            "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "read", "arguments": '{"path": "ä"}'}}
                for id in ids
            ],
        },
        {"role": "tool", "tool_call_id": ids[0], "content": "milk"},
        {"role": "tool", "tool_call_id": ids[1], "content": "eggs"},
        {"role": "user", "content": [text("<system-reminder>x</system-reminder>"), text("And now?")]},
    ]
    function = {"name": "read", "description": "Read a file.", "parameters": SCHEMA}
    chat = parse_chat({"messages": theirs, "tools": [{"type": "function", "function": function}]}, LIMITS)
    ours = [
        {"role": "user", "content": "Open both."},
        says(
            "assistant",
            {"type": "thinking", "thinking": "Which?", "signature": "x"},
            text("Let me look."),
            *(use("toolu" + id[4:], path="ä") for id in ids),
        ),
        says(
            "user",
            result("milk", "toolu" + ids[0][4:]),
            result("eggs", "toolu" + ids[1][4:]) | CACHED,
            text("<system-reminder>x</system-reminder>"),
            text("And now?"),
        ),
    ]
    request = parse(system="Be brief.", messages=ours, tools=[READ | CACHED])
    assert request.conversation == chat.conversation
    assert json.dumps(request.conversation.to_dict()) == json.dumps(chat.conversation.to_dict())


def test_an_effort_counts_where_the_client_asks_for_thinking():
    asked = {"output_config": {"effort": "high"}}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert parse(**asked).conversation.template_args == {}
    assert parse(**asked, thinking=thinking).conversation.template_args == {
        "reasoning_effort": "high",
        "enable_thinking": True,
    }


def test_the_last_message_that_names_an_effort_decides_and_is_no_reminder():
    """Claude Code changes the effort within a conversation by a system message without text."""
    low, high = (
        {"role": "system", "content": [], "output_config": {"effort": one}} for one in ("low", "high")
    )
    asked = parse(
        messages=[low, *HI, says("assistant", text("Hi.")), *HI, high, low | {"output_config": None}],
        output_config={"effort": "max"},
        thinking={"type": "adaptive"},
    )
    assert asked.conversation.template_args["reasoning_effort"] == "high"
    assert [message.role for message in asked.conversation.messages] == ["user", "assistant", "user"]
    assert refused(messages=[*HI, high | {"output_config": 3}], thinking={"type": "adaptive"}).status == 400
