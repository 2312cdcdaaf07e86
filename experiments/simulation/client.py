"""Many conversations at once: what the gateway makes of requests, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Generic, TypeVar

from afterwit.apps.demo.people import Answer, Ask, Script
from afterwit.apps.demo.world import Message, World
from afterwit.core import ids
from afterwit.core.turn import Kind, Turn
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.port import Generate, Step
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.stages.gateway.turn import Prompt, Reply, prepare
from afterwit.wire.model_text.detokenize import Detokenizer
from afterwit.wire.model_text.render import Renderer
from afterwit.wire.model_text.response_parser import ResponseParser
from afterwit.wire.openai_chat import OPENAI_CHAT

T = TypeVar("T")
SCOPE = "simulation"
UNASKED = Answer(message={"role": "assistant", "content": ""}, turn="")
"""Stands for an answer that nothing follows: nobody samples it."""


@dataclass(slots=True, kw_only=True)
class Conversation(Generic[T]):
    """A script that is being played. Every draw of it follows from its session's name."""

    script: Script[T]
    session: str
    kind: Kind
    temperature: float
    turns: list[Turn] = field(default_factory=list)
    ask: Ask | None = None
    """What it waits for; None once it has ended."""
    result: T | None = None

    def begin(self) -> None:
        self.go_on(None)

    def go_on(self, answer: Answer | None) -> None:
        """To its next ask, or its end."""
        try:
            self.ask = next(self.script) if answer is None else self.script.send(answer)
            if self.ask.last:
                self.go_on(UNASKED)
        except StopIteration as ended:
            self.ask, self.result = None, ended.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One world's requests on one engine."""

    engine: EmbeddedEngine
    renderer: Renderer
    world: World

    async def hold(self, conversations: Sequence[Conversation[T]], *, now: float) -> None:
        """Play all of them to their ends, answer by answer, each round of answers in one batch.

        `now` is when their turns are made: with the sessions' names it makes the turns' ids.
        """
        for one in conversations:
            one.begin()
        while waiting := [one for one in conversations if one.ask is not None]:
            await self._answer(waiting, now)

    async def _answer(self, waiting: Sequence[Conversation[Any]], now: float) -> None:
        draws = [Random(f"{one.session} {len(one.turns)}") for one in waiting]
        prompts = [self._prompt(one, draw, now) for one, draw in zip(waiting, draws, strict=True)]
        generated = await self.engine.generate_together(
            [Generate(prompt_ids=prompt.ids, sampling=prompt.sampling) for prompt in prompts]
        )
        for one, draw, prompt, steps in zip(waiting, draws, prompts, generated, strict=True):
            turn = self._turn(one, draw, prompt, steps, now)
            one.turns.append(turn)
            one.go_on(Answer(message=_shown(turn.message.to_dict()), turn=turn.id))

    def _prompt(self, one: Conversation[Any], draw: Random, now: float) -> Prompt:
        assert one.ask is not None
        body: dict[str, Any] = {
            "messages": one.ask.messages,
            "tools": list(self.world.tools) or None,
            "temperature": one.temperature,
            "max_tokens": one.ask.max_tokens or self.world.max_tokens,
            "seed": draw.getrandbits(63),
        }
        asked = OPENAI_CHAT.parse(body, GatewaySettings().request_limits)
        context = self.engine.facts.context_length
        return prepare(asked, self.renderer, context_length=context, now=now)

    def _turn(
        self, one: Conversation[Any], draw: Random, prompt: Prompt, steps: Sequence[Step], now: float
    ) -> Turn:
        reply, name = self._read(prompt, steps), ids.turn_id(now, draw.randbytes(ids.ENTROPY_BYTES))
        return Turn(
            id=name,
            scope=SCOPE,
            session=one.session,
            parent=one.turns[-1].id if one.turns else None,
            kind=one.kind,
            created=now,
            model=self.engine.facts.model,
            conversation=prompt.conversation,
            prompt_ids=prompt.ids,
            sampling=replace(prompt.sampling, seed=None),
            sampled=reply.sampled(),
            message=reply.message(lambda index: ids.call_id(name, index)),
            finish=reply.ending,
        )

    def _read(self, prompt: Prompt, steps: Sequence[Step]) -> Reply:
        reply = Reply(
            detokenizer=Detokenizer.of(self.renderer),
            parser=ResponseParser(prompt.convention, reasoning=prompt.reasoning),
            basis=self.engine.facts.basis,
        )
        for step in steps:
            reply.push(step)
        reply.finish()
        return reply


def _shown(message: Mapping[str, Any]) -> Message:
    """What a client sends back of a response."""
    return {key: message[key] for key in ("role", "content", "tool_calls") if key in message}
