"""What a chat template takes: found out by rendering small conversations with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], str]
"""Messages and tools as the template gets them to its text. Raises anything if the template refuses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRules:
    """What must be folded. The defaults are those of a template that takes everything."""

    parts: bool = False
    """Takes a content as a list of parts only."""
    developer: bool = True
    """Takes the role `developer`."""
    system: bool = True
    """Takes a system message at the beginning."""
    systems: bool = True
    """Takes several of them."""
    late_system: bool = True
    """Takes one later on."""
    repeats: bool = True
    """Takes two messages of a person, or of the model, in a row."""
    user_after_tool: bool = True
    """Takes a person's message directly behind a tool's result."""
    many_calls: bool = True
    """Takes several calls in one message."""
    thought_beside_text: bool = True
    """Takes reasoning and content beside a call."""
    text_arguments: bool = False
    """Takes the arguments of a call as their JSON text, not as an object."""
    short_ids: bool = False
    """Takes ids of tool calls only if they are nine letters and digits."""
    bare_tools: bool = True
    """Takes tools without a description or parameters."""
    person_first: bool = False
    """Takes a reply, a call or a system message only after a person's message."""
    results: bool = True
    """Takes the result of a tool."""
    lone_results: bool = True
    """Takes the result of a call that is not in the conversation."""
    named_ids: bool = False
    """Shows a call by its id alone, which must hold the name and a number, as `functions.read:0`."""


def rules_of(render: Render, source: str) -> TemplateRules:
    """The rules of the template with this source."""

    def takes(
        *messages: dict[str, Any], shown: Sequence[str] = (), tools: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        return _takes(partial(render, messages, tools), shown)

    developer = "developer" in source
    if not takes(_USER, shown=("Ub",)):
        if takes({**_USER, "content": in_parts("Ub")}, shown=("Ub",)):
            return replace(rules_of(partial(_render_parts, render), source), parts=True)
        return TemplateRules(developer=developer)
    calls = _CallProbe(takes)
    return TemplateRules(
        developer=developer,
        system=takes(_says("system", "Qa"), _USER, shown=("Qa",)),
        systems=takes(_says("system", "Qa"), _says("system", "Qb"), _USER, shown=("Qa", "Qb")),
        late_system=takes(_USER, _REPLY, _says("system", "Qa"), _USER, shown=("Qa",)),
        repeats=takes(_USER, _USER, _REPLY, _REPLY, _USER),
        user_after_tool=not calls.works or takes(*calls.made("c"), _USER, shown=("Kb",)),
        many_calls=not calls.works or takes(*calls.made("c", "d"), shown=("Kc", "Kd")),
        thought_beside_text=not calls.works or takes(*calls.made("c", thought=True)),
        text_arguments=calls.text,
        short_ids=calls.short,
        bare_tools=takes(_USER, tools=[_BARE]) and takes(_USER, tools=[_NULL]),
        person_first=not _begins(takes, calls),
        results=takes(*calls.made("c"), shown=("Kb",)),
        lone_results=takes(_USER, calls.made("c")[-1], _USER, shown=("Kb",)),
        named_ids=calls.works and takes(*calls.made("c"), shown=(calls.id_of("c"),)) and not calls.shows_name,
    )


def in_parts(text: str) -> list[dict[str, str]]:
    """A content as the one part that it is."""
    return [{"type": "text", "text": text}]


def _render_parts(
    render: Render, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> str:
    return render([{**message, "content": in_parts(message["content"])} for message in messages], tools)


def _begins(takes: Callable[..., bool], calls: _CallProbe) -> bool:
    """Whether a conversation may begin with anything."""
    system = _says("system", "Qa")
    return (
        takes(_REPLY, _USER, shown=("Ab", "Ub"))
        and (not calls.works or takes(*calls.made("c")[1:], shown=("Kb",)))
        and (not takes(system, _USER, shown=("Qa",)) or takes(system, tools=[_TOOL], shown=("Qa",)))
        and (not takes(system, _USER, shown=("Qa",)) or takes(system, shown=("Qa",)))
    )


def _says(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


_BARE = {"type": "function", "function": {"name": "Fa"}}
_NULL = {"type": "function", "function": {"name": "Fa", "description": None, "parameters": None}}
_TOOL = {
    "type": "function",
    "function": {"name": "Fa", "description": "Da", "parameters": {"type": "object", "properties": {}}},
}
_USER, _REPLY = _says("user", "Ub"), _says("assistant", "Ab")


def _takes(render: Callable[[], str], shown: Sequence[str]) -> bool:
    """Whether the template renders, with every text that is to be seen."""
    try:
        text = render()
    except Exception:  # a template is foreign code and may raise anything
        return False
    return all(part in text for part in shown)


class _CallProbe:
    """How the template takes a call: the first of the known ways that it renders."""

    def __init__(self, takes: Callable[..., bool]) -> None:
        self.text = self.short = False
        self.works = self.shows_name = False
        for short in (False, True):
            for text in (False, True):
                self.text, self.short = text, short
                shown = ('{"Kc": "Vc"}',) if text else ("Kc", "Vc")
                if takes(*self.made("c"), shown=shown) and not takes(*self.made("c"), shown=("{'Kc'",)):
                    self.works = True
                    self.shows_name = takes(*self.made("c")[:2], shown=("Fc",))
                    return
        self.text = self.short = False

    def made(self, *names: str, thought: bool = False) -> list[dict[str, Any]]:
        """A request, a message with these calls, and their results."""
        calls = [self._call(name) for name in names]
        message = {"role": "assistant", "content": "Ab" if thought else "", "tool_calls": calls}
        if thought:
            message |= {"reasoning_content": "Tb", "thinking": "Tb", "reasoning": "Tb"}
        results = [
            {"role": "tool", "content": "Kb", "name": f"F{name}", "tool_call_id": self.id_of(name)}
            for name in names
        ]
        return [_USER, message, *results]

    def _call(self, name: str) -> dict[str, Any]:
        arguments = f'{{"K{name}": "V{name}"}}' if self.text else {f"K{name}": f"V{name}"}
        function = {"name": f"F{name}", "arguments": arguments}
        return {"id": self.id_of(name), "type": "function", "function": function}

    def id_of(self, name: str) -> str:
        """The id of the call with this name."""
        return name * 9 if self.short else f"call_{name}_1"
