"""The judge stage: claim an answered turn, ask, commit the verdict."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from afterwit.adapters import SHARED
from afterwit.binding.next_state import with_assistant_summaries
from afterwit.errors import AfterwitError, EngineUnavailable, JudgeUnavailable, StoreUnavailable
from afterwit.judging.ability import Examiner
from afterwit.judging.checks import MOST_WRONG, agreement
from afterwit.judging.exam import ABLE
from afterwit.judging.own_words import UNREAD, Reading, own_words, unvoted, with_own_words
from afterwit.judging.questions import JudgePrompts, paid, view_of
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.verdicts import JudgeClient, Verdicts, case
from afterwit.judging.voting import CUT, Verify, VoteRules
from afterwit.lifecycle import Reason
from afterwit.message import Message
from afterwit.promotion.episodes import closes
from afterwit.retry import BackOff
from afterwit.store import AsyncStore, Filter, Record, Store
from afterwit.teaching.hint_flags import hint_flags
from afterwit.teaching.redaction import Redaction
from afterwit.teaching.sources import Votes, contradicts, previous, several, signature
from afterwit.terms import Reads, unjudged
from afterwit.tracking.traces import span
from afterwit.turn import Kind, RecordedTurn, Turn
from afterwit.verdict import Flag, NextState, Question, Verdict
from afterwit.worker import Signals, StageHealth, described, frames, renewing, work

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
            began = time.time()
            verdict = await self._verdict(record)
            await self._claims.commit(record, verdict)
            hinted = bool(verdict.hints)
            span("judge", record.turn.id, began, time.time(), reward=verdict.reward, hinted=hinted)
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


STAGE: Literal["judge"] = "judge"


GIVE_UP_AFTER = 8
"""Failed attempts after which a turn ends as `judge_failed`; `requeue` puts it back. An attempt fails if the
judge refuses the question, or by a fault of ours. A judge that does not answer never ends a turn."""


MOST_BESIDE = 16
"""Side turns of a session whose replies are looked up, the newest first."""


class AfterVerdict(Protocol):
    """What else changes with a stored verdict, or with the end of a turn that has none: one transaction."""

    def __call__(self, store: Store, turn: str, *, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time and chance, given from above."""

    now: Callable[[], float]
    """Seconds since the epoch."""
    sleep: Callable[[float], Awaitable[object]]
    random: Callable[[], float]
    """Uniform in [0, 1)."""


class Claims:
    """The turns that one worker holds."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        owner: str,
        lease_s: float,
        back_off: BackOff,
        clock: Clock,
        reads: Reads,
        after: AfterVerdict,
    ) -> None:
        self._store = store
        self._reads = reads
        self._after = after
        self._owner = owner
        self._lease_s = lease_s
        self._back_off = back_off
        self._now = clock.now
        self._sleep = clock.sleep

    async def take(self) -> Record | None:
        """The oldest answered turn that no worker holds; None if there is none."""
        owner, lease_s, now = self._owner, self._lease_s, self._now()
        claimed = await self._store.call(
            lambda store: store.claim(STAGE, owner=owner, limit=1, lease_s=lease_s, now=now)
        )
        return claimed[0] if claimed else None

    async def told(self, record: Record) -> Record:
        """The turn as the judge is to see it: what its session's side turns wrote is no person's word."""
        session = record.turn.session
        beside = await self._store.call(
            lambda store: store.turn_lines(Filter(session=session, kind=Kind.SIDE), limit=MOST_BESIDE)
        )
        replies = [line.message for line in beside]
        return await asyncio.to_thread(_told, record, replies) if replies else record

    def held(self, record: Record) -> AbstractAsyncContextManager[None]:
        """Keeps the lease while the body runs."""
        return renewing(lambda: self._extend(record), every_s=self._lease_s / 3, sleep=self._sleep)

    async def _extend(self, record: Record) -> None:
        owner, lease_s, now = self._owner, self._lease_s, self._now()
        await self._store.call(
            lambda store: store.extend([record.turn.id], owner=owner, lease_s=lease_s, now=now)
        )

    async def commit(self, record: Record, verdict: Verdict) -> None:
        """Store the verdict; the turn goes on to the learner, or ends with the reason why it does not."""
        found = self._reads.of(record.turn, verdict)
        flags = await asyncio.to_thread(of_hints, record, verdict)
        owner, now = self._owner, self._now()

        def judged(store: Store) -> None:
            with store.transaction():
                if store.judged(
                    record.turn.id,
                    verdict,
                    rl=found.rl,
                    opd=found.opd,
                    reason=found.reason,
                    owner=owner,
                    now=now,
                    flags=(*flags, *of_reward(store, record, verdict)),
                    signature=signature(record.turn.message),
                    previous=call_before(record),
                ):
                    self._after(store, record.turn.id, now=now)

        await self._store.call(judged)

    async def end(self, record: Record, reason: Reason, *, error: str | None = None) -> None:
        turn, owner, now = record.turn.id, self._owner, self._now()

        def ended(store: Store) -> None:
            with store.transaction():
                if store.skip([turn], reason, owner=owner, error=error, now=now):
                    self._after(store, turn, now=now)

        await self._store.call(ended)

    async def give_back(self, record: Record, *, error: str | None = None) -> None:
        """Back to waiting; after a failed attempt for longer each time."""
        wait = 0.0 if error is None else self._back_off.after(record.attempts + 1)
        turn, owner, now = record.turn.id, self._owner, self._now()
        await self._store.call(
            lambda store: store.release([turn], owner=owner, retry_in_s=wait, error=error, now=now)
        )

    async def failed(self, record: Record, error: str) -> None:
        """Try a turn again whose own question fails, but not for ever."""
        if record.attempts + 1 < GIVE_UP_AFTER:
            await self.give_back(record, error=error)
        else:
            await self.end(record, Reason.JUDGE_FAILED, error=error)

    async def report(self, ok: bool, message: str) -> None:
        """Say how the stage is."""
        now = self._now()
        await self._store.call(lambda store: store.set_status(STAGE, ok, message, now=now))


def _told(record: Record, replies: Sequence[Message]) -> Record:
    """A turn with its next state, where a message that quotes one of the `replies` is the assistant's."""
    conversation, next_state = record.turn.conversation, record.next_state
    told = replace(conversation, messages=with_assistant_summaries(conversation.messages, replies))
    if next_state is not None:
        next_state = replace(next_state, messages=with_assistant_summaries(next_state.messages, replies))
    return replace(record, turn=replace(record.turn, conversation=told), next_state=next_state)


REMEMBERED = 60
"""Votes: ten turns of two questions with three answers each."""


FEWEST = 12
"""Votes below which a share says nothing."""


COMPARED = 60
"""Turns whose votes on the reward are compared."""


FEWEST_COMPARED = 12


MOST_INVALID = 0.5
"""Share of invalid votes above which the judge itself is at fault, and not single answers."""


class RecentVotes:
    """The last votes of one judge stage."""

    def __init__(self) -> None:
        self._valid: deque[bool] = deque(maxlen=REMEMBERED)
        self._cut: deque[bool] = deque(maxlen=REMEMBERED)
        self._rewards: deque[list[int]] = deque(maxlen=COMPARED)

    def add(self, verdict: Verdict) -> None:
        self._valid.extend(vote.value is not None for vote in verdict.votes)
        self._cut.extend(vote.rejected == CUT for vote in verdict.votes)
        asked = [vote for vote in verdict.votes if vote.question is Question.EVALUATION]
        self._rewards.append([vote.value for vote in asked if vote.value is not None])

    @property
    def doubtful(self) -> bool:
        """Whether votes on one turn differ as if too many answers were wrong."""
        found = agreement(self._rewards)
        return found.wrong is not None and found.turns >= FEWEST_COMPARED and found.wrong > MOST_WRONG

    def warning(self) -> str | None:
        """What is wrong, None while most votes can be read."""
        seen, invalid = len(self._valid), self._valid.count(False)
        if seen < FEWEST or invalid <= MOST_INVALID * seen:
            return None
        cut = 2 * self._cut.count(True) > invalid
        remedy = "raise judge.max_tokens" if cut else "set judge.url to a stronger model"
        return (
            f"more than half of the judge's last votes {'were cut' if cut else 'cannot be read'}, so turns"
            f" end as invalid_votes: {remedy}"
        )


def of_hints(record: Record, verdict: Verdict) -> tuple[Flag, ...]:
    """What is doubtful about the hints of a turn's verdict."""
    if record.next_state is None or not verdict.hints:
        return ()
    return hint_flags(
        verdict.hints, view_of(record.turn.conversation, record.turn.message, record.next_state)
    )


def of_reward(store: Store, record: Record, verdict: Verdict) -> Sequence[Flag]:
    """Whether the reward is against what other sources that teach the same adapter said. Ask in the
    verdict's transaction.

    No person said anything about a call that failed: the turn waits, and does not count against its source.
    """
    kind, source = signature(record.turn.message), record.turn.source
    if verdict.reward == 0 or (kind is None and verdict.reward < 0):
        return ()
    spoken = closes(record.next_state)
    said = _said(store, kind, record) if kind is not None and (spoken or verdict.reward < 0) else {}
    earlier = store.contradictions(source) if verdict.reward > 0 else 0
    if not contradicts(verdict.reward, source=source, said=said, earlier=earlier, spoken=spoken):
        return ()
    return (Flag.CONTRADICTS if spoken or verdict.reward > 0 else Flag.TOOLS_CONTRADICT,)


def _said(store: Store, kind: str, record: Record) -> Mapping[str, Votes]:
    """Votes on such calls after the same earlier call, if several others gave any; else on all such calls."""
    adapter = record.turn.adapter if isinstance(record.turn, Turn) else SHARED
    said = store.votes_on(kind, after=call_before(record), adapter=adapter)
    return said if several(said, source=record.turn.source) else store.votes_on(kind, adapter=adapter)


def call_before(record: Record) -> str:
    """The kind of the call before a turn's own in the same request; empty: there was none."""
    return previous(record.turn.conversation.messages)
