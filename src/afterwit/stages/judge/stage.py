"""The judge stage: claim an answered turn, ask, commit the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from afterwit.core.errors import AfterwitError, JudgeRefused, JudgeUnavailable
from afterwit.core.judging import (
    JudgeCall,
    JudgeCase,
    JudgePrompts,
    VoteRules,
    call_seed,
    case_of,
    conclude,
    questions,
)
from afterwit.core.terms import unjudged
from afterwit.core.verdict import Verdict
from afterwit.stages.judge.claims import STAGE, Claims, Clock
from afterwit.stages.judge.client import JudgeClient
from afterwit.stages.judge.recent_votes import RecentVotes
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.retry import BackOff, retrying
from afterwit.stages.worker import Signals, StageHealth, described, work
from afterwit.store import AsyncStore, Record
from afterwit.wire.model_text.tool_schema import schema_error

KEPT_TURNS = 256
"""Most waiting turns whose answers so far are kept in memory. For others the judge is asked again."""


class Judge:
    """Judges turns one by one; several of its steps may run at one time."""

    def __init__(
        self,
        *,
        store: AsyncStore,
        client: JudgeClient,
        prompts: JudgePrompts,
        settings: JudgeSettings,
        rules: VoteRules,
        owner: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._prompts = prompts
        self._settings = settings
        self._rules = rules
        self._sleep = clock.sleep
        self._room = asyncio.Semaphore(settings.max_concurrency)
        self._back_off = BackOff(
            base_s=settings.retry_base_s, max_s=settings.retry_max_s, random=clock.random
        )
        self._claims = Claims(
            store,
            owner=owner,
            lease_s=settings.lease_s,
            back_off=self._back_off,
            clock=clock,
            reads=rules.reads,
        )
        self._kept: dict[str, dict[JudgeCall, str]] = {}
        self._votes = RecentVotes()

    async def run(self, signals: Signals) -> None:
        """Judge until told to stop, `max_turns` turns at a time."""
        health = StageHealth(STAGE, self._claims.report, warning=self._votes.warning)
        async with asyncio.TaskGroup() as loops:
            for _ in range(self._settings.max_turns):
                loop = work(
                    self.step,
                    signals=signals,
                    health=health,
                    poll_s=self._settings.poll_s,
                    back_off=self._back_off,
                    lasting=(JudgeUnavailable, JudgeRefused),
                )
                loops.create_task(loop)

    async def step(self) -> bool:
        """Judge the oldest answered turn; False if none waits. Raises if the judge fails: the turn waits."""
        record = await self._claims.take()
        if record is None:
            return False
        try:
            async with self._claims.held(record):
                await self._settle(record)
        except asyncio.CancelledError:
            await self._claims.give_back(record)
            raise
        except JudgeUnavailable as error:
            await self._claims.give_back(record, error=str(error))
            raise
        except Exception as error:  # a fault of ours must not hold the turn for ever
            await self._claims.failed(record, described(error))
            raise
        return True

    async def _settle(self, record: Record) -> None:
        reason = unjudged(record.turn)
        if reason is None:
            verdict = await self._verdict(record)
            self._votes.add(verdict)
            await self._claims.commit(record, verdict)
        else:
            await self._claims.end(record, reason)

    async def _verdict(self, record: Record) -> Verdict:
        # in threads: a next state may be a megabyte of tool output, and the streams go on meanwhile
        judged, calls = await asyncio.to_thread(self._open, record)
        answers = await self._ask(record.turn.id, calls)
        return await asyncio.to_thread(conclude, judged, answers, self._rules)

    def _open(self, record: Record) -> tuple[JudgeCase, tuple[JudgeCall, ...]]:
        turn, next_state = record.turn, record.next_state
        if next_state is None:
            raise AfterwitError(f"turn {turn.id} is {record.state} without a next state")
        error = schema_error(turn.message, turn.conversation.tools)
        judged = case_of(turn, next_state, schema_error=error)
        return judged, questions(judged, self._prompts, self._rules)

    async def _ask(self, turn: str, calls: Sequence[JudgeCall]) -> list[tuple[JudgeCall, str]]:
        """Every call's answer. If some fail, the others' are kept, and only the failed are asked again."""
        kept = self._kept.pop(turn, {})
        missing = [call for call in calls if call not in kept]
        results = await asyncio.gather(
            *(self._answer(turn, call) for call in missing), return_exceptions=True
        )
        given = dict(zip(missing, results, strict=True))
        kept |= {call: words for call, words in given.items() if isinstance(words, str)}
        for failure in given.values():
            if isinstance(failure, BaseException):
                self._keep(turn, kept)
                raise failure
        return [(call, kept[call]) for call in calls]

    def _keep(self, turn: str, answers: dict[JudgeCall, str]) -> None:
        self._kept[turn] = answers
        while len(self._kept) > KEPT_TURNS:
            del self._kept[next(iter(self._kept))]

    async def _answer(self, turn: str, call: JudgeCall) -> str:
        return await retrying(
            lambda: self._once(turn, call),
            attempts=self._settings.attempts,
            back_off=self._back_off,
            sleep=self._sleep,
        )

    async def _once(self, turn: str, call: JudgeCall) -> str:
        async with self._room:
            return await self._client.ask(
                call.messages,
                temperature=self._settings.temperature,
                max_tokens=call.max_tokens,
                seed=call_seed(turn, call),
            )
