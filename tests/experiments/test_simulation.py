"""People and the whole system in one process: it learns, and the same plan gives the same run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import pytest
import torch
from openai import OpenAI
from starlette.types import Receive, Scope, Send

from afterwit.demo.people import REPLY_TOKENS, agent, interaction
from afterwit.demo.worlds import WORLDS
from afterwit.engines.port import Generate, Step
from afterwit.errors import SettingError
from afterwit.lifecycle import State
from afterwit.turn import Sampling
from experiments.simulation.client import Client, Conversation
from experiments.simulation.lockstep import LockstepEngine
from experiments.simulation.plan import Plan, Point, RunResult, key
from experiments.simulation.run import run
from experiments.simulation.system import simulation
from tests.demo.scripted import run_interaction

torch.set_num_threads(1)
BRIEF = Plan(world="tools", seed=3, interactions=10, measured=(0, 10), tasks=16)


@pytest.fixture(scope="module")
def result() -> RunResult:
    return run(BRIEF)


@pytest.mark.slow
def test_ten_people_teach_it_something(result: RunResult) -> None:
    assert result.updates > 3
    assert result.at(10, "fresh").preference > result.at(0, "fresh").preference + 0.1


@pytest.mark.slow  # a run of its own
def test_the_same_plan_gives_the_same_points() -> None:
    plan = replace(BRIEF, interactions=2, measured=(2,), tasks=4)
    one, again = run(plan), run(plan)
    assert one.updates > 0
    assert (again.points, again.updates, again.facts) == (one.points, one.updates, one.facts)


@pytest.mark.slow  # 10 seconds
async def test_every_turn_of_an_interaction_is_stored_judged_and_trained_on_what_followed_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    short = replace(BRIEF, settings=("practice.updates=1", "practice.synthetic=0"))
    chosen, world = short.chosen(), WORLDS["tools"]
    async with simulation(chosen.settings, world, seed=1, program=world.judge) as system:
        one = await system.interact(1, "dev", Random(1))
        records = [system.store.turn(turn) for turn in one.turns]
        assert system.updates > 0
    assert {record.state for record in records} <= {State.TRAINED, State.JUDGED, State.SKIPPED}
    assert [record.turn.parent for record in records] == [None, *one.turns[:-1]]
    last = records[-1].next_state
    assert last is not None
    assert last.messages[-1].content == one.reaction
    assert records[0].turn.conversation.messages[1].content == one.task.request
    assert {record.turn.sampling.temperature for record in records} == {0.6}
    assert [said for said in caplog.records if said.levelname == "ERROR"] == []


@pytest.mark.slow  # a run of its own
async def test_versions_reach_the_engine_only_when_so_many_are_there() -> None:
    chosen, world, rng = BRIEF.chosen(), WORLDS["tools"], Random(1)
    async with simulation(chosen.settings, world, seed=1, program=world.judge, publish_every=3) as system:
        for number in range(1, 9):
            await system.interact(number, "dev", rng)
            assert system.engine.version == system.updates // 3 * 3
        assert system.updates >= 3


@pytest.mark.slow
async def test_a_judges_model_is_asked_in_whole_batches_and_its_verdict_is_stored() -> None:
    chosen, world = BRIEF.chosen(), WORLDS["tools"]
    async with simulation(chosen.settings, world, seed=1, program=None) as system:
        one = await system.interact(1, "dev", Random(1))
        verdicts = [system.store.turn(turn).verdict for turn in one.turns]
    votes = [len(verdict.votes) for verdict in verdicts if verdict is not None]
    assert votes == [2 * chosen.settings.judge.votes] * len(one.turns)


async def test_requests_made_at_one_time_are_one_batch_and_later_ones_another() -> None:
    class Counting(LockstepEngine):
        def __init__(self) -> None:
            self._asked, self.batches = [], list[int]()

        async def generate_together(self, requests: Sequence[Generate]) -> list[list[Step]]:
            self.batches.append(len(requests))
            return [[] for _ in requests]

    async def ask(times: int) -> None:
        for _ in range(times):
            assert [step async for step in engine.generate(request)] == []

    engine = Counting()
    request = Generate(prompt_ids=(1,), sampling=Sampling(max_tokens=1))
    await asyncio.gather(ask(1), ask(3), ask(2))
    assert engine.batches == [3, 2, 1]


def test_an_agent_of_a_live_run_and_one_of_a_simulation_send_the_same_request() -> None:
    live, simulated = list[dict[str, Any]](), list[dict[str, Any]]()
    message = {"role": "assistant", "content": "Done."}
    completion = {"id": "chatcmpl-1", "choices": [{"message": message}]}

    def record(request: httpx.Request) -> httpx.Response:
        live.append(json.loads(request.content))
        return httpx.Response(200, json=completion)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        simulated.append(json.loads((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": json.dumps(completion).encode()})

    world = WORLDS["tools"]
    task = world.task("dev", Random(3))
    with OpenAI(
        api_key="x", base_url="http://x/v1", http_client=httpx.Client(transport=httpx.MockTransport(record))
    ) as client:
        one = run_interaction(agent(client, world.setting, {}), world, task, "dev", Random(4))
    script = interaction(world, task, "dev", Random(4))
    (other,) = asyncio.run(Client(app=app, world=world).play([Conversation(script=script, name="p")]))
    assert (one.messages, one.turns) == (other.messages, other.turns)
    assert all(type(body.pop("seed")) is int for body in simulated)
    assert (live[-1].pop("max_tokens"), simulated[-1].pop("max_tokens")) == (REPLY_TOKENS, 1)
    assert live == simulated


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
