"""A person with an agent: gives a task, watches it work, and says in words what they think of it.

The person interrupts at the step that breaks a rule, after its tool results, naming everything that is wrong
so far; thanks when all went well and the check passes; says which check failed otherwise. They
never grade.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal

from afterwit.apps.demo.people.agent import Ask, Responder, Script, opening, play, work
from afterwit.apps.demo.world import Message, Split, Task, TaskState, World

REPLY_TOKENS = 16


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


def run_interaction(agent: Responder, world: World, task: Task, split: Split, rng: Random) -> Interaction:
    """Play one interaction with an agent."""
    return play(agent, world, interaction(world, task, split, rng))


def interaction(world: World, task: Task, split: Split, rng: Random) -> Script[Interaction]:
    """One interaction; the reaction is sent as the next message of the same conversation."""
    messages = opening(world, task)
    with world.start(task) as state:
        turns = yield from work(state, messages, watched=True)
        failed = state.check()
        mood, reaction = _react(world, task, state, failed, split, rng)
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
    world: World, task: Task, state: TaskState, failed: str | None, split: Split, rng: Random
) -> tuple[Literal["complaint", "failure", "approval"], str]:
    if state.broken():
        return "complaint", world.complain(task, state.broken(), split, rng)
    if failed is not None:
        return "failure", world.fail(task, failed, split, rng)
    return "approval", world.approve(task, split, rng)
