"""A person with an agent: gives a task, watches it work, and says in words what they think of it.

The person interrupts at the step that breaks a rule, after its tool results, naming everything that is wrong
so far; thanks when all went well and the check passes; says which check failed otherwise. They
never grade. Other people have other manners.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Literal

from afterwit.apps.demo.people.agent import Ask, Responder, Script, opening, play, work
from afterwit.apps.demo.speech.phrases import displeased
from afterwit.apps.demo.world import Message, Split, Task, TaskState, World

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
