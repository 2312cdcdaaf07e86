"""Tool calls that no tool takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.chat_format.families import CONVENTIONS
from afterwit.chat_format.tool_schema import schema_error
from afterwit.turn import Message, ToolCall

READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


def tool(schema: Any = None, name: str = "read") -> dict[str, Any]:
    function = {"name": name} if schema is None else {"name": name, "parameters": schema}
    return {"type": "function", "function": function}


def calls(*arguments: str, name: str = "read", content: str | None = None) -> Message:
    made = tuple(ToolCall(id=f"c{at}", name=name, arguments=text) for at, text in enumerate(arguments))
    return Message(role="assistant", content=content, tool_calls=made)


@pytest.mark.parametrize(
    "arguments", ['{"path": "a.py"}', '{"path": "a.py", "lines": 3}', ' {"lines":3,"path":""} ']
)
def test_a_call_that_fits_its_schema_decides_nothing(arguments):
    assert schema_error(calls(arguments), (tool(READ),)) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"path": 3}', "do not fit its schema"),
        ("{}", "do not fit its schema"),
        ("", "do not fit its schema"),
        ('{"path": "a", "mode": "r"}', "do not fit its schema"),
        ('{"path": "a", "lines": 1.5}', "do not fit its schema"),
        ('{"path": "a"', "are not JSON"),
        ("path=a", "are not JSON"),
        ('{"path": NaN}', "are not JSON"),
        ('["a"]', "are not a JSON object"),
        ("null", "are not a JSON object"),
        ('"{}"', "are not a JSON object"),
    ],
)
def test_a_call_that_its_schema_refuses_is_an_error(arguments, words):
    assert words in schema_error(calls(arguments), (tool(READ),))


def test_one_bad_call_among_good_ones_is_an_error():
    assert schema_error(calls('{"path": "a"}', "{"), (tool(READ),)) is not None


def test_an_unknown_tool_is_an_error_with_and_without_tools():
    assert schema_error(calls("{}", name="write"), (tool(READ),)) == "there is no tool write"
    assert schema_error(calls("{}", name="write"), ()) == "there is no tool write"


def test_a_call_that_could_not_be_read_is_an_error_if_there_are_tools():
    said = Message(role="assistant", content='<tool_call>\n{"name": "read", "arg')
    assert schema_error(said, (tool(READ),)) == "a tool call could not be read"
    assert schema_error(said, ()) is None
    assert schema_error(Message(role="assistant", content="Done."), (tool(READ),)) is None


BEGINS = sorted({one.calls[0].begin for one in CONVENTIONS if one.calls})


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize(
    "prose",
    [
        "The mark {} opens a call.",
        "It is written\n\n  {}\n\nand then comes the call.",
        "Models write `{}` first, then JSON",
        'It begins with "{}", a mark of its own.',
        "A call stands between {} and </tool_call>.",
        "The mark is {}.",
        "Use {} tags",
        'So it looks:\n```xml\n{}{{"name": "read"}}\n```\nThat is all.',
    ],
)
def test_a_mark_that_is_named_or_shown_is_no_call_that_could_not_be_read(begin, prose):
    said = Message(role="assistant", content=prose.format(begin))
    assert schema_error(said, (tool(READ),)) is None


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize(
    "rest", ['\n{"name": "read", "arg', "{'name'", "read\n<arg", "[{", "<function=read>", "rea"]
)
def test_a_call_that_was_begun_is_one_that_could_not_be_read(begin, rest):
    said = Message(role="assistant", content=f"Let me look. {begin}{rest}")
    assert schema_error(said, (tool(READ),)) == "a tool call could not be read"


def test_a_tool_without_parameters_takes_any_object_and_no_arguments_at_all():
    for arguments in ("{}", "", '{"a": 1}'):
        assert schema_error(calls(arguments), (tool(),)) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"properties": 5},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "#"},
        {"properties": {"path": {"pattern": "(?<=x)y"}}},
        {"title": "\ud800"},
        "read",
        5,
        [1],
    ],
)
def test_a_schema_that_cannot_be_applied_refuses_nothing(schema):
    assert schema_error(calls('{"path": "a"}'), (tool(schema),)) is None


def test_patterns_match_in_linear_time():
    schema = {"properties": {"path": {"pattern": "^(a+)+$"}}}
    assert "do not fit" in schema_error(calls('{"path": "' + "a" * 4000 + '!"}'), (tool(schema),))


def test_arguments_nested_beyond_reason_are_left_to_the_judge():
    deep = '{"path":' * 900 + "1" + "}" * 900
    assert schema_error(calls(deep), (tool({"enum": [1]}),)) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.text(max_size=20))
def test_no_schema_and_no_arguments_raise(schema, arguments):
    schema_error(calls(arguments), (tool(schema), {"function": schema}))


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose every level refers twice to the next."""
    chain = {f"a{at}": {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**chain, f"a{levels}": {"type": "object"}}}


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (doubling(60), "{}"),
        ({"properties": {"a": doubling(60)["$defs"]["a0"]}, "$defs": doubling(60)["$defs"]}, '{"a": {}}'),
        ({"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}] * 2}, nested(60)),
        ({"$ref": "#"}, "{}"),
        ({"items": {"$ref": "#"}, "properties": {"a": {"$ref": "#"}}, "allOf": [{"$ref": "#"}] * 2}, "{}"),
    ],
)
def test_a_schema_that_takes_exponential_time_refuses_nothing(schema, arguments):
    assert schema_error(calls(arguments), (tool(schema),)) is None


@pytest.mark.parametrize(
    "key", ["$ref", "$dynamicRef", "$recursiveRef", "not", "allOf", "items", "properties"]
)
@pytest.mark.parametrize("value", [None, 3, "x", "#/$defs/none", "#/title/0", "#/required/x", [3], {"a": 3}])
def test_an_invalid_schema_refuses_nothing_or_the_call(key, value):
    schema = {key: value, "title": "t", "required": [], "a": {"$id": 4}}
    said = schema_error(calls('{"a": [1]}'), (tool(schema),))
    assert said is None or "do not fit its schema" in said


TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "parts": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
            },
        }
    },
}


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ('{"name": "a", "parts": [null, {"name": "b", "parts": [{"name": "c"}]}]}', True),
        ('{"name": "a", "parts": [null, {"name": "b", "parts": [{"name": 3}]}]}', False),
    ],
)
def test_a_schema_that_refers_to_itself_is_applied(arguments, fits):
    assert (schema_error(calls(arguments), (tool(TREE),)) is None) is fits
