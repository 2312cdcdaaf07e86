"""An ordinary agent loop: ask, do the calls, send the results, until it is done.

What happens around the model's answers is a script, a generator without I/O: it asks, and the answer is sent
in. `play` runs a script with one agent over the official OpenAI client.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from openai import OpenAI

from afterwit.apps.demo.world import Message, Task, TaskState, World
from afterwit.core.message import ToolCall

MAX_TURNS = 8
MODEL = "afterwit"
"""The name by which agents ask for the served model."""
TEMPERATURE = 0.6
SIDE = {"X-Turn-Type": "side"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The conversation so far, which the model is to go on with."""

    messages: list[Message]
    max_tokens: int | None = None
    """The answer's length; None: the world's."""
    last: bool = False
    """Nothing follows the answer, so nothing can be learned from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's message and the id of the turn it is on the server."""

    message: Message
    turn: str


Script = Generator[Ask, Answer, T]


class Responder(Protocol):
    """Who answers a script's asks."""

    def answer(self, messages: list[Message], world: World, max_tokens: int | None = None) -> Answer:
        """The model's next message, as it goes back into the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A client with the model it asks for and how; `headers` go with every request."""

    client: OpenAI
    model: str
    headers: Mapping[str, str]
    temperature: float = TEMPERATURE

    def answer(self, messages: list[Message], world: World, max_tokens: int | None = None) -> Answer:
        """The model's next message, as it goes back into the conversation."""
        body = request_body(
            world, messages, model=self.model, temperature=self.temperature, max_tokens=max_tokens
        )
        completion = self.client.chat.completions.create(**body, extra_headers=dict(self.headers))
        said = completion.choices[0].message
        message: Message = {"role": "assistant", "content": said.content}
        if said.tool_calls:
            message["tool_calls"] = [
                call.model_dump(include={"id", "type", "function"}) for call in said.tool_calls
            ]
        return Answer(message=message, turn=completion.id.removeprefix("chatcmpl-"))


def request_body(
    world: World, messages: list[Message], *, model: str, temperature: float, max_tokens: int | None
) -> dict[str, Any]:
    """What an agent asks for: the conversation, the world's tools, and how to sample."""
    body = {
        "model": model,
        "messages": messages,
        "temperature": temperature,
        "max_tokens": max_tokens or world.max_tokens,
    }
    return body | {"tools": list(world.tools)} if world.tools else body


def opening(world: World, task: Task) -> list[Message]:
    """The first two messages of a task."""
    return [{"role": "system", "content": world.system}, {"role": "user", "content": task.request}]


def play(agent: Responder, world: World, script: Script[T]) -> T:
    """Run a script to its end, one answer after another; what it returns."""
    try:
        ask = next(script)
        while True:
            ask = script.send(agent.answer(ask.messages, world, ask.max_tokens))
    except StopIteration as ended:
        return cast(T, ended.value)


def work(state: TaskState, messages: list[Message], *, watched: bool) -> Script[tuple[str, ...]]:
    """Work on a task, growing `messages`; the turns' ids.

    Ends when the agent makes no more calls and the person has no other question, at the turn that breaks a
    rule if somebody watches, or after `MAX_TURNS`.
    """
    turns = []
    for _ in range(MAX_TURNS):
        answer = yield Ask(messages=messages)
        turns.append(answer.turn)
        messages.append(answer.message)
        made = calls(answer.message)
        for call in made:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": state.act(call)})
        asked = None if made else state.hear(answer.message["content"] or "")
        if watched and state.broken():
            break
        if asked is not None:
            messages.append({"role": "user", "content": asked})
        elif not made:
            break
    return tuple(turns)


def calls(message: Message) -> list[ToolCall]:
    """The tool calls of an assistant message."""
    return [
        ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    ]
