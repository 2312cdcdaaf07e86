"""Plain HTTP on the Responses API, whole and streamed: each kind of request that the compliance program of
Open Responses sends. Requests, responses and events have the forms of types generated from the specification.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any
from urllib.request import Request, urlopen

from openresponses_types import types

URL = sys.argv[1]
EVENTS = {
    kind.value: form
    for name, form in vars(types).items()
    if name.endswith("StreamingEvent")
    for kind in form.model_fields["type"].annotation
}
WHERE = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
TOOL = {"type": "function", "name": "weather", "description": "The weather at a place.", "parameters": WHERE}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
FILE = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjE="}


def said(role: str, content: Any, **more: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


ASKED = said("user", "Which city is it?")
INPUTS = (
    "Which city is it?",
    [ASKED],
    [said("system", "You answer in one word."), ASKED],
    [said("developer", "You answer in one word."), ASKED],
    [said("user", "I live in Rome."), said("assistant", "Good to know."), ASKED],
    [said("assistant", "Rome?", phase="commentary"), said("assistant", "Rome.", phase="final_answer"), ASKED],
    [said("user", [{"type": "input_text", "text": "Which city is it?"}, PICTURE])],
    [said("user", [{"type": "input_text", "text": "Which city is it?"}, FILE])],
)
QUESTIONS = (
    ("How is the weather in Rome?", "auto"),
    ("Find the weather by the tool.", {"type": "function", "name": TOOL["name"]}),
)


def ask(*, stream: bool, **body: Any) -> dict[str, Any]:
    """The completed response, in the form of the specification; so is the one that the server stored."""
    body |= {"model": "afterwit", "stream": stream}
    types.CreateResponseBody.model_validate(body)
    request = Request(f"{URL}/responses", json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request) as answer:
        response = last_response(answer) if stream else json.load(answer)
    with urlopen(f"{URL}/responses/{response['id']}") as answer:
        stored = json.load(answer)
    for each in (response, stored):
        types.ResponseResource.model_validate(each)
        assert each["status"] == "completed", each
    assert stored["output"] == response["output"]
    return response


def last_response(lines: Iterable[bytes]) -> dict[str, Any]:
    """The response of a stream's last event; every event has its form and its number."""
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]
    for event in events:
        EVENTS[event["type"]].model_validate(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    return events[-1]["response"]


def last_item(response: dict[str, Any], kind: str) -> dict[str, Any]:
    item = response["output"][-1]
    assert (item["type"], item["status"]) == (kind, "completed"), item
    return item


for stream in (False, True):
    for given in INPUTS:
        first = ask(stream=stream, input=given)
        last_item(first, "message")
    second = ask(stream=stream, previous_response_id=first["id"], input="And the country?")
    assert second["previous_response_id"] == first["id"]
    last_item(second, "message")
    for question, choice in QUESTIONS:
        called = ask(stream=stream, input=question, tools=[TOOL], tool_choice=choice)
        call = last_item(called, "function_call")
        assert (call["name"], json.loads(call["arguments"])) == ("weather", {"location": "Rome"})
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."}
        answered = ask(stream=stream, previous_response_id=called["id"], input=[result])
        last_item(answered, "message")
