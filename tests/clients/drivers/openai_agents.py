"""openai-agents, streamed, on the Responses API."""

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from common import MESSAGES, SYSTEM, URL, history, keep, run_command
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
agent = Agent(
    name="notes",
    instructions=SYSTEM,
    model=OpenAIResponsesModel(model="afterwit", openai_client=client),
    tools=[function_tool(run_command)],
)


async def main() -> None:
    items = history()
    for text in MESSAGES:
        result = Runner.run_streamed(agent, [*items, {"role": "user", "content": text}])
        async for _ in result.stream_events():
            pass
        print(result.final_output)
        items = result.to_input_list()
    keep(items)


asyncio.run(main())
