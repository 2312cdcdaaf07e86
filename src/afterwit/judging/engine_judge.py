"""The engine that serves, as the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing

from afterwit.chat_format.detokenize import Detokenizer
from afterwit.chat_format.families import THINK
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Generate, Step, Weights
from afterwit.errors import (
    EngineError,
    JudgeRefused,
    JudgeUnavailable,
    RequestError,
    RequestRefused,
    SettingError,
)
from afterwit.judging.voting import Answer
from afterwit.message import Conversation, Message
from afterwit.turn import Sampling


class EngineJudge:
    """The engine below the gateway: its calls are not recorded and yield to people's requests."""

    def __init__(self, engine: Engine, renderer: Renderer, *, weights: Weights, thinking: bool) -> None:
        """SettingError if the engine does not serve these weights."""
        if weights is Weights.BASE and not engine.capabilities.base_weights:
            remedy = engine.capabilities.remedies.get("base_weights", "set judge.weights to live")
            raise SettingError(f"this engine serves no base weights to judge with: {remedy}")
        self._engine = engine
        self._renderer = renderer
        self._weights = weights
        self._thinking = thinking

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        prompt, request = await asyncio.to_thread(
            self.request, messages, temperature=temperature, max_tokens=max_tokens, seed=seed
        )
        try:
            async with aclosing(self._engine.generate(request)) as steps:
                return self.answer(prompt, [step async for step in steps])
        except RequestRefused as error:
            raise JudgeRefused(f"the engine refuses the judge's question: {error}") from error
        except EngineError as error:
            raise JudgeUnavailable(f"the engine cannot judge: {error}") from error

    def request(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> tuple[str, Generate]:
        """The prompt as text and the engine's request. Raises JudgeRefused if it does not render or fit."""
        prompt, ids = self._render(tuple(messages))
        room = self._engine.facts.context_length - len(ids)
        if room < 1:
            raise JudgeRefused(
                f"the judge's prompt has {len(ids)} tokens, its context {self._engine.facts.context_length}:"
                " lower judge.context_chars and the other lengths"
            )
        sampling = Sampling(max_tokens=min(max_tokens, room), temperature=temperature, seed=seed)
        return prompt, Generate(prompt_ids=ids, sampling=sampling, weights=self._weights, background=True)

    def answer(self, prompt: str, steps: Iterable[Step]) -> Answer:
        """The text of the answer, with reasoning of any format between the marks that votes know."""
        convention, detokenizer = self._renderer.convention.without_calls, Detokenizer.of(self._renderer)
        parser = ResponseParser(convention, thought=convention.open_thought(prompt))
        ended = None
        for step in steps:
            parser.push(detokenizer.push(step.ids))
            ended = step.ended
        parser.push(detokenizer.finish())
        parser.finish()
        message = parser.message(str)
        thought = "" if message.reasoning is None else f"{THINK.begin}{message.reasoning}{THINK.end}"
        return Answer(words=thought + (message.content or ""), finished=ended == "stop")

    def _render(self, messages: tuple[Message, ...]) -> tuple[str, tuple[int, ...]]:
        conversation = Conversation(messages=messages, template_args={"enable_thinking": self._thinking})
        try:
            return self._renderer.text(conversation), self._renderer.prompt_ids(conversation)
        except RequestError as error:
            raise JudgeRefused(f"the judge's prompt cannot be rendered: {error}") from error
