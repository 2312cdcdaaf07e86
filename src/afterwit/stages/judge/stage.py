"""The judge stage: claim an answered turn, ask, commit the verdict."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from afterwit.core.errors import AfterwitError, EngineUnavailable, JudgeUnavailable, StoreUnavailable
from afterwit.core.judge_checks.exam import ABLE
from afterwit.core.judging import (
    JudgePrompts,
    Reading,
    Verify,
    VoteRules,
    own_words,
    paid,
    unvoted,
    with_own_words,
)
from afterwit.core.judging.own_words import UNREAD
from afterwit.core.lifecycle import Reason
from afterwit.core.redaction import Redaction
from afterwit.core.terms import unjudged
from afterwit.core.turn import RecordedTurn
from afterwit.core.verdict import NextState, Verdict
from afterwit.stages.judge.ability import Examiner
from afterwit.stages.judge.claims import STAGE, AfterVerdict, Claims, Clock
from afterwit.stages.judge.client import JudgeClient
from afterwit.stages.judge.recent_votes import RecentVotes
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.judge.verdicts import Verdicts, case
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import Signals, StageHealth, described, frames, work
from afterwit.store import AsyncStore, Record

MANY = 3
"""Turns in a row that must fail before the stage says so."""
log = logging.getLogger(__name__)


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
        examiner: Examiner | None = None,
    ) -> None:
        """`after` is called in each verdict's transaction. Without an `examiner` the judge counts as able."""
        self._examiner = examiner
        self._failures = Failures()
        self._redaction = redaction
        self._settings, self._rules = settings, rules
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
        health = StageHealth(STAGE, self._claims.report, warning=self._warning)
        async with asyncio.TaskGroup() as loops:
            for _ in range(self._settings.max_turns):
                loop = work(
                    self.step,
                    signals=signals,
                    health=health,
                    poll_s=self._settings.poll_s,
                    back_off=self._back_off,
                    lasting=(JudgeUnavailable,),
                )
                loops.create_task(loop)

    def _warning(self) -> str | None:
        unable = None if self._examiner is None else self._examiner.fault
        return unable or self._failures.warning() or self._votes.warning()

    async def step(self) -> bool:
        """Judge the oldest answered turn; False if none waits.

        Raises if the judge or the store is away: the turn waits, and so do all others. What else fails is the
        turn's own: it is tried again later, and the next one is judged at once.
        """
        if self._examiner is not None:
            await self._examiner.ability()
        record = await self._claims.take()
        if record is None:
            return False
        try:
            async with self._claims.held(record):
                await self._settle(record)
        except asyncio.CancelledError:
            await self._claims.give_back(record)
            raise
        except (JudgeUnavailable, EngineUnavailable, StoreUnavailable) as error:
            await self._claims.give_back(record, error=str(error))
            raise
        except Exception as error:
            log.warning("judge: turn %s: %s%s", record.turn.id, described(error), frames(error))
            self._failures.add(described(error))
            await self._claims.failed(record, described(error))
        else:
            self._failures.clear()
        return True

    async def _settle(self, record: Record) -> None:
        record = await self._claims.told(record)
        reason = unjudged(record.turn)
        if reason is None and await asyncio.to_thread(self._redaction.in_message, record.turn.message):
            reason = Reason.HOLDS_SECRET
        if reason is None:
            verdict = await self._verdict(record)
            await self._claims.commit(record, verdict)
        else:
            await self._claims.end(record, reason)

    async def _verdict(self, record: Record) -> Verdict:
        if record.next_state is None:
            raise AfterwitError(f"turn {record.turn.id} is {record.state} without a next state")
        verdict = await self._found(record.turn, record.next_state)
        return replace(verdict, hints=tuple(h for h in verdict.hints if not self._redaction.found([h])))

    async def _found(self, turn: RecordedTurn, next_state: NextState) -> Verdict:
        """By votes as far as the judge is able, else by what needs none."""
        ability = ABLE if self._examiner is None else await self._examiner.ability()
        words = own_words(next_state)
        if not ability.votes:
            judged = await asyncio.to_thread(case, turn, next_state)
            return paid(unvoted(judged, next_state, await self._reading(words)), judged, self._rules)
        doubtful = self._settings.verify == "auto" and self._votes.doubtful
        verify = Verify.CONSISTENT if doubtful else None
        verdict = await self._verdicts.of(turn, next_state, verify=verify, hints=ability.hints)
        self._votes.add(verdict)
        if verdict.reward < 0 and not ability.hints:
            return with_own_words(verdict, words, Reading(value=-1, words="the judge's votes say so"))
        return verdict

    async def _reading(self, words: str) -> Reading:
        return UNREAD if self._examiner is None else await self._examiner.read(words)


class Failures:
    """Turns in a row that failed by themselves."""

    def __init__(self) -> None:
        self._count, self._words = 0, ""

    def add(self, words: str) -> None:
        self._count, self._words = self._count + 1, words

    def clear(self) -> None:
        self._count = 0

    def warning(self) -> str | None:
        """What is wrong, None while turns now and then can be judged."""
        if self._count < MANY:
            return None
        return f"the last {self._count} turns could not be judged: {self._words}"
