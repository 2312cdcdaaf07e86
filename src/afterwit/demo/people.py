"""Simulated people with an ordinary agent: they give tasks, watch and react. Held-out tasks measure it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from random import Random
from statistics import fmean
from typing import Any, Literal, TypeVar, cast

from openai import OpenAI

from afterwit.demo.words import Split
from afterwit.demo.world import Message, Task, TaskState, World
from afterwit.turn import ToolCall

MAX_TURNS = 8
REPLY_TOKENS = 16
MODEL = "afterwit"
"""The name by which agents ask for the served model."""
AT_ONCE = 16
"""Conversations, or answers of a measurement, at the same time."""
SIDE = {"X-Turn-Type": "side"}
PEOPLE: Split = "dev"
"""The part of the wordings that people use."""
MEASURE: Split = "fresh"
"""The part of the tasks that measure. Neither is in the model's pretraining."""
SEED = 70_000
"""Of the tasks that measure a run with the seed 0: far from all seeds of people."""
T = TypeVar("T")
Item = TypeVar("Item")
Setting = Mapping[str, Any]
"""The fields that every request of an agent has, such as tools and temperature."""
Done = Callable[[int, int], object]
"""Called with the number that is done, and with the whole."""
Mood = Literal["complaint", "failure", "approval"]
React = Callable[[World, Task, Sequence[str], str | None, Split, Random], tuple[Mood, str]]
"""(world, task, rules broken, what the failing check printed, split, rng) -> the reaction; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The conversation so far, which the model continues."""

    messages: list[Message]
    max_tokens: int | None = None
    """The answer's length; None: the setting's."""
    last: bool = False
    """Nothing follows the answer, so nothing can be learned from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMessage:
    """A model's message and the id of the turn it is on the server."""

    message: Message
    turn: str


Script = Generator[Ask, ServedMessage, T]
Responder = Callable[[Ask], ServedMessage]
"""Gives the model's next message, as it goes back into the conversation."""


def agent(client: OpenAI, setting: Setting, headers: Mapping[str, str]) -> Responder:
    """An ordinary agent at a gateway."""

    def answer(ask: Ask) -> ServedMessage:
        body = request_body(setting, ask)
        completion = client.chat.completions.create(**body, extra_headers=dict(headers))
        said = completion.choices[0].message
        message: Message = {"role": "assistant", "content": said.content}
        if said.tool_calls:
            message["tool_calls"] = [
                call.model_dump(include={"id", "type", "function"}) for call in said.tool_calls
            ]
        return ServedMessage(message=message, turn=completion.id.removeprefix("chatcmpl-"))

    return answer


def request_body(setting: Setting, ask: Ask) -> dict[str, Any]:
    """An agent's request."""
    body = {"model": MODEL, "messages": ask.messages, **setting}
    return body if ask.max_tokens is None else body | {"max_tokens": ask.max_tokens}


def opening(world: World, task: Task) -> list[Message]:
    return [{"role": "system", "content": world.system}, {"role": "user", "content": task.request}]


def play(answer: Responder, script: Script[T]) -> T:
    """Run a script to its end, one answer after another. Returns its result."""
    try:
        ask = next(script)
        while True:
            ask = script.send(answer(ask))
    except StopIteration as ended:
        return cast(T, ended.value)


def work(state: TaskState, messages: list[Message], *, watched: bool) -> Script[tuple[str, ...]]:
    """Work on a task and append to `messages`. Returns the turns' ids.

    Ends when the agent makes no more calls and the person has no other question, if `watched` at the turn
    that breaks a rule, or after `MAX_TURNS`.
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
    return [ToolCall.from_dict(call) for call in message.get("tool_calls", ())]


def written(message: Message) -> str:
    """A message as text: a line for each call, then its content."""
    lines = [f"{call.name} {call.arguments}" for call in calls(message)]
    return "\n".join([*lines, message.get("content") or ""]).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One task from the first message to the last, and how it really was (the model never sees that)."""

    task: Task
    messages: tuple[Message, ...]
    turns: tuple[str, ...]
    """Ids of the turns that worked on the task; the person reacted to the last one."""
    mood: Mood
    reaction: str
    """The person's words at the end; empty: none."""
    broken: tuple[str, ...]
    """The rules that it broke."""
    kept: bool
    passed: bool


def interaction(
    world: World,
    task: Task,
    split: Split,
    rng: Random,
    react: React | None = None,
    *,
    watched: bool = True,
) -> Script[Interaction]:
    """One interaction. The reaction, `outspoken` by default, is sent as the next message of the conversation;
    an empty one is not sent. `watched`: the person interrupts at the turn that breaks a rule.
    """
    messages = opening(world, task)
    with world.start(task) as state:
        turns = yield from work(state, messages, watched=watched)
        failed = state.check()
        mood, reaction = (react or outspoken)(world, task, state.broken(), failed, split, rng)
        if reaction:
            messages.append({"role": "user", "content": reaction})
            thanked = yield Ask(messages=messages, max_tokens=REPLY_TOKENS, last=True)
            messages.append(thanked.message)
        return Interaction(
            task=task,
            turns=turns,
            messages=tuple(messages),
            mood=mood,
            reaction=reaction,
            broken=state.broken(),
            kept=state.kept(),
            passed=failed is None,
        )


def outspoken(
    world: World, task: Task, broken: Sequence[str], failed: str | None, split: Split, rng: Random
) -> tuple[Mood, str]:
    """Names everything that is wrong so far, and gives thanks if nothing is."""
    if broken:
        return "complaint", world.complain(task, broken, split, rng)
    if failed is not None:
        return "failure", world.speech.failure(failed, split, rng)
    return "approval", world.speech.approval(split, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Preference: the share of tasks that kept every rule that applies.

    Task success: the share whose check passes.
    """

    trials: tuple[Interaction, ...]

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


def evaluate(answer: Responder, world: World, tasks: Sequence[Task], done: Done = lambda *_: None) -> Score:
    """Have an agent do every task. Its headers must mark the traffic as side traffic."""
    return Score(trials=tuple(at_once(lambda task: play(answer, trial(world, task)), tasks, done)))


def at_once(work: Callable[[Item], T], items: Sequence[Item], done: Done = lambda *_: None) -> list[T]:
    """The results of `work` in order, made by `AT_ONCE` threads."""
    numbers = count(1)

    def one(item: Item) -> T:
        made = work(item)
        done(next(numbers), len(items))
        return made

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, items))


def trial(world: World, task: Task) -> Script[Interaction]:
    """One held-out task, unwatched, with no word of the person at its end."""
    return interaction(world, task, MEASURE, Random(0), lambda *_: ("approval", ""), watched=False)
