"""The agent's policy: samples the next turn and parses it by the model's own convention."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from afterwit.api.dialects import ModelRequest
from afterwit.api.serving import (
    Capabilities,
    Detokenizer,
    Facts,
    Generate,
    Renderer,
    Reply,
    ResponseParser,
    Step,
    prepare,
)
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


class Sampler(Protocol):
    """The engine's part of a policy."""

    facts: Facts
    capabilities: Capabilities

    def generate(self, request: Generate) -> AsyncGenerator[Step, None]: ...


class EnginePolicy:
    """The live weights of an engine."""

    def __init__(self, engine: Sampler, renderer: Renderer, sampling: Sampling) -> None:
        self._engine, self._renderer, self._sampling = engine, renderer, sampling

    @property
    def model(self) -> str:
        return self._engine.facts.model

    async def respond(
        self, conversation: Conversation, *, now: float, call_id: Callable[[int], str]
    ) -> Response:
        asked = ModelRequest(model=None, conversation=conversation, sampling=self._sampling)
        length = self._engine.facts.context_length
        prompt = await asyncio.to_thread(prepare, asked, self._renderer, context_length=length, now=now)
        tools = prompt.conversation.tools
        reply = Reply(
            detokenizer=Detokenizer.of(self._renderer),
            parser=ResponseParser(prompt.convention, thought=prompt.thought, tools=tools),
            stops=prompt.sampling.stop,
            basis=self._engine.capabilities.basis,
        )
        request = Generate(prompt_ids=prompt.ids, sampling=prompt.sampling)
        async with aclosing(self._engine.generate(request)) as steps:
            async for step in steps:
                reply.push(step)
                if reply.done:
                    break
        reply.finish()
        return Response(
            conversation=prompt.conversation,
            prompt_ids=prompt.ids,
            sampling=prompt.sampling,
            sampled=reply.sampled(),
            message=reply.message(call_id),
            finish=reply.ending,
        )
