"""Whatever a client sends back of a conversation renders with every template: a session is never stuck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect, EarlierTurns, ReferringParser
from afterwit.dialects.request import ModelRequest, RequestLimits
from afterwit.dialects.table import DIALECTS
from tests.chat_format.messages.templates import TEMPLATES
from tests.fakes.models import tiny_qwen3
from tests.products import some

LIMITS = RequestLimits(max_choices=1, default_max_tokens=9)
CHAT, RESPONSES, MESSAGES = DIALECTS
USER = {"role": "user", "content": "Open it."}
SYSTEM = {"role": "system", "content": "Be good."}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "milk"}
GREETING = {"role": "assistant", "content": "I am here."}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
ABSENT = object()
ARGUMENTS: dict[str, Any] = {
    "an object's text": '{"path": "a"}',
    "an object": {"path": "a"},
    "absent": ABSENT,
    "null": None,
    "empty": "",
    "blank": "  \n",
    "null as text": "null",
    "a list": ["a"],
    "a list as text": '["a"]',
    "a number": 5,
    "a number as text": "5",
    "true": True,
    "cut": '{"path": "a',
    "no JSON": "a",
    "encoded twice": json.dumps('{"path": "a"}'),
    "a list encoded twice": json.dumps('["a"]'),
    "half a surrogate pair": '{"path": "\\ud83d"}',
}
CONTENTS: dict[str, Any] = {
    "absent": ABSENT,
    "null": None,
    "empty": "",
    "parts": [{"type": "text", "text": "hi"}],
    "no parts": [],
    "a part of null": [{"type": "text", "text": None}],
}
FUNCTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nulls": {"description": None, "parameters": None, "strict": None},
    "no parameters": {"description": "d"},
    "empty parameters": {"description": "d", "parameters": {}},
    "null properties": {"description": "d", "parameters": {"type": "object", "properties": None}},
    "a property of nothing": {"description": "d", "parameters": {"type": "object", "properties": {"a": {}}}},
    "nulls inside": {
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": ["string", "null"], "description": None, "enum": ["x", None]}},
            "required": None,
        },
    },
}


def without_absent(value: dict[str, Any]) -> dict[str, Any]:
    return {name: held for name, held in value.items() if held is not ABSENT}


def called(arguments: Any = '{"path": "a"}', content: Any = None, **more: Any) -> dict[str, Any]:
    function = without_absent({"name": "read", "arguments": arguments})
    call = {"id": "call_1", "type": "function", "function": function}
    return without_absent({"role": "assistant", "content": content, "tool_calls": [call], **more})


def replays() -> Iterator[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Messages and tools of OpenAI chat."""
    tool = {"type": "function", "function": {"name": "read", "description": "d", "parameters": SCHEMA}}
    for name, arguments in ARGUMENTS.items():
        yield f"arguments: {name}", [USER, called(arguments), RESULT, USER], [tool]
    for name, content in CONTENTS.items():
        yield f"a call's content: {name}", [USER, called(content=content), RESULT, USER], [tool]
        reply, result = (
            without_absent({**GREETING, "content": content}),
            without_absent({**RESULT, "content": content}),
        )
        yield f"a reply: {name}", [USER, reply, USER], []
        yield f"a result: {name}", [USER, called(), result, USER], [tool]
    for name in ("name", "tool_call_id"):
        for value in (None, ""):
            yield f"a result's {name}: {value!r}", [USER, called(), {**RESULT, name: value}, USER], [tool]
    for name in ("reasoning_content", "reasoning"):
        yield f"{name}: null", [USER, called(**{name: None}), RESULT, USER], [tool]
    for calls in (None, []):
        yield f"calls: {calls}", [USER, {**GREETING, "tool_calls": calls}, USER], [tool]
    for name, function in FUNCTIONS.items():
        yield f"a tool: {name}", [USER], [{"type": "function", "function": {"name": "read", **function}}]
    for tools in ([], [tool]):
        with_tools = " with tools" if tools else ""
        yield "a system text alone" + with_tools, [SYSTEM], tools
        yield "a system text and a call" + with_tools, [SYSTEM, called(), RESULT], tools
        yield "a call" + with_tools, [called(), RESULT], tools
        yield "a reply first" + with_tools, [GREETING, USER], tools
        yield "a system text and a reply" + with_tools, [SYSTEM, GREETING, USER], tools
        yield "a result alone" + with_tools, [RESULT], tools
        yield "a result first" + with_tools, [RESULT, USER], tools
        yield "a result whose call was cut away" + with_tools, [USER, RESULT, USER], tools
        stray = {**RESULT, "tool_call_id": "call_9"}
        yield "a result of another call" + with_tools, [USER, called(), RESULT, stray, USER], tools


REPLAYS = list(replays())


def published() -> dict[str, str]:
    """The chat templates that TRL brings, if it is installed."""
    spec = find_spec("trl")
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(folder.glob("chat_templates/*.jinja"))]
    return {f"trl {file.stem}": file.read_text() for file in files if not file.stem.endswith("_training")}


SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
ALL = TEMPLATES | published()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_qwen3(tmp_path_factory.mktemp("model")) / "tokenizer.json"))


def parsed(dialect: Dialect, body: dict[str, Any]) -> ModelRequest:
    parse, body = dialect.parse, json.loads(json.dumps(body))
    if isinstance(parse, ReferringParser):
        return parse.parse(body, LIMITS, EarlierTurns())
    return parse(body, LIMITS)


@pytest.mark.parametrize("name", some(2, ALL))
def test_every_replay_renders_and_nothing_that_was_said_is_left_out(tokenizer: Tokenizer, name: str):
    renderer = Renderer(tokenizer, {"default": ALL[name]}, special_tokens=SPECIAL, end_ids=frozenset({0}))
    for replay, messages, tools in REPLAYS:
        conversation = parsed(CHAT, {"model": "m", "messages": messages, "tools": tools}).conversation
        rendered = renderer.text(conversation)
        assert renderer.encode(rendered)
        for said in conversation.messages:
            if "llama3" in name and said.tool_calls:  # it leaves out text next to a call
                continue
            assert (said.content or "") in rendered, replay


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_other_dialects_read_the_arguments_alike(name: str):
    arguments = ARGUMENTS[name]
    chat = parsed(CHAT, {"messages": [USER, called(arguments)]}).conversation.messages[-1]
    item = without_absent(
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": arguments}
    )
    responded = parsed(RESPONSES, {"input": [USER, item]})
    block = without_absent({"type": "tool_use", "id": "call_1", "name": "read", "input": arguments})
    messaged = parsed(MESSAGES, {"messages": [USER, {"role": "assistant", "content": [block]}]})
    for other in (responded, messaged):
        assert other.conversation.messages[-1].tool_calls == chat.tool_calls


def test_what_was_sent_in_place_of_an_object_is_that_object():
    def read(arguments: Any) -> str:
        (call,) = parsed(CHAT, {"messages": [called(arguments)]}).conversation.messages[0].tool_calls
        return call.arguments

    assert [read(nothing) for nothing in (ABSENT, None, "", "  ", "null")] == ["{}"] * 5
    assert read(json.dumps('{"path": "ä"}')) == '{"path": "ä"}'
    kept = ('{ "path":"a" }', '{"path": "a', "[1]", "5", "a", json.dumps("a"))
    assert tuple(map(read, kept)) == kept
