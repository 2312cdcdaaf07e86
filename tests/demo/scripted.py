"""An agent that does a task by plan and needs no model."""

import json
from dataclasses import dataclass, field
from typing import Any

from afterwit.demo.people import Ask, Interaction, Responder, ServedMessage, interaction, play
from afterwit.demo.world import Task, World
from experiments.cases import tools as expert


@dataclass
class Scripted:
    """Follows the rules in `follow`; `asked` keeps each request's number of messages and token limit."""

    task: Task
    follow: frozenset[str]
    asked: list[tuple[int, int | None]] = field(default_factory=list)

    def __call__(self, ask: Ask) -> ServedMessage:
        messages = ask.messages
        self.asked.append((len(messages), ask.max_tokens))
        plan = expert.plan(self.task, self.follow)
        done = sum(message["role"] == "tool" for message in messages)
        if (messages[-1]["role"] == "user" and done) or done == len(plan):
            return ServedMessage(
                message={"role": "assistant", "content": "Done."}, turn=f"turn{len(self.asked)}"
            )
        function = {"name": plan[done].name, "arguments": json.dumps(dict(plan[done].arguments))}
        call = {"id": f"call{done}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return ServedMessage(message=message, turn=f"turn{len(self.asked)}")


def run_interaction(agent: Responder, world: World, *given: Any, **options: Any) -> Interaction:
    """Play one `interaction` with an agent."""
    return play(agent, interaction(world, *given, **options))
