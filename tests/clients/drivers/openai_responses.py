"""The openai SDK on the Responses API, streamed; the second message goes on by `previous_response_id`."""

import json

from common import DESCRIPTION, MESSAGES, PARAMETERS, SYSTEM, URL, history, keep, run_command
from openai import OpenAI

client = OpenAI(base_url=URL, api_key="none", max_retries=0)
tool = {"type": "function", "name": "run_command", "description": DESCRIPTION, "parameters": PARAMETERS}
previous = history()[0] if history() else None
for text in MESSAGES:
    items = [{"role": "user", "content": text}]
    while True:
        with client.responses.stream(
            model="afterwit",
            instructions=SYSTEM,
            input=items,
            tools=[tool],
            previous_response_id=previous,
        ) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    print(event.delta, end="", flush=True)
            response = stream.get_final_response()
        previous = response.id
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            print()
            break
        items = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": run_command(**json.loads(call.arguments)),
            }
            for call in calls
        ]
keep([previous])
