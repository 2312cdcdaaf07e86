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

from afterwit.apps.atropos.agent.policy import Policy, Response
from afterwit.apps.atropos.agent.tools import NAMES, TOOLS, use
from afterwit.apps.atropos.reward import PASS, Reward, RewardWeights, reward
from afterwit.apps.atropos.tasks import SOLUTION, Task, TestVerdict, examine
from afterwit.apps.sandbox.box import Box, BoxLimits, Walls, open_box
from afterwit.core import ids
from afterwit.core.errors import RequestError
from afterwit.core.message import Conversation, Message
from afterwit.core.rollout import Rollout
from afterwit.core.turn import Kind, Turn
from afterwit.core.verdict import Feedback
from afterwit.wire.model_text.conventions import holds_unread_call

SCOPE = "atropos"
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
    now: Callable[[], float] = time.time,
    entropy: Callable[[int], bytes] = secrets.token_bytes,
) -> Played:
    """Let a policy solve a task, and examine its solution.

    Raises RequestError if the task does not fit the model, EngineError and BoxEnded as they come.
    """
    limits = limits or AgentLimits()
    episode = _Episode(task, policy, now, entropy)
    async with open_box(walls, limits.box) as box:
        ending = await episode.run(box, limits.max_turns)
        solution = await _solution(box)
    verdict = await examine(task, solution, walls, limits.box)
    outcome = Feedback(reward=1 if verdict.correctness >= PASS else -1, text=verdict.text)
    return Played(
        task=task,
        rollout=Rollout(messages=tuple(episode.messages), turns=episode.turns, outcome=outcome),
        verdict=verdict,
        reward=reward(
            correctness=verdict.correctness,
            turns=len(episode.turns),
            max_turns=limits.max_turns,
            tools=episode.tools,
            weights=weights or RewardWeights(),
        ),
        ending=ending,
    )


class _Episode:
    """The growing conversation of one rollout."""

    def __init__(
        self, task: Task, policy: Policy, now: Callable[[], float], entropy: Callable[[int], bytes]
    ) -> None:
        self._policy, self._now, self._entropy = policy, now, entropy
        self._session = self._id()
        self._parent: str | None = None
        self.messages = [Message(role="system", content=SYSTEM), Message(role="user", content=task.prompt)]
        self.turns: dict[int, Turn] = {}
        self.tools: set[str] = set()
        """Those that were called."""

    async def run(self, box: Box, max_turns: int) -> Ending:
        """Take turns until it ends."""
        for _ in range(max_turns):
            try:
                message = await self._take_turn()
            except RequestError as error:
                if error.code != CONTEXT_FULL or not self.turns:
                    raise
                return Ending.CONTEXT
            if not message.tool_calls and not holds_unread_call(message.content or ""):
                return Ending.DONE
            await self._answer(message, box)
        return Ending.TURNS

    async def _take_turn(self) -> Message:
        turn, now = self._id(), self._now()
        conversation = Conversation(messages=tuple(self.messages), tools=TOOLS)
        response = await self._policy.respond(
            conversation, now=now, call_id=lambda index: ids.call_id(turn, index)
        )
        self.turns[len(self.messages)] = self._recorded(turn, now, response)
        self.messages.append(response.message)
        self._parent = turn
        return response.message

    async def _answer(self, message: Message, box: Box) -> None:
        """What the tools say, as the next state of the turn."""
        if not message.tool_calls:
            self.messages.append(Message(role="user", content=UNREAD))
        for call in message.tool_calls:
            self.tools |= {call.name} & NAMES
            said = await use(call, box)
            self.messages.append(Message(role="tool", content=said, tool_call_id=call.id, name=call.name))

    def _recorded(self, turn: str, now: float, response: Response) -> Turn:
        return Turn(
            id=turn,
            scope=SCOPE,
            session=self._session,
            parent=self._parent,
            kind=Kind.MAIN,
            created=now,
            model=self._policy.model,
            conversation=response.conversation,
            message=response.message,
            finish=response.finish,
            prompt_ids=response.prompt_ids,
            sampling=response.sampling,
            sampled=response.sampled,
        )

    def _id(self) -> str:
        return ids.turn_id(self._now(), self._entropy(ids.ENTROPY_BYTES - 1) + b"\0")


async def _solution(box: Box) -> str | None:
    try:
        return await box.read(SOLUTION)
    except OSError:
        return None
