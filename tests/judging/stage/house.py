"""The judge stage over a real store, with a judge and a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from afterwit.errors import JudgeUnavailable
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.stage import AfterVerdict, Clock, Judge
from afterwit.lifecycle import State
from afterwit.objective import ObjectiveSettings
from afterwit.store import AsyncStore, Record, Store
from afterwit.turn import Message
from afterwit.verdict import Feedback
from tests.fakes.judge import FakeJudge
from tests.store.examples import NO, add

LEASE = 120.0
LENGTHS = {
    "max_tokens": 77,
    "context_chars": 500,
    "tools_chars": 500,
    "response_chars": 500,
    "next_state_chars": 500,
}
DOWN = JudgeUnavailable("the judge cannot be reached")
TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object", "required": ["path"]}},
}


class FakeTime:
    """Time that only the test moves. Sleeping takes none, but for the lease's renewal, which never comes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds >= LEASE / 3:
            await asyncio.Event().wait()
        self.slept.append(seconds)
        await asyncio.sleep(0)

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.now, sleep=self.sleep, random=lambda: 0.0)


class House:
    """A store, a judge stage and its clock."""

    def __init__(self, store: AsyncStore, **settings: Any) -> None:
        self.store = store
        self.objective = ObjectiveSettings()
        self.time = FakeTime()
        self.client = FakeJudge()
        self.settings = JudgeSettings(
            **{"lease_s": LEASE, "attempts": 2, "max_turns": 2} | LENGTHS | settings
        )
        self.judge = self.stage("judge-1")

    def stage(self, owner: str, after: AfterVerdict = lambda store, turn, *, now: None) -> Judge:
        return Judge(
            store=self.store,
            client=self.client,
            settings=self.settings,
            reads=self.objective.reads,
            owner=owner,
            clock=self.time.clock,
            after=after,
        )

    async def answered(self, id: str, messages: tuple[Message, ...] = NO, **changes: Any) -> None:
        def put(store: Store) -> None:
            add(store, id, **changes)
            store.answer(id, messages, answered_by=None, now=self.time.now)

        await self.store.call(put)

    async def record(self, id: str) -> Record:
        return await self.store.call(lambda store: store.turn(id))

    async def feedback(self, id: str, feedback: Feedback) -> None:
        await self.store.call(lambda store: store.feedback(id, feedback, now=self.time.now))

    async def statuses(self) -> list[tuple[bool, str]]:
        told = await self.store.call(lambda store: store.statuses())
        return [(one.ok, one.message) for one in told if one.stage == "judge"]

    async def until_status(self, ok: bool, message: str) -> None:
        await self.until(lambda told: told == [(ok, message)])

    async def until(self, seen: Callable[[list[tuple[bool, str]]], bool]) -> None:
        """Wait for statuses of which `seen` is true."""
        while not seen(await self.statuses()):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.01)

    async def until_judged(self, id: str) -> None:
        while (await self.record(id)).state is not State.JUDGED:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.01)
