"""The agent's policy: samples the next turn and parses it by the model's own convention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from afterwit.api.serving import Engine, Renderer, respond
from afterwit.api.turns import Conversation, Finish, Message, Sampled, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response as it was sampled, and its parsed message."""

    conversation: Conversation
    """The rendered conversation, with its tools."""
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    sampled: Sampled
    message: Message
    finish: Finish


class Policy(Protocol):
    """Who takes the turns."""

    @property
    def model(self) -> str:
        """Its name, as it is recorded."""

    async def respond(
        self, conversation: Conversation, *, now: float, call_id: Callable[[int], str]
    ) -> Response:
        """Its next response. `call_id` names the tool call at an index.

        Raises RequestError if the conversation does not fit the model, EngineError if it cannot be sampled.
        """


class EnginePolicy:
    """The live weights of an engine."""

    def __init__(self, engine: Engine, renderer: Renderer, sampling: Sampling) -> None:
        self._engine, self._renderer, self._sampling = engine, renderer, sampling

    @property
    def model(self) -> str:
        return self._engine.facts.model

    async def respond(
        self, conversation: Conversation, *, now: float, call_id: Callable[[int], str]
    ) -> Response:
        prompt, reply = await respond(self._engine, self._renderer, conversation, self._sampling, now=now)
        return Response(
            conversation=prompt.conversation,
            prompt_ids=prompt.ids,
            sampling=prompt.sampling,
            sampled=reply.sampled(),
            message=reply.message(call_id),
            finish=reply.ending,
        )
