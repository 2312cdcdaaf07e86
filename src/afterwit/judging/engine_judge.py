"""The engine that serves, as the judge: it writes answers, or is read by its log-probs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from itertools import islice
from math import fsum

from afterwit.chat_format.encode import Detokenizer
from afterwit.chat_format.families import THINK
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Generate, Score, Weights
from afterwit.errors import (
    EngineError,
    JudgeRefused,
    JudgeUnavailable,
    QuestionTooLong,
    RequestError,
    RequestRefused,
    SettingError,
)
from afterwit.judging.polarity import LONGEST_READ, REPLIES, LogProbs, Subject, alternating
from afterwit.judging.voting import Answer
from afterwit.turn import Conversation, Message, Sampling

LEAST_ROOM = 16
"""An answer needs room for this fraction of its most tokens: one that is cut is not a vote."""


class EngineJudge:
    """The engine below the gateway: its calls are not recorded. In the background they yield to people's
    requests."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        *,
        weights: Weights,
        thinking: bool,
        background: bool = True,
    ) -> None:
        """SettingError if the engine does not serve these weights."""
        if weights is Weights.BASE and not engine.capabilities.base_weights:
            remedy = engine.capabilities.remedies.get("base_weights", "set judge.weights to live")
            raise SettingError(f"this engine serves no base weights to judge with: {remedy}")
        self._engine, self._renderer, self._weights, self._thinking = engine, renderer, weights, thinking
        self._background = background

    @property
    def urgent(self) -> EngineJudge:
        """The same judge, whose calls take their turn among people's requests."""
        weights, thinking = self._weights, self._thinking
        return EngineJudge(self._engine, self._renderer, weights=weights, thinking=thinking, background=False)

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        conversation = Conversation(
            messages=tuple(messages), template_args={"enable_thinking": self._thinking}
        )
        return await self.answer(conversation, temperature=temperature, max_tokens=max_tokens, seed=seed)

    async def answer(
        self, conversation: Conversation, *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        """The answer, with reasoning of any format between the marks that votes know; calls stay text.

        Raises JudgeUnavailable or JudgeRefused.
        """
        prompt, ids = await asyncio.to_thread(self._render, conversation)
        context = self._engine.facts.context_length
        room = min(max_tokens, context - len(ids))
        if room < max(1, max_tokens // LEAST_ROOM):
            raise QuestionTooLong(
                f"the judge's prompt has {len(ids)} tokens, its context {context}: lower judge.context_chars"
                " and the other lengths"
            )
        sampling = Sampling(max_tokens=room, temperature=temperature, seed=seed)
        request = Generate(
            prompt_ids=ids, sampling=sampling, weights=self._weights, background=self._background
        )
        convention, detokenizer = self._renderer.convention.without_calls, Detokenizer.of(self._renderer)
        parser, ended = ResponseParser(convention, thought=convention.open_thought(prompt)), None
        try:
            async with aclosing(self._engine.generate(request)) as steps:
                async for step in steps:
                    parser.push(detokenizer.push(step.ids))
                    ended = step.ended
        except RequestRefused as error:
            raise JudgeRefused(f"the engine refuses the judge's question: {error}") from error
        except EngineError as error:
            raise JudgeUnavailable(f"the engine cannot judge: {error}") from error
        parser.push(detokenizer.finish())
        parser.finish()
        message = parser.message(str)
        thought = "" if message.reasoning is None else f"{THINK.begin}{message.reasoning}{THINK.end}"
        return Answer(words=thought + (message.content or ""), finished=ended == "stop")

    def _render(self, conversation: Conversation) -> tuple[str, tuple[int, ...]]:
        try:
            return self._renderer.text(conversation), self._renderer.prompt_ids(conversation)
        except RequestError as error:
            raise JudgeRefused(f"the judge's prompt cannot be rendered: {error}") from error


class EngineReader:
    """Reads with the served model: its frozen weights if it has any."""

    replies = REPLIES

    def __init__(self, engine: Engine, renderer: Renderer) -> None:
        self._engine, self._renderer = engine, renderer
        self._weights = Weights.BASE if engine.capabilities.base_weights else Weights.LIVE

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        if not self._engine.capabilities.scored_ids:
            raise EngineError("this engine does not score texts")
        rows = [await asyncio.to_thread(self._rows, text, subject) for text in texts]
        flat = [row for each in rows for row in each]
        scored = await self._engine.score(flat, top=1, weights=self._weights)
        sums = iter([fsum(each.logprobs) for each in scored])
        return [tuple(islice(sums, len(each))) for each in rows]

    def _rows(self, text: str, subject: Subject) -> list[Score]:
        rows = subject.rows(text[:LONGEST_READ])
        prompts = {before: self._prompt_ids(before) for before in {before for before, _ in rows}}
        return [
            Score(prompt_ids=prompts[before], response_ids=self._renderer.encode(said))
            for before, said in rows
        ]

    def _prompt_ids(self, said: Sequence[str]) -> tuple[int, ...]:
        conversation = Conversation(messages=alternating(said), template_args={"enable_thinking": False})
        return self._renderer.prompt_ids(conversation)
