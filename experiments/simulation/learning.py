"""From answered turns to weights that serve: judged, stored, learned and published, before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.terms import untrainable
from afterwit.core.turn import Turn
from afterwit.core.verdict import NextState, Verdict
from afterwit.stages.learn import Learn
from afterwit.stages.publish import Checkpoints, Publisher
from afterwit.store import Store
from experiments.simulation.judging import Answered, Judging

OWNER = "simulation"
LEASE_S = 3600.0


@dataclass(slots=True)
class StepClock:
    """A clock that moves on by a second whenever it is read: time is an order here, nothing waits."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """The store and the stages around it, each called when there is something to do."""

    store: Store
    judging: Judging
    learn: Learn
    checkpoints: Checkpoints
    publisher: Publisher
    publish_every: int
    """Versions that come before the engine takes the newest: more makes its turns staler."""
    clock: StepClock

    async def teach(self, answered: Sequence[Answered]) -> None:
        """Learn what the turns' next states say."""
        for turn, next_state in answered:
            self._add(turn, next_state)
        teachable = [(turn, said) for turn, said in answered if untrainable(turn) is None]
        verdicts = await self.judging.verdicts(teachable)
        self.store.claim("judge", owner=OWNER, limit=len(teachable), lease_s=LEASE_S, now=self.clock())
        for (turn, _), verdict in zip(teachable, verdicts, strict=True):
            self._judged(turn, verdict)
        while self.learn.step():
            await self._publish()

    def _add(self, turn: Turn, next_state: NextState) -> None:
        """As the gateway leaves an answered turn; no other conversation could be taken for its own."""
        name, now, reason = turn.id.encode(), self.clock(), untrainable(turn)
        self.store.add_turn(
            turn,
            prompt_hash=b"prompt " + name,
            full_hash=b"full " + name,
            depth=1,
            full_depth=2,
            delivered=True,
            reason=reason,
            now=now,
        )
        if reason is None:
            self.store.answer(turn.id, next_state.messages, answered_by=None, now=now)

    def _judged(self, turn: Turn, verdict: Verdict) -> None:
        found = self.judging.rules.reads.of(turn, verdict)
        self.store.judged(
            turn.id,
            verdict,
            rl=found.rl,
            opd=found.opd,
            reason=found.reason,
            owner=OWNER,
            now=self.clock(),
        )

    async def _publish(self) -> None:
        if max(self.checkpoints.numbers()) % self.publish_every == 0:
            await self.publisher.step()
