"""pydantic-ai over OpenAI chat, streamed."""

import asyncio

from common import HISTORY, MESSAGES, SYSTEM, URL, run_command
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=URL, api_key="none")
agent = Agent(OpenAIChatModel("afterwit", provider=provider), instructions=SYSTEM, tools=[run_command])


async def main() -> None:
    messages = ModelMessagesTypeAdapter.validate_json(HISTORY.read_bytes()) if HISTORY.exists() else []
    for text in MESSAGES:
        async with agent.run_stream(text, message_history=messages) as result:
            async for piece in result.stream_text(delta=True):
                print(piece, end="", flush=True)
        print()
        messages = result.all_messages()
    HISTORY.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))


asyncio.run(main())
