"""A chat template: run as transformers runs it, and the messages folded into what it accepts."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from afterwit.chat_format.folder import read_json
from afterwit.errors import SettingError
from afterwit.text import without_halves
from afterwit.turn import SYSTEM, Message, ToolCall

MOST_DECIDED = 4096
"""Cached attributes of types. A template names a few dozen."""

_OF_DICTS = frozenset(dir(dict))

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], str]
"""Messages and tools, in the template's form, to its text. Raises anything if the template refuses them."""

JOINT = "\n\n"
"""Between two texts that become one."""

BLANK = " "
"""An empty reply, for a template that refuses one."""

SHORT_ID = 9
"""Letters and digits."""

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Each template reads one of these."""

DEFAULT_FIELDS: dict[str, Any] = {"description": "", "parameters": {"type": "object", "properties": {}}}
"""The missing fields of a tool, for a template that reads them unchecked."""


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for masks; it has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - the name and type are Jinja's

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

    def _whole(self, caller: Any) -> Any:
        return caller()


class _Sandbox(ImmutableSandboxedEnvironment):
    """The same sandbox with cached decisions, which depend only on the type and the attribute."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._decided: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        safe = self._decided.get((type(obj), attr))
        if safe is None:
            safe = super().is_safe_attribute(obj, attr, value)
            if len(self._decided) < MOST_DECIDED:
                self._decided[type(obj), attr] = safe
        return safe

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Finds a message's field before the attributes of dictionaries."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)


@lru_cache(maxsize=8)
def compiled(source: str) -> jinja2.Template:
    """A template as transformers compiles it. Renderers of one model in a process share it.

    Raises jinja2.TemplateSyntaxError if it does not parse.
    """
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(source)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def read_templates(folder: Path) -> dict[str, str]:
    """A model folder's templates by name, "default" among them. A file wins over the tokenizer's config.

    Raises SettingError if there is none, or if a file of JSON cannot be read.
    """
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    named = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    for file in ("chat_template.json", "tokenizer_config.json"):
        value = read_json(folder / file).get("chat_template")
        if not named and isinstance(value, str):
            named = {"default": value}
        elif not named and isinstance(value, list):
            named = {entry["name"]: entry["template"] for entry in value}
    if "default" not in named:
        raise SettingError(
            f"{folder} has no chat template: a base model cannot chat, so take its chat version"
        )
    return named


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRules:
    """The messages that a template accepts. By default it accepts everything."""

    parts: bool = False  # only lists of parts as content
    developer: bool = True  # the role `developer`
    system: bool = True  # a system message at the beginning
    systems: bool = True  # several system messages there
    late_system: bool = True  # a system message later on
    repeats: bool = True  # two messages of the user, or of the model, in a row
    user_after_tool: bool = True  # a user message directly after a call or a tool's result
    empty_replies: bool = True  # a reply without text and calls
    many_calls: bool = True  # several calls in one message
    thought_beside_text: bool = True  # reasoning and content next to a call
    text_arguments: bool = False  # only JSON text, not an object, as the arguments of a call
    short_ids: bool = False  # only ids of nine letters and digits for tool calls
    bare_tools: bool = True  # tools without a description or parameters
    person_first: bool = False  # a reply, a call or a system message only after a user message
    calls: bool = True  # the calls of a message
    results: bool = True  # the result of a tool
    lone_results: bool = True  # the result of a call that is not in the conversation
    named_ids: bool = False  # prints only a call's id, which must hold its name, as `functions.read:0`


def folded(messages: Sequence[Message], rules: TemplateRules) -> list[Message]:
    found = _named(messages)
    if not rules.developer:
        found = [replace(one, role="system") if one.role == "developer" else one for one in found]
    found = _instructed(found, rules)
    if not (rules.calls and rules.results and rules.lone_results):
        found = list(_in_words(found, rules))
    if rules.person_first:
        begin = len(_leading(found))
        if not (found[begin:] and found[begin].role == "user"):
            found = [*found[:begin], Message(role="user", content=""), *found[begin:]]
    if not rules.many_calls:
        found = list(_single_calls(found))
    if not rules.user_after_tool:
        found = list(_answered_tools(found))
    if not rules.repeats:
        found = _merged(found, lambda one, other: one.role == other.role != "tool" and not one.tool_calls)
    if not rules.thought_beside_text:  # content next to reasoning and calls becomes a part of the reasoning
        found = [
            replace(one, reasoning=_joined(one.reasoning, one.content), content=None)
            if one.tool_calls and one.content and one.reasoning
            else one
            for one in found
        ]
    if not rules.empty_replies:
        found = [
            one if one.role != "assistant" or one.content or one.tool_calls else replace(one, content=BLANK)
            for one in found
        ]
    if rules.short_ids:
        return _with_ids(found, short_id)
    if rules.named_ids:
        ids = {one.tool_call_id: one.tool_call_id for one in found if one.tool_call_id is not None}
        calls = (call for message in found for call in message.tool_calls)
        ids |= {call.id: f"functions.{call.name}:{place}" for place, call in enumerate(calls)}
        return _with_ids(found, ids.__getitem__)
    return found


def _named(messages: Sequence[Message]) -> list[Message]:
    """Calls with an id each, and results with the id and the name of their calls.

    Clients use ids again, and leave them out or drop them later. A result belongs to the first call of its id
    without a result in the last message that calls; one without an id, to the first of any.
    """
    calls: dict[str, ToolCall] = {}
    """The latest call of each id that a client sent."""
    used: set[str] = set()
    made: list[ToolCall] = []
    waiting: OrderedDict[int, str] = OrderedDict()
    """The sent id of each call without a result, by its place in `made`."""
    places: defaultdict[str, deque[int]] = defaultdict(deque)
    named = []
    for message in messages:
        if message.tool_calls:
            made, waiting, places = [], OrderedDict(), defaultdict(deque)
            for place, sent in enumerate(message.tool_calls):
                call = replace(sent, id=f"{sent.id}_{len(used)}") if sent.id in used else sent
                used.add(call.id)
                calls[sent.id] = call
                made.append(call)
                waiting[place] = sent.id
                places[sent.id].append(place)
            message = replace(message, tool_calls=tuple(made))
        if message.role == "tool":
            id = message.tool_call_id or next(iter(waiting.values()), "")
            call_of = calls.get(id)
            if places[id]:
                place = places[id].popleft()
                del waiting[place]
                call_of = made[place]
            if call_of is None:
                message = replace(message, tool_call_id=id)
            else:
                message = replace(message, tool_call_id=call_of.id, name=call_of.name)
        named.append(message)
    return named


def _leading(messages: Sequence[Message]) -> list[Message]:
    return list(takewhile(lambda message: message.role in SYSTEM, messages))


def _instructed(messages: list[Message], rules: TemplateRules) -> list[Message]:
    """System messages where the template accepts them; elsewhere they become user messages."""
    leading = _leading(messages)
    later = messages[len(leading) :]
    if not rules.late_system:
        later = [replace(one, role="user") if one.role in SYSTEM else one for one in later]
    if not rules.systems:
        leading = _merged(leading, lambda one, other: True)
    if rules.system or not leading:
        return [*leading, *later]
    leading = [replace(one, role="user") for one in leading]
    return _merged([*leading, *later[:1]], lambda one, other: one.role == other.role == "user") + later[1:]


def _in_words(messages: Sequence[Message], rules: TemplateRules) -> Iterator[Message]:
    """Calls in the model's words, and results in the user's: all, or those without a call before, as the
    template drops them."""
    called: set[str | None] = set()
    for message in messages:
        called.update(call.id for call in message.tool_calls)
        alone = not rules.lone_results and message.tool_call_id not in called
        if message.role == "tool" and (not rules.results or alone):
            head = f"Result of {message.name}:\n" if message.name else ""
            yield Message(role="user", content=head + (message.content or ""))
        elif message.tool_calls and not (rules.calls and rules.results):
            calls = (f"Called {call.name}: {call.arguments}" for call in message.tool_calls)
            content = JOINT.join(text for text in (message.content, *calls) if text)
            yield replace(message, content=content, tool_calls=())
        else:
            yield message


def _single_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Each call in a message of its own, followed by its result."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        ids = {call.id for call in message.tool_calls}
        others: list[Message] = []
        results: defaultdict[str | None, list[Message]] = defaultdict(list)
        while place < len(messages) and messages[place].role == "tool":
            result = messages[place]
            (results[result.tool_call_id] if result.tool_call_id in ids else others).append(result)
            place += 1
        for index, call in enumerate(message.tool_calls):
            said = message if index == 0 else replace(message, content=None, reasoning=None)
            yield replace(said, tool_calls=(call,))
            yield from results.pop(call.id, ())
        yield from others


def _answered_tools(messages: Sequence[Message]) -> Iterator[Message]:
    """An empty reply between a call, or a tool's result, and a user message."""
    waits = False
    for message in messages:
        if waits and message.role == "user":
            yield Message(role="assistant", content="")
        waits = message.role == "tool" or bool(message.tool_calls)
        yield message


def _merged(messages: Sequence[Message], belong: Callable[[Message, Message], bool]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        if merged and belong(merged[-1], message):
            before = merged[-1]
            merged[-1] = replace(
                before,
                content=_joined(before.content, message.content),
                reasoning=_joined(before.reasoning, message.reasoning),
                tool_calls=message.tool_calls,
            )
        else:
            merged.append(message)
    return merged


def _joined(one: str | None, other: str | None) -> str | None:
    return JOINT.join(text for text in (one, other) if text) or (one if one is not None else other)


def _with_ids(messages: Sequence[Message], id_of: Callable[[str], str]) -> list[Message]:
    return [
        replace(
            message,
            tool_calls=tuple(replace(call, id=id_of(call.id)) for call in message.tool_calls),
            tool_call_id=None if message.tool_call_id is None else id_of(message.tool_call_id),
        )
        for message in messages
    ]


def short_id(id: str) -> str:
    """Nine letters and digits for an id; the id itself if it consists of nine already."""
    if len(id) == SHORT_ID and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:SHORT_ID]


_USER: dict[str, Any] = {"role": "user", "content": "Ub"}
_REPLY: dict[str, Any] = {"role": "assistant", "content": "Ab"}
_SYSTEM: dict[str, Any] = {"role": "system", "content": "Qa"}
_OTHER_SYSTEM = {**_SYSTEM, "content": "Qb"}
_TOOL = {"type": "function", "function": {"name": "Fa", **DEFAULT_FIELDS, "description": "Da"}}
_BARE_TOOLS = (
    {"type": "function", "function": {"name": "Fa"}},
    {"type": "function", "function": {"name": "Fa", "description": None, "parameters": None}},
    {"type": "function", "function": {"name": "Fa", "description": "Da", "parameters": {"type": "object"}}},
)


def rules_of(render: Render, source: str) -> TemplateRules:
    """The rules of the template with this source, found by rendering small conversations."""
    takes = partial(_takes, render)
    if not takes(_USER, shown=("Ub",)):
        if takes(_USER, tools=[_TOOL], shown=("Ub",)):  # it serves requests with tools alone
            return rules_of(lambda messages, tools: render(messages, tools or [_TOOL]), source)
        if not takes({**_USER, "content": in_parts("Ub")}, shown=("Ub",)):
            return TemplateRules(developer="developer" in source)

        def render_parts(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
            return render([{**one, "content": in_parts(one["content"])} for one in messages], tools)

        return replace(rules_of(render_parts, source), parts=True)

    def calls_in(short: bool, text: bool) -> bool:
        call, shown = _made("c", short=short, text=text), ('{"Kc": "Vc"}',) if text else ("Kc", "Vc")
        return takes(*call, shown=shown) and not takes(*call, shown=("{'Kc'",))

    form = next((form for form in product((False, True), repeat=2) if calls_in(*form)), None)
    calls, (short, text) = form is not None, form or (False, False)
    made = partial(_made, short=short, text=text)
    called = made("c")
    system = takes(_SYSTEM, _USER, shown=("Qa",))
    begins = (
        takes(_REPLY, _USER, shown=("Ab", "Ub"))
        and (not calls or takes(*called[1:], shown=("Kb",)))
        and (not system or (takes(_SYSTEM, tools=[_TOOL], shown=("Qa",)) and takes(_SYSTEM, shown=("Qa",))))
    )
    return TemplateRules(
        developer="developer" in source
        and takes({**_OTHER_SYSTEM, "role": "developer"}, _USER, shown=("Qb",)),
        system=system,
        systems=takes(_SYSTEM, _OTHER_SYSTEM, _USER, shown=("Qa", "Qb")),
        late_system=takes(_USER, _REPLY, _OTHER_SYSTEM, _USER, shown=("Qb",))
        and (not system or takes(_SYSTEM, _USER, _REPLY, _OTHER_SYSTEM, _USER, shown=("Qa", "Qb"))),
        repeats=takes(_USER, _USER, _REPLY, _REPLY, _USER),
        user_after_tool=not calls or takes(*called, _USER, shown=("Kb",)),
        empty_replies=takes(_USER, {**_REPLY, "content": ""}, _USER),
        many_calls=not calls or takes(*made("c", "d"), shown=("Kc", "Kd")),
        thought_beside_text=not calls or takes(*made("c", thought=True)),
        text_arguments=calls and text,
        short_ids=calls and short,
        bare_tools=all(takes(_USER, tools=[tool]) for tool in _BARE_TOOLS),
        person_first=not begins,
        calls=calls,
        results=takes(*called, shown=("Kb",)),
        lone_results=takes(_USER, called[-1], _USER, shown=("Kb",)),
        named_ids=calls
        and takes(*called, shown=(called[-1]["tool_call_id"],))
        and not takes(*called[:2], shown=("Fc",)),
    )


def _takes(
    render: Render,
    *messages: dict[str, Any],
    shown: Sequence[str] = (),
    tools: Sequence[Mapping[str, Any]] = (),
) -> bool:
    """Whether the template renders these, with every text that must be shown."""
    try:
        text = render(messages, tools)
    except Exception:  # a template is foreign code and may raise anything
        return False
    return all(part in text for part in shown)


def _made(*names: str, short: bool, text: bool, thought: bool = False) -> list[dict[str, Any]]:
    ids = {name: name * SHORT_ID if short else f"call_{name}_1" for name in names}
    calls = []
    for name, id in ids.items():
        arguments = f'{{"K{name}": "V{name}"}}' if text else {f"K{name}": f"V{name}"}
        function = {"name": f"F{name}", "arguments": arguments}
        calls.append({"id": id, "type": "function", "function": function})
    message = {"role": "assistant", "content": "Ab" if thought else "", "tool_calls": calls}
    if thought:
        message |= dict.fromkeys(REASONING_KEYS, "Tb")
    results = [
        {"role": "tool", "content": "Kb", "name": f"F{name}", "tool_call_id": id} for name, id in ids.items()
    ]
    return [_USER, message, *results]


def in_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def template_message(message: Message, rules: TemplateRules) -> dict[str, Any]:
    """A message in the form of templates: call arguments as an object or text, `content` never null, and
    reasoning under the first of `REASONING_KEYS`.

    Templates iterate over arguments by name: anything but an object, such as the text of a `custom` call,
    becomes the one argument `input`. JSON text has one spacing.
    """
    data = message.to_dict()
    data["content"] = in_parts(message.content or "") if rules.parts else message.content or ""
    for call in data.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        with suppress(ValueError, RecursionError):
            arguments = json.loads(without_halves(arguments))
        if not isinstance(arguments, dict):
            arguments = {"input": arguments}
        text = rules.text_arguments
        call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False) if text else arguments
    return data


def template_tool(tool: Mapping[str, Any], rules: TemplateRules) -> dict[str, Any]:
    """A tool as the client sent it, with default fields if the template needs them."""
    function = tool.get("function")
    if rules.bare_tools or not isinstance(function, Mapping):
        return dict(tool)
    filled = _filled(function, DEFAULT_FIELDS)
    if isinstance(filled["parameters"], Mapping):
        filled["parameters"] = _filled(filled["parameters"], DEFAULT_FIELDS["parameters"])
    return {**tool, "function": filled}


def _filled(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in given.items() if value is not None}
    return known | {key: value for key, value in defaults.items() if key not in known}
