"""The simulated person reacts as someone watching would, in words and at the right moment."""

from random import Random

import pytest

from afterwit.demo.people import ServedMessage, evaluate
from afterwit.demo.tools import tasks
from afterwit.demo.tools.world import ToolsWorld
from afterwit.demo.words import part
from afterwit.demo.world import Task
from tests.demo.scripted import Scripted, run_interaction

WORLD = ToolsWorld()


def _task(kind: str) -> Task:
    return tasks.of_kind(kind, "fresh", Random(4))


def test_the_person_interrupts_right_after_the_result_of_the_step_that_broke_a_rule() -> None:
    task = _task("edit_run")
    seen = run_interaction(Scripted(task, frozenset()), WORLD, task, "fresh", Random(0))
    roles = [message["role"] for message in seen.messages]
    assert roles == ["system", "user", "assistant", "tool", "user", "assistant"]
    assert (seen.mood, seen.broken) == ("complaint", ("read_first",))
    assert seen.messages[4]["content"] == seen.reaction


def test_a_later_step_is_interrupted_only_when_it_breaks_a_rule() -> None:
    task = _task("edit_run")
    seen = run_interaction(Scripted(task, frozenset({"read_first"})), WORLD, task, "fresh", Random(0))
    assert sum(message["role"] == "tool" for message in seen.messages) == 3
    assert seen.broken == ("python3",)


@pytest.mark.parametrize("kind", sorted(tasks.KINDS))
def test_work_done_the_owners_way_is_thanked_for(kind: str) -> None:
    task = _task(kind)
    seen = run_interaction(Scripted(task, frozenset(task.rules)), WORLD, task, "fresh", Random(0))
    assert (seen.mood, seen.passed, seen.broken) == ("approval", True, ())
    assert any(thanks[1:] in seen.reaction for thanks in part(tasks.WORDINGS["person"]["thanks"], "fresh"))


def test_a_failing_check_is_shown_with_what_it_printed() -> None:
    task = _task("edit")
    idle = ServedMessage(message={"role": "assistant", "content": "Done."}, turn="t")
    seen = run_interaction(lambda _: idle, WORLD, task, "fresh", Random(0))
    assert (seen.mood, seen.passed) == ("failure", False)
    assert " ".join(task.checks[0]) in seen.reaction


def test_a_reaction_holds_no_label_of_a_rule() -> None:
    for kind in tasks.KINDS:
        task = _task(kind)
        said = run_interaction(Scripted(task, frozenset()), WORLD, task, "fresh", Random(1)).reaction
        assert not {"read_first", "boxed", "rule:"} & set(said.split())


def test_the_answer_to_the_reaction_is_kept_short() -> None:
    task = _task("delete")
    agent = Scripted(task, frozenset())
    run_interaction(agent, WORLD, task, "fresh", Random(0))
    assert agent.asked == [(2, None), (5, 16)]


def test_preference_and_success_count_tasks_not_steps() -> None:
    task = _task("overwrite_delete")
    half = evaluate(Scripted(task, frozenset({"backup"})), WORLD, [task])
    assert (half.preference, half.task_success) == (0.0, 1.0)
    whole = evaluate(Scripted(task, frozenset(task.rules)), WORLD, [task, task])
    assert (whole.preference, whole.task_success) == (1.0, 1.0)
