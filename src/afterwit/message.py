"""Messages and conversations, in the one form that all layers share (OpenAI chat's, without variants)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SYSTEM = ("system", "developer")
"""Roles of instructions."""

ROLES = (*SYSTEM, "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool; `arguments` is the JSON text as it was written."""

    id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCall:
        function = data["function"]
        return cls(id=data["id"], name=function["name"], arguments=function["arguments"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `content` is its text; None if there is none (only tool calls)."""

    role: str
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    breaks: tuple[int, ...] = field(default=(), compare=False)
    """The places in `content` where a client's further parts begin. For binding; not stored."""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role {self.role!r} is none of {', '.join(ROLES)}")

    def to_dict(self) -> dict[str, Any]:
        """OpenAI chat's JSON; absent fields are left out, except `content`."""
        data: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            data["reasoning_content"] = self.reasoning
        if self.tool_calls:
            data["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            data["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            data["name"] = self.name
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """The inverse of `to_dict`. Foreign JSON is parsed by the dialects."""
        return cls(
            role=data["role"],
            content=data.get("content"),
            reasoning=data.get("reasoning_content"),
            tool_calls=tuple(ToolCall.from_dict(call) for call in data.get("tool_calls", ())),
            tool_call_id=data.get("tool_call_id"),
            name=data.get("name"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Everything the chat template is given: its rendering is the prompt."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """OpenAI tool objects, keys in the client's order: templates print them as they are."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    """Extra variables of the template, such as `enable_thinking`."""
    instructed: bool = False
    """The first message is the request's own instructions: a response that follows does not inherit it."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("a conversation needs at least one message")

    @property
    def characters(self) -> int:
        """Characters of the contents and of the calls' arguments."""
        return sum(
            len(message.content or "") + sum(len(call.arguments) for call in message.tool_calls)
            for message in self.messages
        )

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "messages": [message.to_dict() for message in self.messages],
            "tools": [dict(tool) for tool in self.tools],
            "template_args": dict(self.template_args),
        }
        return {**data, "instructed": True} if self.instructed else data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conversation:
        return cls(
            messages=tuple(Message.from_dict(message) for message in data["messages"]),
            tools=tuple(data["tools"]),
            template_args=data["template_args"],
            instructed=data.get("instructed", False),
        )


def observed(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The system's messages after a response, as results of tools.

    Some clients report the results of the model's commands there. If people or tools speak as well, the
    system's messages are only reminders.
    """
    return tuple(replace(one, role="tool") for one in messages if one.role in SYSTEM and one.content)


def one_line(message: Message, width: int) -> str:
    """A message in one line of at most `width` characters: its calls, then its text."""
    parts = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    text = " ".join(" ".join([*parts, message.content or ""]).split())
    return text if len(text) <= width else text[: width - 1] + "…"
