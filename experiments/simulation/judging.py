"""The judge's part: verdicts on answered turns, every call of theirs in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.apps.demo.judge import Judge
from afterwit.core.judging.hindsight import (
    JudgeCall,
    JudgeCase,
    JudgePrompts,
    call_seed,
    case_of,
    conclude,
    questions,
)
from afterwit.core.judging.voting import VoteRules
from afterwit.core.turn import Turn
from afterwit.core.verdict import NextState, Verdict
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.stages.judge.clients import EngineJudge
from afterwit.wire.model_text.tool_schema import schema_error

Answered = tuple[Turn, NextState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """`program` stands in place of the engine's model where it is not None."""

    engine: EmbeddedEngine
    judge: EngineJudge
    program: Judge | None
    prompts: JudgePrompts
    rules: VoteRules
    temperature: float

    async def verdicts(self, answered: Sequence[Answered]) -> list[Verdict]:
        """A verdict for each turn, in order."""
        cases = [_case(turn, next_state) for turn, next_state in answered]
        calls = [questions(each, self.prompts, self.rules) for each in cases]
        asked = [(turn.id, call) for (turn, _), own in zip(answered, calls, strict=True) for call in own]
        words = iter(await self._ask(asked))
        return [
            conclude(each, [(call, next(words)) for call in own], self.rules)
            for each, own in zip(cases, calls, strict=True)
        ]

    async def _ask(self, asked: Sequence[tuple[str, JudgeCall]]) -> list[str]:
        if self.program is not None:
            return [self.program(_plain(call)) for _, call in asked]
        put = [
            self.judge.request(
                call.messages,
                temperature=self.temperature,
                max_tokens=call.max_tokens,
                seed=call_seed(turn, call),
            )
            for turn, call in asked
        ]
        generated = await self.engine.generate_together([request for _, request in put])
        return [self.judge.words(prompt, steps) for (prompt, _), steps in zip(put, generated, strict=True)]


def _case(turn: Turn, next_state: NextState) -> JudgeCase:
    return case_of(turn, next_state, schema_error=schema_error(turn.message, turn.conversation.tools))


def _plain(call: JudgeCall) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content or ""} for message in call.messages]
