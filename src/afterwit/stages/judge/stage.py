"""The judge stage: claim an answered turn, ask, commit the verdict."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from afterwit.core.errors import AfterwitError, JudgeRefused, JudgeUnavailable
from afterwit.core.judging import JudgePrompts, Verify, VoteRules
from afterwit.core.lifecycle import Reason
from afterwit.core.redaction import Redaction
from afterwit.core.terms import unjudged
from afterwit.core.verdict import Verdict
from afterwit.stages.judge.claims import STAGE, AfterVerdict, Claims, Clock
from afterwit.stages.judge.client import JudgeClient
from afterwit.stages.judge.recent_votes import RecentVotes
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.judge.verdicts import Verdicts
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import Signals, StageHealth, described, work
from afterwit.store import AsyncStore, Record


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
        after: AfterVerdict,
        redaction: Redaction = Redaction(),
    ) -> None:
        """`after` is called in the transaction of each verdict."""
        self._redaction = redaction
        self._settings = settings
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
            after=after,
        )
        self._verdicts = Verdicts(
            client, prompts, rules, settings, back_off=self._back_off, sleep=clock.sleep
        )
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
        record = await self._claims.told(record)
        reason = unjudged(record.turn)
        if reason is None and await asyncio.to_thread(self._redaction.in_message, record.turn.message):
            reason = Reason.HOLDS_SECRET
        if reason is None:
            verdict = await self._verdict(record)
            self._votes.add(verdict)
            await self._claims.commit(record, verdict)
        else:
            await self._claims.end(record, reason)

    async def _verdict(self, record: Record) -> Verdict:
        if record.next_state is None:
            raise AfterwitError(f"turn {record.turn.id} is {record.state} without a next state")
        doubtful = self._settings.verify == "auto" and self._votes.doubtful
        verify = Verify.CONSISTENT if doubtful else None
        verdict = await self._verdicts.of(record.turn, record.next_state, verify=verify)
        return replace(verdict, hints=tuple(h for h in verdict.hints if not self._redaction.found([h])))
