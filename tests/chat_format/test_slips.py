"""Calls with small mistakes are read as the call that the model meant."""

from __future__ import annotations

import json

import pytest

from afterwit.chat_format.families import convention_of
from afterwit.chat_format.parse import ResponseParser
from afterwit.turn import Message

PROPERTIES = {"path": {"type": "string"}, "count": {"type": "integer"}, "text": {"type": "string"}}
TOOL = {"name": "write", "parameters": {"type": "object", "properties": PROPERTIES}}


def read(name: str, text: str, step: int = 1, tool: object = TOOL) -> Message:
    parser = ResponseParser(convention_of("", name), tools=[{"type": "function", "function": tool}])
    for at in range(0, len(text), step):
        parser.push(text[at : at + step])
    parser.finish()
    return parser.message(str)


def qwen(*parameters: str) -> str:
    return "\n".join(("<tool_call>", "<function=write>", *parameters, "</function>", "</tool_call>"))


@pytest.mark.parametrize("step", [1, 1000])
def test_a_parameter_without_its_end_mark_ends_where_another_of_the_tool_begins(step):
    said = read("qwen_xml", qwen("<parameter=path>\na", "<parameter=count>\n2\n</parameter>"), step)
    assert json.loads(said.tool_calls[0].arguments) == {"path": "a", "count": 2}


@pytest.mark.parametrize("inner", ["path", "other"])
def test_a_parameter_mark_that_is_given_elsewhere_or_is_not_the_tools_is_text(inner):
    value = f"x\n<parameter={inner}>\ny"
    said = read(
        "qwen_xml", qwen(f"<parameter=text>\n{value}\n</parameter>", "<parameter=path>\na\n</parameter>")
    )
    assert json.loads(said.tool_calls[0].arguments) == {"text": value, "path": "a"}


def test_arguments_that_were_streamed_begin_those_of_the_whole_call():
    parser = ResponseParser(convention_of("", "qwen_xml"), tools=[{"type": "function", "function": TOOL}])
    text = qwen(
        "<parameter=path>\na", "<parameter=count>\n2\n</parameter>", "<parameter=text>\nb\n</parameter>"
    )
    events = [event for sign in text for event in parser.push(sign)]
    assert {event.index for event in events} == {0}


@pytest.mark.parametrize("step", [1, 1000])
def test_the_end_mark_of_a_call_without_its_first_mark_is_no_content(step):
    call = qwen("<parameter=path>\na\n</parameter>").removeprefix("<tool_call>\n")
    said = read("qwen_xml", f"Now:\n{call}\n{call}\n", step)
    assert (said.content, len(said.tool_calls)) == ("Now:", 2)


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("word", ["", "call:", ":call:"])
def test_gemma_may_miswrite_the_words_in_its_marks(step, word):
    call = f'<|tool_call>{word}write{{path:<|"|>a<|"|>}}<tool_call|>'
    said = read("gemma", f"<|channel>Hm.<channel|>So:{call}", step)
    assert (said.reasoning, said.content, said.tool_calls[0].name) == ("Hm.", "So:", "write")


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("name", ["glm", "glm45"])
def test_a_key_without_its_end_mark_is_no_part_of_the_value_before_it(name, step):
    good = "<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n"
    text = f"<tool_call>write\n{good}<arg_key>count\n<arg_value>2</arg_value>\n</tool_call>"
    said = read(name, text, step)
    assert (said.content, said.tool_calls) == (text, ())


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(("given", "calls"), [({"path": "a"}, ["write"]), ({"other": 1}, [])])
def test_a_number_in_the_place_of_kimis_id_is_the_tool_that_has_the_arguments(step, given, calls):
    call = f"<|tool_call_begin|>0 <|tool_call_argument_begin|>{json.dumps(given)}<|tool_call_end|>"
    said = read("kimi", f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>", step)
    assert [found.name for found in said.tool_calls] == calls


@pytest.mark.parametrize("step", [1, 1000])
def test_gemma_may_forget_the_marks_around_a_call(step):
    bare, marked = 'call:write{path:<|"|>a<|"|>}', '<|tool_call>call:write{path:<|"|>b<|"|>}<tool_call|>'
    said = read("gemma", f"<|channel>thought\nHm.\n<channel|>{bare}", step)
    assert (said.reasoning, said.content, len(said.tool_calls)) == ("Hm.", None, 1)
    said = read("gemma", f"call: it writes.\n{marked}", step)
    assert (said.content, said.tool_calls[0].arguments) == ("call: it writes.", '{"path":"b"}')
    assert read("gemma", f"So: {bare}", step).content == f"So: {bare}"


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("int", 5),
        ("INTEGER", 5),
        ("float", 1.5),
        ("bool", True),
        ("dict", {"a": 1}),
        ("list", [1]),
        ("any", 5),
    ],
)
def test_a_type_under_its_name_in_a_programming_language_types_the_value(type, value):
    tool = {"name": "write", "parameters": {"properties": {"x": {"type": type}}}}
    written = f"<tool_call>write<arg_key>x</arg_key><arg_value>{json.dumps(value)}</arg_value></tool_call>"
    assert json.loads(read("glm", written, tool=tool).tool_calls[0].arguments) == {"x": value}


MODES = {"enum": ["edit", "42"]}
CHOSEN = [
    MODES,
    {"type": "string", **MODES},
    {"anyOf": [{"const": "edit", "type": "string"}, {"const": "42"}, {"type": "null"}]},
    {"$ref": "#/$defs/mode"},
    {"allOf": [{"$ref": "#/$defs/mode"}], "default": "edit"},
]


@pytest.mark.parametrize("schema", CHOSEN)
@pytest.mark.parametrize(
    ("written", "meant"),
    [("edit", "edit"), ('"edit"', "edit"), ("42", "42"), ('"42"', "42"), ('"other"', '"other"')],
)
def test_a_text_that_the_schema_names_may_be_written_in_quotes(schema, written, meant):
    parameters = {"type": "object", "properties": {"mode": schema}, "$defs": {"mode": MODES}}
    tool = {"name": "write", "parameters": parameters}
    for name, call in {
        "qwen_xml": qwen(f"<parameter=mode>\n{written}\n</parameter>"),
        "glm": f"<tool_call>write\n<arg_key>mode</arg_key>\n<arg_value>{written}</arg_value>\n</tool_call>",
    }.items():
        said = read(name, call, tool=tool)
        assert json.loads(said.tool_calls[0].arguments) == {"mode": meant}


@pytest.mark.parametrize("step", [1, 1000])
def test_text_after_a_call_does_not_run_into_the_text_before_it(step):
    call = qwen("<parameter=path>\na\n</parameter>")
    said = read("qwen_xml", f"I write a.\n{call} Then I write it again. {call}\nDone.", step)
    assert (said.content, len(said.tool_calls)) == ("I write a.\nThen I write it again.\nDone.", 2)


@pytest.mark.parametrize("step", [1, 1000])
def test_a_message_after_a_call_is_a_paragraph_of_its_own_and_no_more(step):
    channel = "<|start|>assistant<|channel|>"
    call = f'{channel}commentary to=functions.write <|constrain|>json<|message|>{{"count": 2}}<|call|>'
    text = f"{channel}final<|message|>I write.<|end|>{call}{channel}final<|message|>Done.<|return|>"
    assert read("harmony", text.removeprefix("<|start|>assistant"), step).content == "I write.\n\nDone."


@pytest.mark.parametrize("step", [1, 1000])
def test_gemma_may_write_a_colon_without_call(step):
    said = read("gemma", "<|tool_call>:write{count:2}<tool_call|>", step)
    assert [(call.name, json.loads(call.arguments)) for call in said.tool_calls] == [("write", {"count": 2})]


@pytest.mark.parametrize("step", [1, 1000])
def test_granite_may_write_the_mark_of_hermes(step):
    said = read("granite", 'So: <tool_call> [{"name": "write", "arguments": {"count": 2}}]', step)
    assert (said.content, said.tool_calls[0].name) == ("So:", "write")


def test_a_value_that_minimax_writes_keeps_the_lines_around_it():
    value = "\n    def f():\n        return 1\n"
    parameter = f'<parameter name="text">{value}</parameter>'
    said = read(
        "minimax", f'<minimax:tool_call><invoke name="write">{parameter}</invoke></minimax:tool_call>'
    )
    assert json.loads(said.tool_calls[0].arguments) == {"text": value}


def test_a_set_in_a_list_of_calls_is_a_list_and_half_a_set_is_no_call():
    said = read("pythonic", "[write(tags={'a', 'b'}, none={}, deep={'a': {1, 2}})]")
    assert json.loads(said.tool_calls[0].arguments) == {"tags": ["a", "b"], "none": {}, "deep": {"a": [1, 2]}}
    assert not read("pythonic", "[write(tags={'a': 1, 'b'})]").tool_calls
