"""Plays items on one server and scores each rollout as soon as it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from afterwit.api.serving import Engine, Weights
from afterwit.api.turns import Conversation, Reason, Sampling
from afterwit_atropos.group import Profile
from afterwit_atropos.hindsight import Hindsight
from afterwit_atropos.policy import Policy, Response
from afterwit_atropos.rollout import ScoredRollout, Unscored
from afterwit_atropos.rollout_groups import group_of
from afterwit_atropos.task_sets import Attempt, TaskSet
from afterwit_atropos.wire import write

if TYPE_CHECKING:
    from afterwit_atropos.model_server import EngineServer

Done = tuple[Attempt, ScoredRollout]


class Player:
    """A task set on one server."""

    def __init__(
        self, tasks: TaskSet, server: EngineServer, sampling: Sampling, hindsight: Hindsight | None
    ) -> None:
        """Without `hindsight` no turn has rows."""
        self._tasks, self._server, self._sampling, self._hindsight = tasks, server, sampling, hindsight

    @property
    def engine(self) -> Engine:
        return self._server.engine

    @property
    def top_k(self) -> int | None:
        """Most ids of a teacher's row; None: there are none."""
        return self._hindsight.top_k if self._hindsight else None

    async def play(self, item: Any) -> Done:
        """One rollout of an item, scored. It raises as `TaskSet.play` and `Hindsight.score` do."""
        policy = _Bounded(self._server.policy(self._sampling), self._server.sem)
        attempt = await self._tasks.play(item, policy, measuring=False)
        if self._hindsight is None:
            turns = tuple(Unscored(turn=turn, reason=Reason.NO_SIGNAL) for turn in attempt.rollout.in_order)
            return attempt, ScoredRollout(rollout=attempt.rollout, turns=turns, teacher=Weights.LIVE)
        return attempt, await self._hindsight.score(attempt.rollout)

    async def measure(self, item: Any, sampling: Sampling) -> Attempt:
        """One rollout for measurement; it never trains."""
        policy = _Bounded(self._server.policy(sampling), self._server.eval_sem)
        return await self._tasks.play(item, policy, measuring=True)


def group_data(
    done: Sequence[Done], profile: Profile, top_k: int | None, *, messages: bool
) -> dict[str, Any] | None:
    """The rollouts of one item as a `ScoredDataGroup`; None if they say nothing: equal rewards and no row."""
    scores = [attempt.reward.total for attempt, _ in done]
    group = group_of([scored for _, scored in done], scores, top_k=top_k)
    if not any(scored.scored for _, scored in done):
        if len(set(scores)) == 1:
            return None
        bare = tuple(replace(sequence, rows=None) for sequence in group.sequences)
        group = replace(group, sequences=bare)
    data = write(group, profile)
    return data if messages else {**data, "messages": None}


class _Bounded:
    """A policy under the bound that the library weighs by."""

    def __init__(self, policy: Policy, room: Any) -> None:
        self._policy, self._room = policy, room

    @property
    def model(self) -> str:
        return self._policy.model

    async def respond(self, conversation: Conversation, **asked: Any) -> Response:
        async with self._room:
            return await self._policy.respond(conversation, **asked)
