"""Plain HTTP on the Responses API, streamed: every event and every stored response has the form that Open
Responses gives it. Its types are generated from that specification."""

import json
from typing import Any
from urllib.request import Request, urlopen

from common import DESCRIPTION, MESSAGES, PARAMETERS, SYSTEM, URL, history, keep, run_command
from openresponses_types import types

EVENTS = {
    kind.value: form
    for name, form in vars(types).items()
    if name.endswith("StreamingEvent")
    for kind in form.model_fields["type"].annotation
}
TOOL = {"type": "function", "name": "run_command", "description": DESCRIPTION, "parameters": PARAMETERS}


def ask(items: list[Any], previous: str | None) -> dict[str, Any]:
    """The response, from the last event of its stream."""
    body = {"input": items, "tools": [TOOL], "previous_response_id": previous, "stream": True}
    data = json.dumps({"model": "afterwit", "instructions": SYSTEM, **body}).encode()
    event: dict[str, Any] = {}
    with urlopen(Request(f"{URL}/responses", data, {"content-type": "application/json"})) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                event = json.loads(line.removeprefix(b"data: "))
                EVENTS[event["type"]].model_validate(event)
    assert event["type"] == "response.completed"
    with urlopen(f"{URL}/responses/{event['response']['id']}") as stored:
        types.ResponseResource.model_validate_json(stored.read())
    return event["response"]


previous = history()[0] if history() else None
for text in MESSAGES:
    items: list[Any] = [{"type": "message", "role": "user", "content": text}]
    while items:
        response = ask(items, previous)
        previous, items = response["id"], []
        for item in response["output"]:
            if item["type"] == "message":
                print("".join(part["text"] for part in item["content"]), flush=True)
            elif item["type"] == "function_call":
                output = run_command(**json.loads(item["arguments"]))
                items.append({"type": "function_call_output", "call_id": item["call_id"], "output": output})
keep([previous])
