"""Requests in the three dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from afterwit.turn import Message
from experiments.replay.traffic import Ask

CHAT, RESPONSES, MESSAGES = "chat", "responses", "messages"
PATHS = {CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses", MESSAGES: "/v1/messages"}
LIMITS = {CHAT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}
"""How each dialect calls the most tokens of a response."""
ANY = {"type": "object"}


def body_of(ask: Ask) -> Mapping[str, Any]:
    """The body that a client of the ask's dialect posts, without the model's name."""
    if ask.body is not None:
        return ask.body
    tools = {"tools": tools_of(ask.tools, ask.dialect)} if ask.tools else {}
    match ask.dialect:
        case "responses":
            said = {"input": [item for message in ask.messages for item in _items(message)]}
        case "messages":
            said = _anthropic(ask.messages)
        case _:
            said = {"messages": [_chat(message) for message in ask.messages]}
    return {**said, **tools, "stream": ask.streamed}


def tools_of(names: Sequence[str], dialect: str) -> list[dict[str, Any]]:
    """Tools of these names, in a dialect's form."""
    match dialect:
        case "responses":
            return [{"type": "function", "name": name, "parameters": ANY} for name in names]
        case "messages":
            return [{"name": name, "input_schema": ANY} for name in names]
    return [{"type": "function", "function": {"name": name, "parameters": ANY}} for name in names]


def _chat(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.reasoning is not None:
        made["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    return made


def _items(message: Message) -> Iterator[dict[str, Any]]:
    """The items of a message of the Responses API."""
    if message.role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.tool_call_id,
            "output": message.content or "",
        }
        return
    if message.reasoning is not None:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        yield {"type": "reasoning", "id": "rs_1", "summary": summary}
    if message.content:
        kind = "output_text" if message.role == "assistant" else "input_text"
        yield {
            "type": "message",
            "role": message.role,
            "content": [{"type": kind, "text": message.content}],
        }
    for call in message.tool_calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _anthropic(messages: Sequence[Message]) -> dict[str, Any]:
    """System text apart; results and words of the user in one message."""
    system = [message.content or "" for message in messages if message.role == "system"]
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"] += _blocks(message)
    return {"system": "\n".join(system), "messages": turns}


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {
            "type": "tool_result",
            "tool_use_id": message.tool_call_id,
            "content": message.content or "",
        }
        return
    if message.reasoning is not None:
        yield {"type": "thinking", "thinking": message.reasoning, "signature": "c2ln"}
    if message.content:
        yield {"type": "text", "text": message.content}
    for call in message.tool_calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
