"""The verdict of a turn: all questions are asked concurrently, and the answers counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from afterwit.chat_format.tool_schema import schema_error
from afterwit.judging.answered import without_answered_calls
from afterwit.judging.questions import (
    JudgeCall,
    JudgeCase,
    JudgePrompts,
    call_seed,
    case_of,
    conclude,
    questions,
)
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.voting import Answer, Verify, VoteRules
from afterwit.message import Message
from afterwit.retry import BackOff, retrying
from afterwit.turn import RecordedTurn
from afterwit.verdict import NextState, Verdict

KEPT_TURNS = 256
"""Most waiting turns whose answers so far stay in memory. The judge answers again for others."""


class Verdicts:
    """Makes verdicts, several concurrently. `max_concurrency` bounds their calls together."""

    def __init__(
        self,
        client: JudgeClient,
        prompts: JudgePrompts,
        rules: VoteRules,
        settings: JudgeSettings,
        *,
        back_off: BackOff,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._client, self._prompts, self._rules, self._settings = client, prompts, rules, settings
        self._back_off, self._sleep = back_off, sleep
        self._room = asyncio.Semaphore(settings.max_concurrency)
        self._kept: dict[str, dict[JudgeCall, Answer]] = {}

    async def of(
        self,
        turn: RecordedTurn,
        next_state: NextState,
        *,
        verify: Verify | None = None,
        hints: bool = True,
    ) -> Verdict:
        """The verdict. `verify` replaces the rules' own; without `hints` none are asked for.

        Raises JudgeUnavailable or JudgeRefused. Answers that came are kept for the next attempt.
        """
        # in threads: a next state may be a megabyte of tool output, and the streams go on meanwhile
        rules = replace(self._rules, hints=hints, verify=verify or self._rules.verify)
        judged, calls = await asyncio.to_thread(_open, turn, next_state, self._prompts, rules)
        answers = await self._ask(turn.id, calls)
        return await asyncio.to_thread(conclude, judged, answers, rules)

    async def _ask(self, turn: str, calls: Sequence[JudgeCall]) -> list[tuple[JudgeCall, Answer]]:
        """Every call's answer. If some fail, the others' are kept, and only the failed are asked again."""
        kept = self._kept.pop(turn, {})
        missing = [call for call in calls if call not in kept]
        results = await asyncio.gather(
            *(self._answer(turn, call) for call in missing), return_exceptions=True
        )
        given = dict(zip(missing, results, strict=True))
        kept |= {call: said for call, said in given.items() if isinstance(said, Answer)}
        for failure in given.values():
            if isinstance(failure, BaseException):
                self._keep(turn, kept)
                raise failure
        return [(call, kept[call]) for call in calls]

    def _keep(self, turn: str, answers: dict[JudgeCall, Answer]) -> None:
        self._kept[turn] = answers
        while len(self._kept) > KEPT_TURNS:
            del self._kept[next(iter(self._kept))]

    async def _answer(self, turn: str, call: JudgeCall) -> Answer:
        return await retrying(
            lambda: self._once(turn, call),
            attempts=self._settings.attempts,
            back_off=self._back_off,
            sleep=self._sleep,
        )

    async def _once(self, turn: str, call: JudgeCall) -> Answer:
        async with self._room:
            return await self._client.ask(
                call.messages,
                temperature=self._settings.temperature,
                max_tokens=call.max_tokens,
                seed=call_seed(turn, call),
            )


def case(turn: RecordedTurn, next_state: NextState) -> JudgeCase:
    """The case of a turn. May take a while: its schema is checked."""
    unanswered = without_answered_calls(turn.message, next_state.messages)
    return case_of(turn, next_state, schema_error=schema_error(unanswered, turn.conversation.tools))


def _open(
    turn: RecordedTurn, next_state: NextState, prompts: JudgePrompts, rules: VoteRules
) -> tuple[JudgeCase, tuple[JudgeCall, ...]]:
    judged = case(turn, next_state)
    return judged, questions(judged, prompts, rules)


class JudgeClient(Protocol):
    """Asks the judge once."""

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        """The answer. Raises JudgeUnavailable (it may answer later) or JudgeRefused (it never will)."""
