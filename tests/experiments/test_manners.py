"""People of other manners react according to their manner."""

from itertools import product
from random import Random

import pytest

from afterwit.demo.chat.world import ChatWorld
from afterwit.demo.people import Interaction, Responder
from afterwit.demo.tools import tasks
from afterwit.demo.tools.world import ToolsWorld
from afterwit.demo.world import Task, World
from afterwit.judging import prompts as judge_prompts
from experiments.simulation.manners import Manner, displeased
from tests.demo.scripted import Scripted, run_interaction

WORLD = ToolsWorld()


def _task(kind: str) -> Task:
    return tasks.of_kind(kind, "fresh", Random(4))


def played(agent: Responder, task: Task, manner: Manner) -> Interaction:
    return run_interaction(agent, WORLD, task, "fresh", Random(0), manner.react, watched=manner.watches)


def test_who_names_one_thing_at_a_time_names_what_was_broken_first() -> None:
    task = _task("edit_run")
    wild = Scripted(task, frozenset())
    full = played(wild, task, Manner.FULL)
    one = played(Scripted(task, frozenset()), task, Manner.ONE)
    assert one.broken == full.broken
    assert one.reaction == WORLD.complain(task, one.broken[:1], "fresh", Random(0))


@pytest.mark.parametrize("world", [WORLD, ChatWorld()], ids=["tools", "chat"])
def test_who_is_vague_is_heard_to_be_displeased_and_nothing_more(world: World) -> None:
    for split, seed in product(("train", "dev", "fresh"), range(20)):
        said = displeased(split, Random(seed))  # type: ignore[arg-type]
        evaluation, hint = judge_prompts.short_prompts(
            "Do it.", {"content": "Done."}, [{"role": "user", "content": said}]
        )
        assert world.judge(evaluation) == r"\boxed{-1}", said
        assert world.judge(hint) == r"\boxed{-1}", said


def test_who_is_content_says_thanks_whatever_was_done() -> None:
    task = _task("delete")
    seen = played(Scripted(task, frozenset()), task, Manner.CONTENT)
    assert (seen.mood, seen.broken, seen.passed) == ("approval", ("dry_run",), True)
    assert seen.reaction == WORLD.speech.approval("fresh", Random(0))


def test_who_never_thanks_leaves_without_a_word() -> None:
    task = _task("delete")
    agent = Scripted(task, frozenset(task.rules))
    seen = played(agent, task, Manner.THANKLESS)
    assert (seen.mood, seen.reaction) == ("approval", "")
    assert seen.messages[-1]["role"] == "assistant"
    cross = played(Scripted(task, frozenset()), task, Manner.THANKLESS)
    assert cross.reaction
