"""LangChain's agent (LangGraph) over OpenAI chat, streamed."""

import json

from common import HISTORY, MESSAGES, SYSTEM, URL, run_command
from langchain.agents import create_agent
from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="afterwit", base_url=URL, api_key="none", max_retries=0, streaming=True)
agent = create_agent(model, tools=[run_command], system_prompt=SYSTEM)

messages = messages_from_dict(json.loads(HISTORY.read_text())) if HISTORY.exists() else []
for text in MESSAGES:
    asked = {"messages": [*messages, {"role": "user", "content": text}]}
    for mode, state in agent.stream(asked, stream_mode=["messages", "values"]):
        if mode == "values":
            messages = state["messages"]
    print(messages[-1].content)
HISTORY.write_text(json.dumps(messages_to_dict(messages)))
