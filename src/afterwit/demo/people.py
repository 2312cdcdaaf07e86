"""Simulated people with an ordinary agent: they give tasks, watch, react; and held-out tasks that measure."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import fmean
from typing import Any, Literal, Protocol, TypeVar, cast

from openai import OpenAI

from afterwit.demo.speech import displeased
from afterwit.demo.world import Message, Split, Task, TaskState, World
from afterwit.message import ToolCall

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


REPLY_TOKENS = 16


class Manner(StrEnum):
    """How a person reacts."""

    FULL = "full"
    """They name everything that is wrong so far, and say thanks."""
    ONE = "one"
    """They name one thing at a time: what they noticed first."""
    VAGUE = "vague"
    """They say that it is wrong, and never what."""
    THANKLESS = "thankless"
    """They complain, but leave without a word when all is well."""
    CONTENT = "content"
    """They say thanks, whatever was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One task from the first message to the person's reaction, and how it really was (the model never
    sees that).
    """

    task: Task
    messages: tuple[Message, ...]
    turns: tuple[str, ...]
    """Ids of the turns that worked on the task; the person reacted to the last one."""
    mood: Literal["complaint", "failure", "approval"]
    broken: tuple[str, ...]
    passed: bool
    reaction: str


def run_interaction(
    agent: Responder, world: World, task: Task, split: Split, rng: Random, manner: Manner = Manner.FULL
) -> Interaction:
    """Play one interaction with an agent."""
    return play(agent, world, interaction(world, task, split, rng, manner))


def interaction(
    world: World, task: Task, split: Split, rng: Random, manner: Manner = Manner.FULL
) -> Script[Interaction]:
    """One interaction; the reaction is sent as the next message of the same conversation.

    Who says nothing sends nothing: nobody answers the last turn.
    """
    messages = opening(world, task)
    with world.start(task) as state:
        turns = yield from work(state, messages, watched=manner is not Manner.CONTENT)
        failed = state.check()
        mood, reaction = _react(world, task, state, failed, split, rng, manner)
        if reaction:
            messages.append({"role": "user", "content": reaction})
            thanked = yield Ask(messages=messages, max_tokens=REPLY_TOKENS, last=True)
            messages.append(thanked.message)
        return Interaction(
            task=task,
            turns=turns,
            messages=tuple(messages),
            mood=mood,
            broken=state.broken(),
            passed=failed is None,
            reaction=reaction,
        )


def _react(
    world: World,
    task: Task,
    state: TaskState,
    failed: str | None,
    split: Split,
    rng: Random,
    manner: Manner,
) -> tuple[Literal["complaint", "failure", "approval"], str]:
    if manner is Manner.CONTENT:
        return "approval", world.approve(task, split, rng)
    if broken := state.broken():
        if manner is Manner.VAGUE:
            return "complaint", displeased(split, rng)
        named = broken[:1] if manner is Manner.ONE else broken
        return "complaint", world.complain(task, named, split, rng)
    if failed is not None:
        said = displeased(split, rng) if manner is Manner.VAGUE else world.fail(task, failed, split, rng)
        return "failure", said
    return "approval", "" if manner is Manner.THANKLESS else world.approve(task, split, rng)


PEOPLE: Split = "dev"
"""The part of the wordings that people speak."""


MEASURE: Split = "fresh"
"""That of the tasks that measure. Neither is in the model's pretraining."""


SEED = 70_000
"""Of the tasks that measure a run with the seed 0: far from all seeds of people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One held-out task as the policy did it with nobody watching."""

    task: Task
    messages: tuple[Message, ...]
    broken: tuple[str, ...]
    """The rules that it broke."""
    kept: bool
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Preference: the share of tasks that kept every rule that applies.

    Task success: the share whose check passes.
    """

    trials: tuple[Trial, ...]

    @property
    def preference(self) -> float:
        return fmean(trial.kept for trial in self.trials)

    @property
    def task_success(self) -> float:
        return fmean(trial.passed for trial in self.trials)


def held_out(world: World, split: Split, number: int, seed: int) -> list[Task]:
    """The tasks of an evaluation, the same ones for the same seed."""
    rng = Random(seed)
    return [world.task(split, rng) for _ in range(number)]


def evaluate(agent: Responder, world: World, tasks: Sequence[Task], at_once: int = 16) -> Score:
    """Let the agent do every task; its headers must mark the traffic as side traffic."""
    with ThreadPoolExecutor(at_once) as pool:
        trials = pool.map(lambda task: play(agent, world, trial(world, task)), tasks)
        return Score(trials=tuple(trials))


def trial(world: World, task: Task) -> Script[Trial]:
    """One held-out task, nobody watching."""
    messages = opening(world, task)
    with world.start(task) as state:
        yield from work(state, messages, watched=False)
        return Trial(
            task=task,
            messages=tuple(messages),
            broken=state.broken(),
            kept=state.kept(),
            passed=state.check() is None,
        )
