"""One rollout: the policy and its tools take turns, then the task's hidden tests decide.

The tests are run when the agent is done, in other boxes: while its commands run they are in no file,
environment or process that these could reach.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from afterwit.apps.atropos.agent.episode import Episode
from afterwit.apps.atropos.agent.policy import Policy
from afterwit.apps.atropos.agent.tools import TOOLS, mistake, use
from afterwit.apps.atropos.reward import PASS, Reward, RewardWeights, reward
from afterwit.apps.atropos.tasks import SOLUTION, Task, TestVerdict, examine
from afterwit.apps.sandbox.box import Box, BoxLimits, Walls, open_box
from afterwit.core.errors import BoxEnded, RequestError
from afterwit.core.message import Message
from afterwit.core.rollout import Rollout
from afterwit.core.verdict import Feedback
from afterwit.wire.model_text.conventions import holds_unread_call

SYSTEM = (
    "You solve a programming task in Python. Work in the current folder with your tools, and leave the "
    f"solution in {SOLUTION}. Test it before you end. When it is done, say so without calling a tool."
)
UNREAD = "A tool call could not be read. Write it as the tools' description says."
CONTEXT_FULL = "context_length_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """What an agent may do."""

    max_turns: int = 15
    box: BoxLimits = field(default_factory=BoxLimits)

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {self.max_turns}")


class Ending(StrEnum):
    """Why an agent stopped."""

    DONE = "done"
    """It called no more tools."""
    TURNS = "turns"
    """It had no turn left."""
    CONTEXT = "context"
    """The conversation no longer fits the model."""
    BOX = "box"
    """Its commands ended their box. Nothing of it is left, so no test passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A rollout with what came of it."""

    task: Task
    rollout: Rollout
    """Its outcome is the tests' verdict: the next state of the last turn."""
    verdict: TestVerdict
    reward: Reward
    ending: Ending


async def play(
    task: Task,
    policy: Policy,
    walls: Walls,
    *,
    limits: AgentLimits | None = None,
    weights: RewardWeights | None = None,
    system: str = SYSTEM,
    now: Callable[[], float] = time.time,
    entropy: Callable[[int], bytes] = secrets.token_bytes,
) -> Played:
    """Let a policy solve a task, and examine its solution.

    Raises RequestError if the task does not fit the model, EngineError as it comes, and BoxEnded if a box
    does not come up. An agent that ends its own box has left no solution: else one that fails could have its
    group lost.
    """
    limits = limits or AgentLimits()
    opening = (Message(role="system", content=system), Message(role="user", content=task.prompt))
    episode = Episode(opening, TOOLS, policy, now=now, entropy=entropy)
    async with open_box(walls, limits.box) as box:
        agent = _Coding(episode, box)
        ending = await agent.run(limits.max_turns)
        solution = await _solution(box)
    verdict = await examine(task, solution, walls, limits.box)
    outcome = Feedback(reward=1 if verdict.correctness >= PASS else -1, text=verdict.text)
    return Played(
        task=task,
        rollout=episode.rollout(outcome),
        verdict=verdict,
        reward=reward(
            correctness=verdict.correctness,
            turns=len(episode.turns),
            max_turns=limits.max_turns,
            tools=agent.tools,
            weights=weights or RewardWeights(),
        ),
        ending=ending,
    )


class _Coding:
    """A policy with its tools in a box."""

    def __init__(self, episode: Episode, box: Box) -> None:
        self._episode, self._box = episode, box
        self.tools: set[str] = set()
        """Those that were called as their schemas say."""

    async def run(self, max_turns: int) -> Ending:
        """Take turns until it ends."""
        for _ in range(max_turns):
            try:
                message = await self._episode.take_turn()
            except RequestError as error:
                if error.code != CONTEXT_FULL or not self._episode.turns:
                    raise
                return Ending.CONTEXT
            if not message.tool_calls and not holds_unread_call(message.content or ""):
                return Ending.DONE
            if not await self._answer(message):
                return Ending.BOX
        return Ending.TURNS

    async def _answer(self, message: Message) -> bool:
        """What the tools say, as the next state of the turn; whether the box is still there."""
        said, there = self._episode.messages, True
        if not message.tool_calls:
            said.append(Message(role="user", content=UNREAD))
        for call in message.tool_calls:
            if mistake(call) is None:
                self.tools.add(call.name)
            try:
                result = await use(call, self._box)
            except BoxEnded as error:
                result, there = f"error: {error}", False
            said.append(Message(role="tool", content=result, tool_call_id=call.id, name=call.name))
        return there


async def _solution(box: Box) -> str | None:
    try:
        return await box.read(SOLUTION)
    except (OSError, BoxEnded):
        return None
