"""The growing conversation of one rollout: each turn is recorded as it was sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from afterwit.apps.atropos.agent.policy import Policy, Response
from afterwit.core import ids
from afterwit.core.message import Conversation, Message
from afterwit.core.rollout import Rollout
from afterwit.core.turn import Kind, Turn
from afterwit.core.verdict import Feedback

SCOPE = "atropos"


class Episode:
    """A policy's turns, and what the task answers to them."""

    def __init__(
        self,
        opening: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        policy: Policy,
        *,
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        """`tools` are OpenAI function schemas."""
        self._tools, self._policy, self._now, self._entropy = tuple(tools), policy, now, entropy
        self._session = self._id()
        self._parent: str | None = None
        self.messages = list(opening)
        self.turns: dict[int, Turn] = {}

    async def take_turn(self) -> Message:
        """The policy's next message, which now ends the conversation. It raises as `Policy.respond` does."""
        turn, now = self._id(), self._now()
        conversation = Conversation(messages=tuple(self.messages), tools=self._tools)
        response = await self._policy.respond(
            conversation, now=now, call_id=lambda index: ids.call_id(turn, index)
        )
        self.turns[len(self.messages)] = self._recorded(turn, now, response)
        self.messages.append(response.message)
        self._parent = turn
        return response.message

    def rollout(self, outcome: Feedback | None) -> Rollout:
        """What was recorded. The outcome is the next state of the last turn."""
        return Rollout(messages=tuple(self.messages), turns=self.turns, outcome=outcome)

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
