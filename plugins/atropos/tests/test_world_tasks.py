"""A world of the demo as a set of tasks: its person's words are the last turn's next state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.demo.tools import tasks as rules
from afterwit.demo.tools.world import ToolsWorld, Workspace
from afterwit.demo.world import Task
from afterwit.engines.port import Generate
from afterwit.turn import Sampling
from afterwit_atropos.environment.task_sets import WorldTasks
from afterwit_atropos.episode import Attempt, Policy
from afterwit_atropos.reward import RewardWeights
from afterwit_atropos.rollout import pairs
from experiments.cases import tools as expert
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3

ALL = frozenset(rules.RULES)
TASKS = WorldTasks(
    ToolsWorld(),
    training=40,
    held_out=5,
    max_turns=6,
    weights=RewardWeights(),
    seed=1,
)
DELETE = next(task for task in TASKS.training if task.kind == "delete")


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(tiny_qwen3(tmp_path_factory.mktemp("model")))


async def played(
    renderer: Renderer, task: Task, follow: frozenset[str], *, measuring: bool = False
) -> Attempt:
    """The task, done by an agent that keeps these rules."""
    said = [
        f"<tool_call>\n{json.dumps({'name': step.name, 'arguments': dict(step.arguments)})}\n</tool_call>"
        for step in expert.plan(task, follow)
    ]
    left = iter(said)

    def script(request: Generate) -> Sequence[int]:
        return renderer.encode(next(left, "Done."))

    engine = FakeEngine(script, end_id=min(renderer.end_ids), vocabulary=renderer.vocabulary)
    policy = Policy(engine, renderer, Sampling(max_tokens=1000))
    return await TASKS.play(task, policy, measuring=measuring)


async def test_a_task_done_the_persons_way_has_the_whole_reward_and_their_thanks(renderer: Renderer) -> None:
    attempt = await played(renderer, DELETE, ALL)
    assert (attempt.reward.total, attempt.reward.passed) == (pytest.approx(1.0), True)
    assert attempt.rollout.outcome is not None
    assert attempt.rollout.outcome.reward == 1
    assert [turn.message.content for turn in attempt.rollout.in_order][-1] == "Done."


async def test_the_turn_that_breaks_a_rule_is_the_last_and_the_complaint_is_its_next_state(
    renderer: Renderer,
) -> None:
    attempt = await played(renderer, DELETE, ALL - {"dry_run"})
    (turn, following), *others = pairs(attempt.rollout)
    assert others == []
    assert turn.message.tool_calls[0].name == "delete"
    assert following is not None
    assert [message.role for message in following.messages] == ["tool", "user"]
    assert attempt.reward.correctness == 0.5  # the file is gone, but without a dry run
    assert attempt.rollout.outcome is not None
    assert attempt.rollout.outcome.reward == -1


async def test_nobody_interrupts_who_is_measured(renderer: Renderer) -> None:
    attempt = await played(renderer, DELETE, ALL - {"dry_run"}, measuring=True)
    assert len(attempt.rollout.turns) == 2
    assert attempt.reward.correctness == 0.5


async def test_a_check_that_fails_is_said_and_earns_nothing_for_correctness(renderer: Renderer) -> None:
    task = next(task for task in TASKS.training if task.kind == "edit_run")
    attempt = await played(renderer, DELETE, frozenset())
    assert attempt.reward.tool_usage == 1.0
    idle = await TASKS.play(task, _idle(renderer), measuring=False)
    assert (idle.reward.correctness, idle.reward.tool_usage) == (0.0, 0.0)
    assert idle.rollout.messages[-1].role == "user"


def _idle(renderer: Renderer) -> Policy:
    engine = FakeEngine(
        lambda request: renderer.encode("Done."), end_id=min(renderer.end_ids), vocabulary=renderer.vocabulary
    )
    return Policy(engine, renderer, Sampling(max_tokens=10))


def test_what_measures_is_drawn_apart_and_the_seed_decides(renderer: Renderer) -> None:
    again = WorldTasks(ToolsWorld(), training=40, held_out=5, max_turns=6, weights=RewardWeights(), seed=1)
    assert again.training == TASKS.training
    assert again.held_out == TASKS.held_out
    assert not {task.request for task in TASKS.training} & {task.request for task in TASKS.held_out}


def test_a_command_that_no_task_knows_starts_no_process(tmp_path: Path) -> None:
    files = Workspace(tmp_path)
    assert files.run(["touch", "made"]) == (127, "touch: not found")
    assert files.run([]).status == 127
    assert not list(tmp_path.iterdir())
