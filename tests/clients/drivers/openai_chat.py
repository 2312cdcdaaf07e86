"""The openai SDK on chat completions, streamed."""

import json

from common import DESCRIPTION, MESSAGES, PARAMETERS, SYSTEM, URL, history, keep, run_command
from openai import OpenAI

client = OpenAI(base_url=URL, api_key="none", max_retries=0)
function = {"name": "run_command", "description": DESCRIPTION, "parameters": PARAMETERS}
messages = history() or [{"role": "system", "content": SYSTEM}]
for text in MESSAGES:
    messages.append({"role": "user", "content": text})
    while True:
        with client.chat.completions.stream(
            model="afterwit", messages=messages, tools=[{"type": "function", "function": function}]
        ) as stream:
            for event in stream:
                if event.type == "content.delta":
                    print(event.delta, end="", flush=True)
            message = stream.get_final_completion().choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            print()
            break
        for call in message.tool_calls:
            result = run_command(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
keep(messages)
