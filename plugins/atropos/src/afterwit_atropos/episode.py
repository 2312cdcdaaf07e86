"""A policy's turns and what a task answers to them, recorded as they were sampled."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from afterwit.api.serving import Engine, Prompt, Renderer, Reply, respond
from afterwit.api.turns import (
    ENTROPY_BYTES,
    Conversation,
    Feedback,
    Kind,
    Message,
    Sampling,
    Turn,
    call_id,
    turn_id,
)
from afterwit_atropos.reward import Reward
from afterwit_atropos.rollout import Rollout

SCOPE = "atropos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One task as a policy did it."""

    rollout: Rollout
    """As it was recorded; what came of the task is the next state of its last turn."""
    reward: Reward


@dataclass(frozen=True, slots=True)
class Policy:
    """The live weights of an engine, which take the turns."""

    engine: Engine
    renderer: Renderer
    sampling: Sampling
    room: AbstractAsyncContextManager[Any] = field(default_factory=nullcontext)
    """Bounds the responses under way."""

    async def respond(self, conversation: Conversation, *, now: float) -> tuple[Prompt, Reply]:
        """The next response, parsed by the model's own convention.

        Raises RequestError if the conversation does not fit the model, EngineError if it cannot be sampled.
        """
        async with self.room:
            return await respond(self.engine, self.renderer, conversation, self.sampling, now=now)


class Episode:
    """A conversation whose assistant is a policy."""

    def __init__(
        self, opening: Sequence[Message], tools: Sequence[Mapping[str, Any]], policy: Policy
    ) -> None:
        """`tools` are OpenAI function schemas."""
        self._tools, self._policy = tuple(tools), policy
        self._session = _id(time.time())
        self._parent: str | None = None
        self.messages = list(opening)
        self.turns: dict[int, Turn] = {}

    async def take_turn(self) -> Message:
        """The policy's next message, which now ends the conversation. It raises as `Policy.respond` does."""
        now = time.time()
        turn = _id(now)
        conversation = Conversation(messages=tuple(self.messages), tools=self._tools)
        prompt, reply = await self._policy.respond(conversation, now=now)
        message = reply.message(lambda index: call_id(turn, index))
        self.turns[len(self.messages)] = Turn(
            id=turn,
            scope=SCOPE,
            session=self._session,
            parent=self._parent,
            kind=Kind.MAIN,
            created=now,
            model=self._policy.engine.facts.model,
            conversation=prompt.conversation,
            message=message,
            finish=reply.ending,
            prompt_ids=prompt.ids,
            sampling=prompt.sampling,
            sampled=reply.sampled(),
        )
        self.messages.append(message)
        self._parent = turn
        return message

    def rollout(self, outcome: Feedback | None) -> Rollout:
        """The recorded rollout. The outcome is the next state of the last turn."""
        return Rollout(messages=tuple(self.messages), turns=self.turns, outcome=outcome)


def _id(now: float) -> str:
    return turn_id(now, secrets.token_bytes(ENTROPY_BYTES - 1) + b"\0")
