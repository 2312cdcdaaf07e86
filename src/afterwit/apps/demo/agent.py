"""An ordinary agent loop over the official OpenAI client: ask, do the calls, send the results, until
it is done.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from openai import OpenAI, omit

from afterwit.apps.demo.world import Call, Message, Place, Task, World

MAX_TURNS = 8
SIDE = {"X-Turn-Type": "side"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's message and the id of the turn it is on the server."""

    message: Message
    turn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A client with the model it asks for and how; `headers` go with every request."""

    client: OpenAI
    model: str
    headers: Mapping[str, str]
    temperature: float = 0.6

    def answer(self, messages: list[Message], world: World, max_tokens: int | None = None) -> Answer:
        """The model's next message, as it goes back into the conversation."""
        completion = self.client.chat.completions.create(
            model=self.model,
            messages=cast(Any, messages),  # the client's own types are one for each role
            tools=cast(Any, list(world.tools)) or omit,
            temperature=self.temperature,
            max_tokens=max_tokens or world.max_tokens,
            extra_headers=dict(self.headers),
        )
        said = completion.choices[0].message
        message: Message = {"role": "assistant", "content": said.content}
        if said.tool_calls:
            message["tool_calls"] = [
                call.model_dump(include={"id", "type", "function"}) for call in said.tool_calls
            ]
        return Answer(message=message, turn=completion.id.removeprefix("chatcmpl-"))


def opening(world: World, task: Task) -> list[Message]:
    """The first two messages of a task."""
    return [{"role": "system", "content": world.system}, {"role": "user", "content": task.request}]


def work(agent: Agent, world: World, place: Place, messages: list[Message]) -> Iterator[str]:
    """Work on a task, growing `messages`; yields each turn's id once its calls are done.

    Ends when the agent makes no more calls and the person has no other question, or after `MAX_TURNS`.
    Whoever iterates may stop at any turn.
    """
    for _ in range(MAX_TURNS):
        answer = agent.answer(messages, world)
        messages.append(answer.message)
        made = calls(answer.message)
        for call in made:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": place.act(call)})
        asked = None if made else place.hear(answer.message["content"] or "")
        yield answer.turn
        if asked is not None:
            messages.append({"role": "user", "content": asked})
        elif not made:
            return


def calls(message: Message) -> list[Call]:
    """The tool calls of an assistant message."""
    return [
        Call(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    ]
