"""A chat template, compiled and run as transformers runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from afterwit.errors import SettingError
from afterwit.message import SYSTEM, Message
from afterwit.text import without_halves

MOST_DECIDED = 4096
"""Cached attributes of types. A template names a few dozen."""

_OF_DICTS = frozenset(dir(dict))

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], str]
"""Messages and tools, in the template's form, to its text. Raises anything if the template refuses them."""

JOINT = "\n\n"
"""Between two texts that become one."""

SHORT_ID = 9
"""Letters and digits."""

_BARE = {"type": "function", "function": {"name": "Fa"}}
_NULL = {"type": "function", "function": {"name": "Fa", "description": None, "parameters": None}}
_TOOL = {
    "type": "function",
    "function": {"name": "Fa", "description": "Da", "parameters": {"type": "object", "properties": {}}},
}

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Each template reads one of these."""

DEFAULT_FIELDS = {"description": "", "parameters": {"type": "object", "properties": {}}}
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


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


class Template:
    """One template. Raises jinja2.TemplateSyntaxError if it does not parse."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled = _environment().from_string(source)

    def render(self, variables: Mapping[str, Any]) -> str:
        return self._compiled.render(variables)


def read_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """A model folder's templates by name, "default" among them. A file wins over the tokenizer's config.

    Raises SettingError if there is none.
    """
    named = _from_files(folder) or _from_value(tokenizer_config.get("chat_template"))
    if "default" not in named:
        raise SettingError(
            f"{folder} has no chat template: a base model cannot be talked to, take its chat version"
        )
    return named


def _from_files(folder: Path) -> dict[str, str]:
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    if (folder / "chat_template.json").is_file():
        data = json.loads((folder / "chat_template.json").read_text(encoding="utf-8"))
        return _from_value(data.get("chat_template"))
    return {}


def _from_value(value: Any) -> dict[str, str]:
    """`chat_template` is one template or a list of named ones."""
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list):
        return {entry["name"]: entry["template"] for entry in value}
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRules:
    """The messages that a template accepts. By default it accepts everything."""

    parts: bool = False
    """Accepts a content only as a list of parts."""
    developer: bool = True
    """Accepts the role `developer`."""
    system: bool = True
    """Accepts a system message at the beginning."""
    systems: bool = True
    """Accepts several system messages there."""
    late_system: bool = True
    """Accepts a system message later on."""
    repeats: bool = True
    """Accepts two messages of the user, or of the model, in a row."""
    user_after_tool: bool = True
    """Accepts a user message directly after a tool's result."""
    many_calls: bool = True
    """Accepts several calls in one message."""
    thought_beside_text: bool = True
    """Accepts reasoning and content next to a call."""
    text_arguments: bool = False
    """Accepts the arguments of a call as JSON text, not as an object."""
    short_ids: bool = False
    """Accepts ids of tool calls only if they are nine letters and digits."""
    bare_tools: bool = True
    """Accepts tools without a description or parameters."""
    person_first: bool = False
    """Accepts a reply, a call or a system message only after a user message."""
    results: bool = True
    """Accepts the result of a tool."""
    lone_results: bool = True
    """Accepts the result of a call that is not in the conversation."""
    named_ids: bool = False
    """Prints a call by its id alone, which must hold the name and a number, as `functions.read:0`."""


def folded(messages: Sequence[Message], rules: TemplateRules) -> list[Message]:
    """The messages in a form that a template with these rules accepts."""
    found = _named(messages)
    if not rules.developer:
        found = [replace(one, role="system") if one.role == "developer" else one for one in found]
    found = _instructed(found, rules)
    if not rules.results:
        found = [_in_words(message) for message in found]
    elif not rules.lone_results:
        found = list(_lone_results_in_words(found))
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
    if not rules.thought_beside_text:
        found = [_thought_alone(message) for message in found]
    if rules.short_ids:
        return _with_ids(found, short_id)
    if rules.named_ids:
        ids = {one.tool_call_id: one.tool_call_id for one in found if one.tool_call_id is not None}
        calls = (call for message in found for call in message.tool_calls)
        ids |= {call.id: f"functions.{call.name}:{place}" for place, call in enumerate(calls)}
        return _with_ids(found, ids.__getitem__)
    return found


def _named(messages: Sequence[Message]) -> list[Message]:
    """Results of tools with the id and the name of their calls, which clients leave out or drop later.

    A result without an id belongs to the first call before it without a result.
    """
    names: dict[str, str] = {}
    waiting: list[str] = []
    named = []
    for message in messages:
        if message.tool_calls:
            waiting = [call.id for call in message.tool_calls]
            names |= {call.id: call.name for call in message.tool_calls}
        if message.role == "tool":
            id = message.tool_call_id or (waiting[0] if waiting else "")
            waiting = [other for other in waiting if other != id]
            message = replace(message, tool_call_id=id, name=names.get(id, message.name))
        named.append(message)
    return named


def _leading(messages: Sequence[Message]) -> list[Message]:
    """The system messages at the beginning."""
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


def _in_words(message: Message) -> Message:
    """Calls in the model's words, and their results in the user's."""
    if message.role == "tool":
        head = f"Result of {message.name}:\n" if message.name else ""
        return Message(role="user", content=head + (message.content or ""))
    calls = (f"Called {call.name}: {call.arguments}" for call in message.tool_calls)
    content = JOINT.join(text for text in (message.content, *calls) if text)
    return replace(message, content=content, tool_calls=()) if message.tool_calls else message


def _lone_results_in_words(messages: Sequence[Message]) -> Iterator[Message]:
    called: set[str | None] = set()
    for message in messages:
        called.update(call.id for call in message.tool_calls)
        lone = message.role == "tool" and message.tool_call_id not in called
        yield _in_words(message) if lone else message


def _single_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Each call in a message of its own, followed by its result."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        results = list(takewhile(lambda result: result.role == "tool", messages[place:]))
        place += len(results)
        for index, call in enumerate(message.tool_calls):
            said = message if index == 0 else replace(message, content=None, reasoning=None)
            yield replace(said, tool_calls=(call,))
            yield from (result for result in results if result.tool_call_id == call.id)
        ids = {call.id for call in message.tool_calls}
        yield from (result for result in results if result.tool_call_id not in ids)


def _answered_tools(messages: Sequence[Message]) -> Iterator[Message]:
    """An empty reply between a tool's result and a user message."""
    before = ""
    for message in messages:
        if before == "tool" and message.role == "user":
            yield Message(role="assistant", content="")
        before = message.role
        yield message


def _merged(messages: Sequence[Message], belong: Callable[[Message, Message], bool]) -> list[Message]:
    """Neighbours that belong together as one message."""
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


def _thought_alone(message: Message) -> Message:
    """Content next to reasoning and calls as a part of the reasoning."""
    if not (message.tool_calls and message.content and message.reasoning):
        return message
    return replace(message, reasoning=_joined(message.reasoning, message.content), content=None)


def _joined(one: str | None, other: str | None) -> str | None:
    return JOINT.join(text for text in (one, other) if text) or (one if one is not None else other)


def _with_ids(messages: Sequence[Message], id_of: Callable[[str], str]) -> list[Message]:
    """The messages with other ids of calls, equal in a call and its result."""
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


def rules_of(render: Render, source: str) -> TemplateRules:
    """The rules of the template with this source, found by rendering small conversations."""

    def takes(
        *messages: dict[str, Any], shown: Sequence[str] = (), tools: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Whether the template renders these, with every text that must be shown."""
        try:
            text = render(messages, tools)
        except Exception:  # a template is foreign code and may raise anything
            return False
        return all(part in text for part in shown)

    developer = "developer" in source
    if not takes(_USER, shown=("Ub",)):
        if not takes({**_USER, "content": in_parts("Ub")}, shown=("Ub",)):
            return TemplateRules(developer=developer)

        def render_parts(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
            return render([{**one, "content": in_parts(one["content"])} for one in messages], tools)

        return replace(rules_of(render_parts, source), parts=True)
    calls = _CallProbe(takes)
    system = _says("system", "Qa")
    has_system = takes(system, _USER, shown=("Qa",))
    begins = (
        takes(_REPLY, _USER, shown=("Ab", "Ub"))
        and (not calls.works or takes(*calls.made("c")[1:], shown=("Kb",)))
        and (not has_system or (takes(system, tools=[_TOOL], shown=("Qa",)) and takes(system, shown=("Qa",))))
    )
    return TemplateRules(
        developer=developer,
        system=has_system,
        systems=takes(system, _says("system", "Qb"), _USER, shown=("Qa", "Qb")),
        late_system=takes(_USER, _REPLY, system, _USER, shown=("Qa",)),
        repeats=takes(_USER, _USER, _REPLY, _REPLY, _USER),
        user_after_tool=not calls.works or takes(*calls.made("c"), _USER, shown=("Kb",)),
        many_calls=not calls.works or takes(*calls.made("c", "d"), shown=("Kc", "Kd")),
        thought_beside_text=not calls.works or takes(*calls.made("c", thought=True)),
        text_arguments=calls.text,
        short_ids=calls.short,
        bare_tools=takes(_USER, tools=[_BARE]) and takes(_USER, tools=[_NULL]),
        person_first=not begins,
        results=takes(*calls.made("c"), shown=("Kb",)),
        lone_results=takes(_USER, calls.made("c")[-1], _USER, shown=("Kb",)),
        named_ids=calls.works and takes(*calls.made("c"), shown=(calls.id_of("c"),)) and not calls.shows_name,
    )


def _says(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


_USER, _REPLY = _says("user", "Ub"), _says("assistant", "Ab")


class _CallProbe:
    """The first of the known forms of a call that the template renders."""

    def __init__(self, takes: Callable[..., bool]) -> None:
        self.works = self.shows_name = False
        for self.short, self.text in product((False, True), repeat=2):
            shown = ('{"Kc": "Vc"}',) if self.text else ("Kc", "Vc")
            if takes(*self.made("c"), shown=shown) and not takes(*self.made("c"), shown=("{'Kc'",)):
                self.works = True
                self.shows_name = takes(*self.made("c")[:2], shown=("Fc",))
                return
        self.text = self.short = False

    def made(self, *names: str, thought: bool = False) -> list[dict[str, Any]]:
        """A request, a message with these calls, and their results."""
        calls = []
        for name in names:
            arguments = f'{{"K{name}": "V{name}"}}' if self.text else {f"K{name}": f"V{name}"}
            function = {"name": f"F{name}", "arguments": arguments}
            calls.append({"id": self.id_of(name), "type": "function", "function": function})
        message = {"role": "assistant", "content": "Ab" if thought else "", "tool_calls": calls}
        if thought:
            message |= dict.fromkeys(REASONING_KEYS, "Tb")
        results = [
            {"role": "tool", "content": "Kb", "name": f"F{name}", "tool_call_id": self.id_of(name)}
            for name in names
        ]
        return [_USER, message, *results]

    def id_of(self, name: str) -> str:
        return name * SHORT_ID if self.short else f"call_{name}_1"


def in_parts(text: str) -> list[dict[str, str]]:
    """A content as a list of one part."""
    return [{"type": "text", "text": text}]


def template_message(message: Message, rules: TemplateRules) -> dict[str, Any]:
    """A message in the form of templates: call arguments as an object or text, `content` never null."""
    data = message.to_dict()
    data["content"] = in_parts(message.content or "") if rules.parts else message.content or ""
    if message.reasoning is not None:
        data |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    for call in data.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"], rules)
    return data


def _arguments(text: str, rules: TemplateRules) -> Any:
    """The arguments as an object, or as JSON text with one spacing.

    Templates iterate over them by name: anything but an object, such as the text of a `custom` call, becomes
    the one argument `input`.
    """
    try:
        parsed = json.loads(without_halves(text))
    except (ValueError, RecursionError):
        parsed = text
    if not isinstance(parsed, dict):
        parsed = {"input": parsed}
    return json.dumps(parsed, ensure_ascii=False) if rules.text_arguments else parsed


def template_tool(tool: Mapping[str, Any], rules: TemplateRules) -> dict[str, Any]:
    """A tool as the client sent it, with default fields if the template needs them."""
    function = tool.get("function")
    if rules.bare_tools or not isinstance(function, Mapping):
        return dict(tool)
    missing = {key: value for key, value in DEFAULT_FIELDS.items() if function.get(key) is None}
    return {**tool, "function": {**function, **missing}}
