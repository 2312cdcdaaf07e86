"""`AgenticOPDEnv`: rollouts of a task set, scored in hindsight while others are played, sent as groups."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from atroposlib.envs.base import BaseEnv
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pydantic import ValidationError
from tenacity import RetryError, stop_after_attempt

from afterwit.api.running import described, follow_versions, frames, set_up
from afterwit.api.serving import Engine, Renderer, Weights, open_engine
from afterwit.api.settings import model_folder
from afterwit.api.turns import AfterwitError, Reason, Sampling, SettingError
from afterwit_atropos.environment.config import AgenticOPDConfig, hindsight_settings, settings_of
from afterwit_atropos.environment.metrics import Board, RolloutMetrics, evaluated
from afterwit_atropos.environment.model_server import EngineServer
from afterwit_atropos.environment.task_sets import TaskSet, task_set_of
from afterwit_atropos.episode import Attempt, Policy
from afterwit_atropos.hindsight import Hindsight, TooManyUnscored, hindsight_of
from afterwit_atropos.rollout import ScoredRollout, Unscored
from afterwit_atropos.wire import group_data

log = logging.getLogger(__name__)

MOST_LOST = 8
"""Groups lost one after the other before the run stops with the reason of the last."""

LAST_VERSION_S = 120.0
"""Longest wait for the trainer's last version."""

LOOK_S = 0.2

NOWHERE = Path("/nonexistent")

UNSAFE = "--unsafe-sandbox"

SERVER_LOOK_S = 0.2
"""Shorter than the server's start, so a restart is always noticed."""

T = TypeVar("T")

Call = Callable[[], Awaitable[object]]

Sleep = Callable[[float], Awaitable[object]]


class AgenticOPDEnv(BaseEnv):  # type: ignore[misc]  # an untyped library
    """The library drives it: `setup`, then groups by `collect_trajectories`, and `evaluate` now and then."""

    name = "agentic-opd"
    env_config_cls = AgenticOPDConfig
    server_cls = EngineServer
    config: AgenticOPDConfig

    @classmethod
    def config_init(cls) -> tuple[AgenticOPDConfig, list[APIServerConfig]]:
        server = APIServerConfig(
            base_url="http://127.0.0.1:9001/v1", model_name="Qwen/Qwen3-4B", server_type="vllm", api_key="x"
        )
        return AgenticOPDConfig(), [server]

    def __init__(
        self, config: AgenticOPDConfig, server_configs: Sequence[APIServerConfig], **others: Any
    ) -> None:
        """SettingError for invalid settings, and if nothing isolates the commands of the tasks."""
        config.tokenizer_name = str(
            model_folder(config.tokenizer_name or server_configs[0].model_name, NOWHERE)
        )
        self._tasks = task_set_of(config)
        self._settings = [settings_of(config, each) for each in server_configs]
        super().__init__(config, server_configs, **others)
        self._players: list[Player] = []
        self._items = cycle(self._tasks.training)
        self._metrics = RolloutMetrics()
        self._eval_metrics: dict[str, float] = {}
        self._lost = 0
        self._stop: AfterwitError | None = None
        self._following: list[asyncio.Task[None]] = []
        self._board = Board(config.tensorboard_dir)

    async def setup(self) -> None:
        folder = Path(self.config.tokenizer_name)
        renderer = await asyncio.to_thread(Renderer.load, folder)
        for server, settings in zip(self.server.servers, self._settings, strict=True):
            engine = await open_engine(folder, settings.engine, takes_weights=self._follows)
            server.opened(engine, renderer)
            temperature, hindsight = self.config.agent_temperature, None
            if self.config.opd_enabled:
                asked = hindsight_settings(self.config)
                hindsight = hindsight_of(settings, asked, engine, renderer, temperature=temperature)
            sampling = Sampling(max_tokens=self.config.max_token_length, temperature=temperature)
            self._players.append(Player(self._tasks, server, sampling, hindsight))
        self._takes_next = cycle(self._players)

    async def get_status(self) -> None:
        """As the library's, for a server that may be killed and started again."""
        await outlasting(self._ask_once, self._register_again, url=self.config.rollout_server_url)

    _ask_once = BaseEnv.get_status.retry_with(stop=stop_after_attempt(1))
    """The library's own tries may take as long as a server takes to start, which must be seen."""

    async def _register_again(self) -> None:
        """Rollouts under way continue."""
        await super().register_env()
        await super().get_server_info()

    async def get_server_info(self) -> None:
        await answered(super().get_server_info, url=self.config.rollout_server_url)

    @property
    def _follows(self) -> bool:
        asked = self.config.follow_weights
        return self.config.engine == "embedded" if asked is None else asked

    async def register_env(self) -> None:
        """Then follow the trainer's versions, if this machine sees its folder."""
        await answered(super().register_env, url=self.config.rollout_server_url)
        if self._follows:
            await self._follow(Path(self.checkpoint_dir))
        if self.config.eval_at_ends:
            await self.evaluate()

    async def _follow(self, folder: Path) -> None:
        if not await asyncio.to_thread(folder.is_dir):
            raise SettingError(
                f"the trainer writes versions to {folder}, which is not here: start it on this machine, or "
                "set --env.follow_weights false"
            )
        for player, settings in zip(self._players, self._settings, strict=True):
            model = Path(self.config.tokenizer_name)
            running = await follow_versions(settings, player.engine, home=folder.parent, folder=model)
            self._following.append(asyncio.create_task(running))

    async def get_next_item(self) -> Any:
        return next(self._items)

    async def collect_trajectories(self, item: Any) -> tuple[dict[str, Any] | None, list[Any]]:
        """The item's group as the server takes it; None if it is lost, or nothing can be learned."""
        player = next(self._takes_next)
        try:
            done = await together(player.play(item) for _ in range(self.config.group_size))
            data = group_data(
                [scored for _, scored in done],
                [attempt.reward.total for attempt, _ in done],
                self.config.profile,
                player.top_k,
                messages=self.config.include_messages,
            )
        except TooManyUnscored as error:
            self._stop = error
            raise
        except Exception as error:  # a task set may be foreign code
            self._lose(error)
            return None, []
        self._lost = 0
        for attempt, scored in done:
            self._metrics.add(attempt.reward, scored if self.config.opd_enabled else None)
        if data is None:
            self._metrics.silent_groups += 1
        return data, []

    def _lose(self, error: Exception) -> None:
        self._lost += 1
        self._metrics.lost_groups += 1
        log.warning("a group is lost: %s%s", described(error), frames(error))
        if self._lost >= MOST_LOST:
            reason = described(error)
            self._stop = AfterwitError(f"{self._lost} groups were lost one after the other: {reason}")
            raise self._stop from error

    async def env_step_checks(self) -> None:
        """The library only logs what a worker raises; here the run ends with it."""
        if self._stop is not None:
            raise self._stop
        await super().env_step_checks()

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """A run that trains goes on without an evaluation that fails."""
        try:
            await self._evaluate()
        except Exception as error:
            log.warning("an evaluation is lost: %s%s", described(error), frames(error))

    async def _evaluate(self) -> None:
        version = max(player.engine.version for player in self._players)
        began, room = time.time(), asyncio.Semaphore(max(1, self.config.max_eval_workers))

        async def measured(at: int, item: Any) -> Attempt:
            async with room:
                return await self._players[at % len(self._players)].measure(item)

        done = await together(measured(at, item) for at, item in enumerate(self._tasks.held_out))
        rewards = [attempt.reward for attempt in done]
        self._eval_metrics = {"eval/weight_version": version, **evaluated(rewards)}
        log.info("eval: %s", ", ".join(f"{name} {value:.3g}" for name, value in self._eval_metrics.items()))
        self._board.add(self._eval_metrics, self.curr_step)
        samples = [
            {
                "response": attempt.rollout.in_order[-1].message.content or "",
                "reward": attempt.reward.total,
                "correctness": attempt.reward.correctness,
                "turns": len(attempt.rollout.turns),
            }
            for attempt in done
        ]
        if self.config.data_dir_to_save_evals is not None:
            await self.evaluate_log(
                self._eval_metrics, samples=samples, start_time=began, end_time=time.time()
            )

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        counted, self._metrics = self._metrics, RolloutMetrics()
        values, (evaluation, self._eval_metrics) = counted.values(), (self._eval_metrics, {})
        self._board.add(values, self.curr_step)
        if "train/mean_reward" in values:
            log.info("step %d: %s", self.curr_step, _line(values))
        await super().wandb_log({**(wandb_metrics or {}), **values, **evaluation})

    async def env_manager(self) -> None:
        try:
            await reached(self.config.rollout_server_url)
            await super().env_manager()
            if self.eval_runner is not None:
                await self.eval_runner
            if self.config.eval_at_ends:
                await self._last_version()
                await self.evaluate()
        finally:
            await self._close()

    async def process_manager(self) -> None:
        try:
            await super().process_manager()
        finally:
            await self._close()

    async def _run_evaluate(self) -> None:
        try:
            await self.setup()
            await self._evaluate()
        finally:
            await self._close()

    async def _last_version(self) -> None:
        """Wait until the batches that were given out are versions, if this run follows them."""
        until = time.monotonic() + LAST_VERSION_S
        while self._follows and time.monotonic() < until:
            if all(player.engine.version >= self.config.total_steps + 1 for player in self._players):
                return
            await asyncio.sleep(LOOK_S)

    async def _close(self) -> None:
        """Rollouts under way close their boxes before the loop does."""
        self._board.close()
        ending = [*self._following, *self.workers]
        for running in ending:
            running.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for player in self._players:
            await player.engine.close()


@dataclass(frozen=True, slots=True)
class Player:
    """A task set on one server. Without `hindsight` no turn has rows."""

    tasks: TaskSet
    server: EngineServer
    sampling: Sampling
    hindsight: Hindsight | None

    @property
    def engine(self) -> Engine:
        return self.server.engine

    @property
    def top_k(self) -> int | None:
        """Most ids of a teacher's row; None: there are none."""
        return self.hindsight.top_k if self.hindsight else None

    async def play(self, item: Any) -> tuple[Attempt, ScoredRollout]:
        """One rollout of an item, scored. It raises as `TaskSet.play` and `Hindsight.score` do."""
        policy = Policy(self.engine, self.server.renderer, self.sampling, self.server.sem)
        attempt = await self.tasks.play(item, policy, measuring=False)
        if self.hindsight is None:
            turns = tuple(Unscored(turn=turn, reason=Reason.NO_SIGNAL) for turn in attempt.rollout.in_order)
            return attempt, ScoredRollout(rollout=attempt.rollout, turns=turns, teacher=Weights.LIVE)
        return attempt, await self.hindsight.score(attempt.rollout)

    async def measure(self, item: Any) -> Attempt:
        """One rollout at temperature 0; it never trains."""
        greedy = replace(self.sampling, temperature=0.0)
        policy = Policy(self.engine, self.server.renderer, greedy, self.server.eval_sem)
        return await self.tasks.play(item, policy, measuring=True)


async def together(rollouts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The result of each, in order. If one raises, the others are cancelled and over before this raises."""
    running = [asyncio.ensure_future(rollout) for rollout in rollouts]
    try:
        return await asyncio.gather(*running)
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _line(values: dict[str, float]) -> str:
    names = ("train/mean_reward", "train/mean_correctness", "train/pass_rate", "opd/hint_rate")
    return ", ".join(f"{name.split('/')[1]} {values[name]:.3g}" for name in names if name in values)


def run(command: str, arguments: Sequence[str], cli: Callable[[], object] = AgenticOPDEnv.cli) -> None:
    """Run `serve`, `process` or `evaluate` with the library's flags. It ends the process with its status."""
    flags = [argument for argument in arguments if argument != UNSAFE]
    set_up(logging.INFO)
    if len(flags) < len(arguments):
        flags += ["--env.unsafe_sandbox", "true"]
        for handler in logging.getLogger().handlers:
            handler.setFormatter(logging.Formatter(f"%(asctime)s {UNSAFE} %(message)s", datefmt="%H:%M:%S"))
    logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)  # its status, ten times a second
    sys.argv = ["afterwit atropos", command, *flags]
    try:
        cli()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        flag = ".".join(map(str, first["loc"])).strip("`")
        raise SettingError(f"{flag}: {first['msg']}") from error


async def outlasting(ask: Call, register: Call, *, url: str, sleep: Sleep = asyncio.sleep) -> None:
    """Ask the server at `url` until it answers. Register with it first if it was restarted.

    The server identifies an environment by a number. If it fails, it does not know the number; if it answers
    after nothing listened at its address, the number may be another environment's. Then `register`.
    """
    waits = gone = False
    while True:
        error = await _failure(ask)
        if error is None and not gone:
            return
        if error is None or _is_fault(error):
            log.warning("%s has forgotten this environment: it registers again", url)
            error = await _failure(register)
            if error is None:
                waits = gone = False
                continue
        gone = gone or _nothing_listens(error)
        if not waits:
            log.warning("waiting for %s: %s", url, error)
        waits = True
        await sleep(SERVER_LOOK_S)


async def answered(call: Call, *, url: str, sleep: Sleep = asyncio.sleep) -> None:
    """Call until the server at `url` answers."""
    said = False
    while (error := await _failure(call)) is not None:
        if not said:
            log.warning("waiting for %s: %s", url, error)
        said = True
        await sleep(SERVER_LOOK_S)


async def reached(url: str, *, sleep: Sleep = asyncio.sleep) -> None:
    """Wait until the server at `url` is there. SettingError if something else answers."""

    async def look() -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url.rstrip('/')}/info") as answer:
            if answer.status >= 400:
                raise SettingError(
                    f"the server at {url} is not a run-api of Atropos ({answer.status}): start one, "
                    "or name its address with --env.rollout_server_url"
                )

    await answered(look, url=url, sleep=sleep)


def _is_fault(error: Exception) -> bool:
    """Whether the server itself failed, as it does for a number that it does not know."""
    return isinstance(error, aiohttp.ClientResponseError) and error.status == 500


def _nothing_listens(error: Exception) -> bool:
    """Whether no process listens there, so that the server's state is lost."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionRefusedError
    )


async def _failure(call: Call) -> Exception | None:
    """Why the server did not answer; None if it did. The library tries again, with an error of its own."""
    try:
        await call()
    except RetryError as error:
        found = error.last_attempt.exception()
        if not isinstance(found, aiohttp.ClientError | OSError):
            raise
        return found
    except (aiohttp.ClientError, OSError) as error:
        return error
    return None
