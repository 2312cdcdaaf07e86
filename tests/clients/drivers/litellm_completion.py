"""litellm, streamed."""

import json

import litellm
from common import DESCRIPTION, MESSAGES, PARAMETERS, SYSTEM, URL, history, keep, run_command

function = {"name": "run_command", "description": DESCRIPTION, "parameters": PARAMETERS}
messages = history() or [{"role": "system", "content": SYSTEM}]
for text in MESSAGES:
    messages.append({"role": "user", "content": text})
    while True:
        chunks = []
        for chunk in litellm.completion(
            model="openai/afterwit",
            api_base=URL,
            api_key="none",
            messages=messages,
            tools=[{"type": "function", "function": function}],
            stream=True,
        ):
            chunks.append(chunk)
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        message = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print()
            break
        for call in message.tool_calls:
            result = run_command(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
keep(messages)
