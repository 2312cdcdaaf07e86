"""The anthropic SDK, streamed."""

from anthropic import Anthropic
from common import DESCRIPTION, MESSAGES, PARAMETERS, ROOT, SYSTEM, history, keep, run_command

client = Anthropic(base_url=ROOT, api_key="none", max_retries=0)
tool = {"name": "run_command", "description": DESCRIPTION, "input_schema": PARAMETERS}
messages = history()
for text in MESSAGES:
    messages.append({"role": "user", "content": text})
    while True:
        with client.messages.stream(
            model="afterwit", max_tokens=1000, system=SYSTEM, messages=messages, tools=[tool]
        ) as stream:
            for piece in stream.text_stream:
                print(piece, end="", flush=True)
            message = stream.get_final_message()
        messages.append({"role": "assistant", "content": message.to_dict()["content"]})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            print()
            break
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": run_command(**call.input)}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
keep(messages)
