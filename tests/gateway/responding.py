"""The Responses API over a test's gateway."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.gateway.serving import TOOL, Serving

FUNCTION = {"type": "function", **TOOL["function"]}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "notes/todo.txt"}}\n</tool_call>'
THOUGHT = "<think>\nWhich file?\n</think>\n\n"


async def respond(gateway: Serving, input: Any = "Open it.", **more: Any) -> httpx.Response:
    return await gateway.http.post("/responses", json={"model": "tiny", "input": input, **more})


async def events(gateway: Serving, input: Any = "Open it.", **more: Any) -> list[dict[str, Any]]:
    """The events of a stream; their names and numbers are checked."""
    answer = await respond(gateway, input, stream=True, **more)
    assert answer.status_code == 200, answer.text
    read = parse_events(answer.text)
    assert [event["sequence_number"] for event in read] == list(range(len(read)))
    return read


def parse_events(text: str) -> list[dict[str, Any]]:
    *blocks, rest = text.split("\n\n")
    assert rest == ""
    return [_event(*block.split("\n")) for block in blocks]


def _event(name: str, data: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    return event


def folded(read: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sum of the deltas, in the form of a body's output; the ends of items are checked against it."""
    items: list[dict[str, Any]] = []
    for event in read:
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(items)
                items.append(event["item"])
            case "response.content_part.added":
                items[event["output_index"]]["content"].append(event["part"])
            case "response.reasoning_summary_part.added":
                items[event["output_index"]]["summary"].append(event["part"])
            case "response.output_text.delta":
                part = items[event["output_index"]]["content"][event["content_index"]]
                part["text"] += event["delta"]
                part["logprobs"] += event["logprobs"]
            case "response.reasoning_summary_text.delta":
                items[event["output_index"]]["summary"][event["summary_index"]]["text"] += event["delta"]
            case "response.function_call_arguments.delta":
                items[event["output_index"]]["arguments"] += event["delta"]
            case "response.output_item.done":
                item = items[event["output_index"]]
                assert item | {"status": event["item"]["status"]} == event["item"]
                items[event["output_index"]] = event["item"]
    return items
