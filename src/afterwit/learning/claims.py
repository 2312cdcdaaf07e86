"""The learner's side of the store: it claims turns, and gives each back, ends it, or commits its version."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from afterwit.checkpoints.versions import Versions
from afterwit.learning.batch import Refused
from afterwit.learning.health import STAGE
from afterwit.learning.passes import Phase, Progress
from afterwit.learning.schedule import (
    NOW,
    NextBatch,
    in_their_chains,
    is_stale,
    next_of_all,
    retry_in,
    within_limit,
)
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason
from afterwit.practice.lessons import DAY_S
from afterwit.store import Pause, Record, Store
from afterwit.verdict import JudgedTurn
from afterwit.version import Version

DIED = "the learner died in the turn's update"


class Stopped(Exception):
    """The stage stops in the middle of an update, which is given up."""


class Claims:
    """The turns that one learner, `owner`, holds, and the moves it makes with them."""

    def __init__(
        self,
        store: Store,
        versions: Versions,
        settings: LearnerSettings,
        *,
        owner: str,
        now: Callable[[], float],
        reads_groups: bool,
    ) -> None:
        """`reads_groups`: the baseline reads the rewards of all turns of a prompt."""
        self._store, self._versions, self._settings = store, versions.of(None), settings
        self._owner, self._now, self._reads_groups = owner, now, reads_groups
        self._reconciled: int | None = None
        """The newest version when the store last followed the folder; None: it must follow first."""
        self._started = False
        self._passed_over: set[str] = set()
        self.went_stale = 0
        """Turns that became too old to train since this learner started."""

    def catch_up(self) -> list[Record]:
        """Commit what others, or an earlier learner, wrote into the folder of versions.

        On the first call, returns the turns in whose update the last learner died; empty on later ones.
        """
        self._versions.follow()
        newest = self._versions.newest()
        if newest == self._reconciled:
            return []
        self._versions.remove_forgotten()
        error = None if self._started else DIED
        freed = self._store.reconcile(self._versions.all(), now=self._now(), error=error)
        died_in = [] if self._started else [self._store.turn(turn) for turn in freed]
        self._reconciled, self._started = newest, True
        return died_in

    def distrust(self) -> None:
        """After an unexpected failure: follow the folder and free this learner's leases before going on."""
        self._reconciled = None

    def paused(self) -> Pause | None:
        return self._store.paused()

    def choose(self, *, drain: bool) -> NextBatch:
        """The next batch of the turns that wait. Ends those that are too old to train, and answers with a
        lesson that was taken back."""
        now = self._now()
        self._store.end_unfounded(now=now)
        waiting = in_their_chains(self._store.waiting(now=now), self._versions.chains())
        if stale := [turn.turn for turn in waiting if is_stale(turn, self._settings, NOW)]:
            self.went_stale += self._store.skip(stale, Reason.STALE, now=now)
        fresh = [turn for turn in waiting if not is_stale(turn, self._settings, NOW)]
        if limit := self._settings.source_turns_a_day:
            fresh = within_limit(fresh, used=self._store.trained_since(now - DAY_S), limit=limit)
        return next_of_all(self._settings, fresh, self._store.paused_adapters(), now=now, drain=drain)

    def take(self, choice: NextBatch) -> list[Record]:
        """Hold the turns of the update that is due, without those that another learner took meanwhile.

        Nothing is taken once a person has paused learning.
        """
        if not choice.turns:
            return []
        with self._store.transaction():
            if self._store.paused():
                return []
            return self._store.claim(
                STAGE,
                owner=self._owner,
                limit=len(choice.turns),
                lease_s=self._settings.lease_s,
                now=self._now(),
                only=choice.turns,
            )

    def progress(self, records: Sequence[Record], stop: Callable[[], bool], watch: Progress) -> Progress:
        """The callback for the phases of an update of these records.

        It renews their lease, and raises Stopped if `stop` returns True before anything is written.
        """
        turns, renewed = _ids(records), self._now()

        def progress(phase: Phase) -> None:
            nonlocal renewed
            watch(phase)
            if phase in (Phase.SCORING, Phase.STEPPED) and stop():
                raise Stopped
            if phase is Phase.SCORING and self._now() - renewed > self._settings.lease_s / 4:
                renewed = self._now()
                self._store.extend(turns, owner=self._owner, lease_s=self._settings.lease_s, now=renewed)

        return progress

    def samples(self, records: Sequence[Record]) -> list[JudgedTurn]:
        """Judged turns as the learner takes them; with their groups' rewards if the baseline reads them."""
        groups = self._store.group_rewards(_ids(records)) if self._reads_groups else {}
        return [judged_turn(record, groups.get(record.turn.id, ()), self._settings) for record in records]

    def replayable(self, adapter: str) -> list[JudgedTurn]:
        """Turns for an adapter to replay: with hints, trained before, not older than the staleness limit."""
        if self._settings.replay == 0:
            return []
        chain = self._versions.of(adapter).numbers() or [0]
        found = self._store.trained_with_hints(
            limit=self._settings.replay,
            min_version=chain[max(0, len(chain) - 1 - self._settings.max_staleness)],
            seed=len(chain),
            adapter=adapter,
        )
        return self.samples([record for record in found if hints_teach(record, self._settings)])

    def to_pass_on(self, *, drain: bool) -> list[Record]:
        """The turns of others that the shared adapter is to learn from now; none until they make a batch,
        unless it is to `drain`."""
        if self._settings.teaches == "own":
            return []
        batch = self._settings.batch
        found = self._store.to_pass_on(limit=batch + len(self._passed_over))
        left = [record for record in found if record.turn.id not in self._passed_over]
        return left[:batch] if len(left) >= (1 if drain else batch) else []

    def pass_over(self, records: Sequence[Record]) -> None:
        """The shared adapter could not learn from them: they are not tried again until the next start."""
        self._passed_over.update(_ids(records))

    def commit(self, version: Version, *, keep: Collection[int] = (), sweep: bool = True) -> None:
        """Commit the version to the store; delete the weights of versions too old to keep.

        Those of `keep` stay, however old, and those that are served. Without `sweep`, weights that hold a
        forgotten turn stay too: other adapters follow. Else they go first, and orders to forget stand until
        they are gone.
        """
        if sweep:
            self._versions.remove_forgotten()
        self._store.commit_version(version, now=self._now())
        self._reconciled = version.number
        stays = {*keep, self._store.latest_published()}
        self._versions.of(version.adapter).prune(self._settings.keep_versions, but=stays)

    def refuse(self, refused: Sequence[Refused]) -> None:
        """End the turns that cannot train, each with its reason."""
        for reason in dict.fromkeys(each.reason for each in refused):
            ended = [each.turn for each in refused if each.reason is reason]
            self._store.skip(ended, reason, now=self._now(), owner=self._owner)

    def end(self, records: Sequence[Record], reason: Reason, error: str) -> None:
        self._store.skip(_ids(records), reason, now=self._now(), owner=self._owner, error=error)

    def end_abandoned(self, record: Record) -> None:
        self._store.skip([record.turn.id], Reason.LEARNER_FAILED, now=self._now(), error=DIED)

    def give_back(
        self, records: Sequence[Record], *, retry_in_s: float = 0.0, error: str | None = None
    ) -> None:
        """Back to waiting; an `error` counts as a failed attempt."""
        turns, now = _ids(records), self._now()
        self._store.release(turns, owner=self._owner, now=now, retry_in_s=retry_in_s, error=error)

    def count_failure(self, record: Record, error: str) -> None:
        """Count a failed attempt against a turn: it is tried again later, or ends after `max_attempts`."""
        if record.attempts + 1 >= self._settings.max_attempts:
            self.end([record], Reason.LEARNER_FAILED, error)
        else:
            self.give_back([record], retry_in_s=retry_in(self._settings, record.attempts), error=error)


def hints_teach(record: Record, settings: LearnerSettings) -> bool:
    return settings.teaching.hints_teach(record.flags, accepted=record.accepted is True)


def judged_turn(record: Record, group_rewards: tuple[int, ...], settings: LearnerSettings) -> JudgedTurn:
    """A judged turn as the learner takes it under these settings, if its group has these rewards."""
    hints = hints_teach(record, settings)
    if record.verdict is None:
        raise ValueError(f"turn {record.turn.id} is {record.state} without a verdict")
    return JudgedTurn(
        turn=record.sampled_turn,
        verdict=record.verdict if hints else replace(record.verdict, hints=()),
        rl=record.rl,
        opd=record.opd and hints,
        group_rewards=group_rewards,
    )


def _ids(records: Sequence[Record]) -> list[str]:
    return [record.turn.id for record in records]
