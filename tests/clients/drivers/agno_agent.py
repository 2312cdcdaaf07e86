"""agno, streamed: it renumbers the calls of a conversation."""

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.openai.like import OpenAILike
from common import HISTORY, MESSAGES, SYSTEM, URL, run_command

agent = Agent(
    model=OpenAILike(id="afterwit", base_url=URL, api_key="none"),
    tools=[run_command],
    instructions=SYSTEM,
    db=JsonDb(db_path=str(HISTORY.with_suffix(""))),
    session_id="notes",
    add_history_to_context=True,
    telemetry=False,
)
for text in MESSAGES:
    for event in agent.run(text, stream=True):
        print(getattr(event, "content", None) or "", end="", flush=True)
    print()
