"""People and the whole system in one process: it learns, and the same plan gives the same run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch

from afterwit.apps.demo.worlds import REHEARSED
from afterwit.core.errors import SettingError
from afterwit.core.lifecycle import Reason, State
from afterwit.core.message import Message
from afterwit.core.verdict import NextState
from experiments.simulation.plan import Plan, Point, RunResult, key
from experiments.simulation.run import run
from experiments.simulation.system import simulation

torch.set_num_threads(1)
BRIEF = Plan(world="tools", seed=3, interactions=10, measured=(0, 10), tasks=16)


@pytest.fixture(scope="module")
def result() -> RunResult:
    return run(BRIEF)


def test_ten_people_teach_it_something(result: RunResult) -> None:
    assert result.updates > 3
    assert result.at(10, "fresh").preference > result.at(0, "fresh").preference + 0.1


def test_the_same_plan_gives_the_same_points(result: RunResult) -> None:
    again = run(BRIEF)
    assert (again.points, again.updates, again.facts) == (result.points, result.updates, result.facts)


async def test_every_turn_of_an_interaction_is_stored_judged_and_trained_on_what_followed_it() -> None:
    chosen, world = BRIEF.chosen(), REHEARSED["tools"]
    async with simulation(chosen.settings, world, seed=1, program=world.judge) as system:
        one = await system.interact(1, "dev", Random(1))
        records = [system.learning.store.turn(turn) for turn in one.turns]
    assert {record.state for record in records} <= {State.TRAINED, State.JUDGED, State.SKIPPED}
    assert [record.turn.parent for record in records] == [None, *one.turns[:-1]]
    last = records[-1].next_state
    assert last is not None
    assert last.messages[-1].content == one.reaction
    assert records[0].turn.conversation.messages[1].content == one.task.request
    assert {record.turn.sampling.temperature for record in records} == {0.6}


async def test_versions_reach_the_engine_only_when_so_many_are_there() -> None:
    chosen, world, rng = BRIEF.chosen(), REHEARSED["tools"], Random(1)
    async with simulation(chosen.settings, world, seed=1, program=world.judge, publish_every=3) as system:
        for number in range(1, 9):
            await system.interact(number, "dev", rng)
            assert system.client.engine.version == system.updates // 3 * 3
        assert system.updates >= 3


async def test_a_turn_that_would_teach_nothing_ends_at_the_judge_as_where_people_are_served() -> None:
    asked = (
        "objective.routing=routed",
        "objective.confident_above=0",
        "learner.batch=99",
        "learner.min_batch=99",
    )
    chosen, world, rng = replace(BRIEF, settings=asked).chosen(), REHEARSED["tools"], Random(1)
    async with simulation(chosen.settings, world, seed=1, program=world.judge) as system:
        one, learning = await system.interact(1, "dev", rng), system.learning
        turn = replace(learning.store.turn(one.turns[-1]).turn, id="praised")
        thanks = Message(role="user", content=world.approve(one.task, "dev", rng))
        await learning.teach([(turn, NextState(messages=(thanks,)))])
        record = learning.store.turn("praised")
    assert record.verdict is not None
    assert record.verdict.reward == 1
    assert (record.state, record.reason) == (State.SKIPPED, Reason.ALREADY_CONFIDENT)


def test_a_plan_is_named_by_what_it_plays_not_by_how_it_was_said() -> None:
    own = key(BRIEF.facts())
    assert key(replace(BRIEF, settings=("objective.k=4",)).facts()) == own
    assert key(replace(BRIEF, judge="model").facts()) == own
    assert key(replace(BRIEF, name="the usual", settings=("publish.poll_s=9",)).facts()) == own
    assert key(replace(BRIEF, settings=("objective.k=2",)).facts()) != own
    assert key(replace(BRIEF, publish_every=2).facts()) != own


def test_an_unknown_setting_is_refused_before_anything_runs() -> None:
    with pytest.raises(SettingError, match=r"did you mean objective\.beta"):
        replace(BRIEF, settings=("objective.betta=1",)).chosen()


def test_an_outcome_is_the_same_after_it_was_written_down() -> None:
    point = Point(interactions=0, split="fresh", preference=0.25, task_success=1.0)
    result = RunResult(name="a run", facts={"seed": 1}, points=(point,), updates=3, cpu_s=1.5)
    assert RunResult.from_line(result.to_line()) == result
    with pytest.raises(LookupError, match="nothing was measured on dev after 36 interactions"):
        result.at(36, "dev")
