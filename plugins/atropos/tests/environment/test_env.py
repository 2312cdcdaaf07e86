"""The environment as the library drives it, over the embedded engine and a task set of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from afterwit.errors import AfterwitError, PromptTooLong, SettingError
from afterwit.turn import Message
from afterwit.verdict import Feedback
from afterwit_atropos.environment.env import MOST_LOST, AgenticOPDEnv
from afterwit_atropos.environment.metrics import LINES
from afterwit_atropos.episode import Attempt, Episode, Policy
from afterwit_atropos.hindsight import TooManyUnscored
from afterwit_atropos.reward import RewardWeights
from afterwit_atropos.sandbox.box import BoxEnded
from afterwit_atropos.wire import read
from tests.fakes.models import tiny_qwen3


class Talk:
    """Two turns about anything. An item is its rollouts' correctness, in order; None fails."""

    training = ([1.0, 0.0], None)
    held_out = ([1.0], [0.0])

    async def play(self, item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        if item is None:
            raise BoxEnded("the box is gone")
        episode = Episode(
            (Message(role="user", content="Say something."),),
            (),
            policy,
        )
        await episode.take_turn()
        episode.messages.append(Message(role="user", content="More."))
        await episode.take_turn()
        reward = RewardWeights().reward(correctness=item.pop(0), efficiency=1.0, tool_usage=0.0)
        return Attempt(rollout=episode.rollout(Feedback(reward=-1, text="No.")), reward=reward)


def talk(config: Any) -> Talk:
    return Talk()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"))


Make = Callable[..., Any]


@pytest.fixture
async def made(model: Path) -> AsyncIterator[Make]:
    envs: list[AgenticOPDEnv] = []

    async def make(**fields: Any) -> AgenticOPDEnv:
        config, _ = AgenticOPDEnv.config_init()
        own = {"task_set": f"{__name__}:talk", "engine": "embedded", "group_size": 2, "max_token_length": 6}
        config = config.model_copy(update={"use_wandb": False, **own, **fields})
        env = AgenticOPDEnv(config, [APIServerConfig(model_name=str(model), api_key="x")])
        envs.append(env)
        await env.setup()
        return env

    yield make
    for env in envs:
        await env._close()


async def test_a_group_leaves_with_log_probs_masks_and_the_reason_for_each_turn_without_rows(
    made: Make,
) -> None:
    env = await made()
    data, backlog = await env.collect_trajectories([1.0, 0.0])
    group = read(data, vocabulary=env._players[0].engine.facts.vocabulary)
    assert backlog == []
    assert sorted(set(data["scores"])) == pytest.approx([0.15, 0.85])
    assert data["group_overrides"]["group_size"] == len(data["tokens"])
    for sequence in group.sequences:
        assert sequence.logprobs is not None
        assert sequence.notes is not None
        assert all(turn.unscored for turn in sequence.notes.turns)  # random weights cannot judge
        assert sum(sequence.mask) == sum(turn.end - turn.begin for turn in sequence.notes.turns)


async def test_without_hindsight_nobody_judges(made: Make) -> None:
    env = await made(opd_enabled=False)
    data, _ = await env.collect_trajectories([1.0, 0.0])
    assert data["distill_token_ids"] is None
    assert "opd/hint_rate" not in env._metrics.values()
    assert (await env.collect_trajectories([1.0, 1.0]))[0] is None  # equal rewards and no teacher
    assert env._metrics.values()["train/silent_groups"] == 1


async def test_groups_lost_one_after_the_other_end_the_run_with_the_reason(made: Make) -> None:
    env = await made(opd_enabled=False)
    for _ in range(MOST_LOST - 1):
        assert await env.collect_trajectories(None) == (None, [])
    with pytest.raises(
        AfterwitError, match=f"{MOST_LOST} groups were lost one after the other: the box is gone"
    ):
        await env.collect_trajectories(None)
    with pytest.raises(AfterwitError, match="the box is gone"):
        await env.env_step_checks()  # the library only logs what a worker raises


async def test_a_run_whose_tasks_do_not_fit_the_model_ends_with_the_reason(made: Make) -> None:
    env = await made(opd_enabled=False, max_token_length=6)

    async def too_long(item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        raise PromptTooLong(9000, 8192, param="messages")

    env._tasks.play = too_long
    for _ in range(MOST_LOST - 1):
        assert await env.collect_trajectories([1.0, 0.0]) == (None, [])
    with pytest.raises(AfterwitError, match=f"{MOST_LOST} groups .*: This model's maximum context length"):
        await env.collect_trajectories([1.0, 0.0])
    with pytest.raises(AfterwitError, match="maximum context length"):
        await env.env_step_checks()


async def test_a_task_set_that_raises_anything_loses_its_groups_and_in_time_the_run(
    made: Make, caplog: pytest.LogCaptureFixture
) -> None:
    env, words = await made(opd_enabled=False), "a private word"

    async def play(item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        raise KeyError(words)

    env._tasks.play = play
    for _ in range(MOST_LOST - 1):
        assert await env.collect_trajectories([1.0, 0.0]) == (None, [])
    with pytest.raises(AfterwitError, match=f"{MOST_LOST} groups .*: KeyError"):
        await env.collect_trajectories([1.0, 0.0])
    assert "in play" in caplog.text
    assert "private" not in caplog.text


async def test_a_group_that_is_lost_leaves_no_rollout_under_way(made: Make) -> None:
    env = await made(opd_enabled=False)
    ended: list[str] = []

    async def play(item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        if not ended:
            ended.append("the first fails")
            raise BoxEnded("the box is gone")
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.append("the second is over")
        raise AssertionError

    env._tasks.play = play
    assert await env.collect_trajectories([1.0, 0.0]) == (None, [])
    assert ended == ["the first fails", "the second is over"]


async def test_a_run_that_cannot_be_scored_ends_with_the_reason(made: Make) -> None:
    env = await made()

    async def unscored(rollout: Any) -> Any:
        raise TooManyUnscored("none could be scored")

    env._players[0].hindsight.score = unscored
    with pytest.raises(TooManyUnscored):
        await env.collect_trajectories([1.0, 0.0])
    with pytest.raises(TooManyUnscored):
        await env.env_step_checks()


async def test_an_evaluation_is_greedy_and_is_written_down(made: Make, tmp_path: Path) -> None:
    env = await made(tensorboard_dir=str(tmp_path), data_dir_to_save_evals=str(tmp_path / "evals"))
    await env.evaluate()
    written = await asyncio.to_thread(os.listdir, tmp_path)
    assert any(name.startswith("events.out.tfevents") for name in written)
    (line,) = (tmp_path / LINES).read_text().splitlines()
    values = json.loads(line)
    assert (values["eval/pass_rate"], values["eval/n_items"], values["eval/weight_version"]) == (0.5, 2, 0)
    assert len((tmp_path / "evals" / "samples.jsonl").read_text().splitlines()) == 2


async def test_an_evaluation_that_fails_ends_its_own_command_and_no_run_that_trains(
    made: Make, caplog: pytest.LogCaptureFixture
) -> None:
    env = await made(opd_enabled=False)

    async def play(item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        raise BoxEnded("the box is gone")

    env._tasks.play = play
    await env.evaluate()
    assert "an evaluation is lost: the box is gone" in caplog.text
    with pytest.raises(BoxEnded):
        await env._run_evaluate()


async def test_a_trainer_on_another_machine_cannot_be_followed(made: Make, tmp_path: Path) -> None:
    env = await made()
    with pytest.raises(SettingError, match="start it on this machine"):
        await env._follow(tmp_path / "nowhere")


async def test_items_come_again_when_all_were_played(made: Make) -> None:
    env = await made()
    items = [await env.get_next_item() for _ in range(3)]
    assert items[0] is items[2]
