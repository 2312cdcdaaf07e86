"""Forgets sessions: their content, and their part in the weights.

The manifest of the version without them is the commit. Before it nothing has changed, and the order is open;
after it the store deletes the content when it follows the folder of versions, whoever does that. A rollback
may come at any moment before it: what was planned is void then, and planned again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from afterwit.checkpoints.ancestry import Plan, Step, plan
from afterwit.checkpoints.rollback import roll_back
from afterwit.errors import AfterwitError, NotRepeatable, RankLost, TurnNotFound, VersionTaken
from afterwit.learning.claims import Claims, sample_of
from afterwit.learning.passes import Phase, Progress
from afterwit.learning.rerun import settings_of
from afterwit.learning.trainer import Trainer
from afterwit.promotion.gate import Gate
from afterwit.store import ForgetOrder, Store
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, Version

log = logging.getLogger(__name__)


class Forgetter:
    """Carries out orders to forget. Use it while no other learner runs."""

    def __init__(
        self,
        store: Store,
        trainer: Trainer,
        claims: Claims,
        gate_of: Callable[[str], Gate],
        *,
        now: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        """`say` takes a sentence on how far it is."""
        self._store, self._trainer, self._claims, self._gate_of = store, trainer, claims, gate_of
        self._now, self._say = now, say

    def carry_out(self, progress: Progress) -> list[str]:
        """Carry out every order that can be; a sentence for each. What is not run again goes in one step.

        `progress` may raise: the order stands, and what was run again is gone on with the next time.
        """
        orders = [order for order in self._store.forget_orders() if order.error is None]
        alone = [[order] for order in orders if order.replay]
        together = [order for order in orders if not order.replay]
        said = [said for each in (*alone, together) if each for said in self._tried(each, progress)]
        self._trainer.drop_halfway()
        return said

    def _tried(self, orders: Sequence[ForgetOrder], progress: Progress) -> list[str]:
        made: list[Version] = []
        try:
            while not self._forget(orders, made, progress):
                pass
        except RankLost:
            raise
        except AfterwitError as error:
            for order in orders:
                self._store.forgetting_failed(order.session, str(error))
            return [f"session {order.session} is not forgotten: {error}" for order in orders]
        how = f": {'; '.join(map(_described, made))}" if made else "; no weights held it"
        return [f"session {order.session} is forgotten{how}" for order in orders]

    def _forget(self, orders: Sequence[ForgetOrder], made: list[Version], progress: Progress) -> bool:
        """Write a version without these sessions for each adapter whose newest weights were trained on one,
        and add it to `made`; False if a rollback came first.

        The last version is the commit: it names the sessions. Until then the orders stand, and the next
        attempt passes over adapters that have forgotten already.
        """
        sessions = tuple(order.session for order in orders)
        turns = tuple(turn for session in sessions for turn in self._store.turn_ids(session))
        plans = self._plans(turns)
        try:
            if not plans:
                self._claims.remove_forgotten(turns)
                for session in sessions:
                    self._store.forget(session, now=self._now())
            for left, (adapter, found) in enumerate(reversed(plans.items()), start=1 - len(plans)):
                self._trainer.turn_to(adapter)
                forgets = () if left else sessions
                version = self._written(found, forgets, turns, progress, again=orders[0].replay)
                self._claims.commit(version, keep=self._gate_of(adapter).keep(), sweep=bool(forgets))
                made.append(version)
        except VersionTaken as error:
            log.info("learn: %s: what is forgotten is planned again", error)
            self._claims.catch_up()
            return False
        return True

    def _plans(self, turns: Sequence[str]) -> dict[str, Plan]:
        """By adapter, how to free its newest weights of these turns; those that hold none are left out."""
        versions = self._trainer.versions
        chains = {adapter: versions.of(adapter).all() for adapter in versions.chains()}
        found = {adapter: plan(chain, turns, versions.resumes) for adapter, chain in chains.items()}
        return {adapter: each for adapter, each in found.items() if each is not None}

    def _written(
        self, found: Plan, forgets: tuple[str, ...], turns: Sequence[str], progress: Progress, *, again: bool
    ) -> Version:
        """The adapter's version without these turns. VersionTaken if another one followed the plan's."""
        trainer = self._trainer
        trained = {each.turn for each in self._store.learned(turns=turns)}
        earlier = {turn for version in trainer.versions.of(None).all() for turn in version.without}
        without = tuple(sorted(trained | earlier))
        if not (again and found.steps):
            return roll_back(
                trainer.versions,
                found.start,
                now=self._now(),
                after=found.newest,
                forgets=forgets,
                without=without,
            )
        number = trainer.versions.next()
        if trainer.versions.newest() != found.newest:
            raise VersionTaken(f"version {trainer.versions.newest()} followed version {found.newest}")

        def samples(at: int, step: Step) -> list[JudgedTurn]:
            self._say(f"forgetting: update {at} of {len(found.steps)}")
            return self._samples(step)

        policy = trainer.rerun(found.start, found.steps, samples, progress=progress)
        gate = self._gate_of(trainer.adapter)
        items = gate.items(turns, work=0, shared=trainer.packs(policy))
        version = Version(
            number=number,
            parent=found.newest,
            origin=Origin.REPLAY,
            created=self._now(),
            begins=found.start,
            replays=tuple(step.version.number for step in found.steps),
            forgets=forgets,
            without=without,
            probe=trainer.probe(policy),
            suite=gate.result(trainer.read(policy, items)),  # it serves in any case
            adapter=trainer.adapter,
        )
        written = trainer.write(version, policy, progress)
        progress(Phase.WRITTEN)
        return written

    def _samples(self, step: Step) -> list[JudgedTurn]:
        settings, _, _ = settings_of(step.version)
        groups = {} if step.version.recipe is None else step.version.recipe.groups
        found = []
        for turn in (*step.turns, *step.replayed):
            try:
                record = self._store.turn(turn)
            except TurnNotFound as error:
                raise NotRepeatable(f"the content of turn {turn} is gone") from error
            found.append(sample_of(record, tuple(map(int, groups.get(turn, ()))), settings))
        return found


def _described(version: Version) -> str:
    if version.origin is Origin.ROLLBACK:
        return f"version {version.number} has the weights of version {version.restores}"
    count = len(version.replays)
    return (
        f"version {version.number} is version {version.begins} and"
        f" {count} update{'s' if count != 1 else ''} run again without it"
    )
