"""The judge's side of the store: turns claimed, given back, ended, or committed with a verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from afterwit.core.binding import with_summaries_told
from afterwit.core.lifecycle import Reason
from afterwit.core.message import Message
from afterwit.core.teaching import signature
from afterwit.core.terms import Reads
from afterwit.core.turn import Kind
from afterwit.core.verdict import Verdict
from afterwit.stages.judge import doubts
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import renewing
from afterwit.store import AsyncStore, Filter, Record, Store

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
        flags = await asyncio.to_thread(doubts.of_hints, record, verdict)
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
                    flags=(*flags, *doubts.of_reward(store, record, verdict)),
                    signature=signature(record.turn.message),
                    previous=doubts.call_before(record),
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
    told = replace(conversation, messages=with_summaries_told(conversation.messages, replies))
    if next_state is not None:
        next_state = replace(next_state, messages=with_summaries_told(next_state.messages, replies))
    return replace(record, turn=replace(record.turn, conversation=told), next_state=next_state)
