"""Forgets sessions: their content, and their part in the weights.

The manifest of the version without them is the commit. Before it nothing has changed, and the order is open;
after it the store deletes the content when it follows the folder of versions, whoever does that. A rollback
may come at any moment before it: what was planned is void then, and planned again.

Updates that followed what is forgotten are run again, as they were, from what the recipes in their manifests
and the store hold.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from afterwit.checkpoints.manifest import is_state
from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import (
    AfterwitError,
    EngineUnavailable,
    NotRepeatable,
    RankLost,
    StoreUnavailable,
    TurnNotFound,
    VersionDamaged,
    VersionsUnavailable,
    VersionTaken,
)
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.batch import TurnLimits, build_items
from afterwit.learning.claims import Claims, judged_turn
from afterwit.learning.distributed.orders import run_update
from afterwit.learning.passes import Phase, Progress
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion.gate import Gate
from afterwit.store import ForgetOrder, Store
from afterwit.text import counted
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, Version, learned, turns_in

if TYPE_CHECKING:
    from afterwit.learning.trainer import Trainer

S = TypeVar("S")

HALFWAY_FOLDER = ".forgetting"
KEPT_EVERY = 8
"""The policy is kept after every eighth update: with full weights it is as large as a version."""

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

    def carry_out(self, orders: Sequence[ForgetOrder], progress: Progress) -> list[str]:
        """Carry out each order that can be; a sentence for each. What is not run again goes in one step.

        `progress` may raise: the order stands, and what was run again is gone on with the next time.
        """
        alone = [[order] for order in orders if order.replay]
        together = [order for order in orders if not order.replay]
        said = [said for each in (*alone, together) if each for said in self._tried(each, progress)]
        drop_halfway(self._trainer.versions.root)
        return said

    def _tried(self, orders: Sequence[ForgetOrder], progress: Progress) -> list[str]:
        made: list[Version] = []
        try:
            while not self._forget(orders, made, progress):
                pass
        except (EngineUnavailable, RankLost, StoreUnavailable, VersionsUnavailable):  # the orders stand
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
        if not (orders[0].replay and any(found.steps for found in plans.values())):
            drop_halfway(self._trainer.versions.root)  # the files of another order may hold these turns
        try:
            if not plans:
                self._trainer.versions.remove_forgotten(turns)
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

        def samples(at: int, step: Rerun) -> list[JudgedTurn]:
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

    def _samples(self, step: Rerun) -> list[JudgedTurn]:
        settings, _, _ = settings_of(step.version)
        groups = {} if step.version.recipe is None else step.version.recipe.groups
        found = []
        for turn in (*step.turns, *step.replayed):
            try:
                record = self._store.turn(turn)
            except TurnNotFound as error:
                raise NotRepeatable(f"the content of turn {turn} is gone") from error
            found.append(judged_turn(record, tuple(map(int, groups.get(turn, ()))), settings))
        return found


def _described(version: Version) -> str:
    if version.origin is Origin.ROLLBACK:
        return f"version {version.number} has the weights of version {version.restores}"
    again = counted(len(version.replays), "update")
    return f"version {version.number} is version {version.begins} and {again} run again without it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """An update to run again, without the forgotten turns."""

    version: Version
    turns: tuple[str, ...]
    replayed: tuple[str, ...]
    whole: bool
    """Whether nothing was left out, neither here nor in the updates before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The version to start from, and the updates to run again after it."""

    newest: int
    """The adapter's newest version: if another one comes, the plan is void."""
    start: int
    """The version whose weights and optimiser state come first."""
    steps: tuple[Rerun, ...]


def plan(versions: Sequence[Version], turns: Collection[str], resumes: Callable[[int], bool]) -> Plan | None:
    """How to free the newest weights of these turns; None: they do not hold any.

    It begins as late as possible with a version that `resumes`. An update all of whose new turns are
    forgotten is left out: without them it would not have begun.
    """
    by_number = {version.number: version for version in versions}
    newest = max(by_number, default=0)
    present = turns_in(newest, by_number)
    if not present.intersection(turns):
        return None
    staying = present.difference(turns)
    chain = sorted(learned(newest, by_number))
    start, done = 0, 0
    for number in sorted(by_number):
        inside = learned(number, by_number)
        fits = inside == set(chain[: len(inside)]) and turns_in(number, by_number) <= staying
        if fits and len(inside) >= done and resumes(number):
            start, done = number, len(inside)
    before = [by_number[number] for number in chain[:done]]
    whole = turns_in(start, by_number) == {turn for each in before for turn in (*each.turns, *each.replayed)}
    steps = list[Rerun]()
    for version in (by_number[number] for number in chain[done:]):
        whole = whole and staying.issuperset((*version.turns, *version.replayed))
        new = tuple(turn for turn in version.turns if turn in staying)
        replayed = tuple(turn for turn in version.replayed if turn in staying)
        if new or (replayed and not version.turns):
            steps.append(Rerun(version=version, turns=new, replayed=replayed, whole=whole))
    return Plan(newest=newest, start=start, steps=tuple(steps))


Samples = Callable[[int, Rerun], list[JudgedTurn]]
"""(place of a step from 1 on, the step) -> its samples, new ones before replayed ones. NotRepeatable if the
content of one is gone."""


def replay_updates(
    trainer: Trainer, start: int, steps: Sequence[Rerun], samples: Samples, progress: Progress
) -> Policy:
    """The policy at `start` after the updates of the steps, run again as they were with these samples; steps
    that an earlier call kept are not run again. Raises NotRepeatable, with the update's number."""
    versions, policy = trainer.versions, None
    present, halfway = trainer.settings, Halfway(trainer.versions, start, steps)
    if halfway.done:
        present, _, _ = settings_of(steps[halfway.done - 1].version)
        policy = trainer.load(halfway.kept, halfway.kept.newest(), present)
    for at, step in enumerate(steps[halfway.done :], start=halfway.done + 1):
        try:
            then, objective, placement = settings_of(step.version)
            judged = samples(at, step)
            if policy is None:
                policy = trainer.load(versions, start, then)
            elif not then.alike(present):
                policy = _reloaded(trainer, policy, then)
            if step.version.recipe is not None and step.version.recipe.fresh_optimizer:
                policy = _reloaded(trainer, policy, then, state=False)
            _repeat(trainer, policy, step.version, judged, placement, objective, then, progress)
            if step.whole and trainer.probe(policy) != step.version.probe:
                raise NotRepeatable(_differs(then.processes, trainer.ranks.size))
        except NotRepeatable as error:
            raise NotRepeatable(f"version {step.version.number} cannot be run again: {error}") from error
        present = then
        halfway.keep(trainer, policy, at)
    return trainer.load(versions, start, trainer.settings) if policy is None else policy


def _repeat(
    trainer: Trainer,
    policy: Policy,
    version: Version,
    judged: Sequence[JudgedTurn],
    placement: Placement,
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    progress: Progress,
) -> None:
    """Update the policy as `version` was made. NotRepeatable if it would read something else than it did."""
    models = trainer.frozen.under(settings)
    limits = TurnLimits(
        max_tokens=policy.context(settings, models.served if objective.needs_teacher else None),
        max_staleness=settings.max_staleness,
        version=version.parent or 0,
        chain=trainer.versions.numbers(),
        adapter=trainer.adapter,
    )
    items, refused = build_items(judged, trainer.rendering, placement, limits, objective)
    if refused:
        raise NotRepeatable(f"turn {refused[0].turn} would be refused now ({refused[0].reason})")
    digests = {} if version.recipe is None else version.recipe.digests
    for item in items:
        if item.turn is None or digests.get(item.turn) != item.digest:
            raise NotRepeatable(f"turn {item.turn} was judged again since")
    batch: dict[str, Any] = {"items": items, "objective": objective, "settings": settings}
    with trainer.ranks.leading(run_update, **batch):
        update(policy, models, progress=progress, ranks=trainer.ranks, **batch)


def _differs(processes: int, size: int) -> str:
    if processes == size:
        return "this machine does not compute it as it was: its probe differs"
    return (
        f"a learner of {processes} processes made it, this one has {size} and sums in another order: run it "
        f"with --learner-processes {processes}"
    )


def _reloaded(trainer: Trainer, policy: Policy, settings: LearnerSettings, *, state: bool = True) -> Policy:
    """The policy as a learner finds it after a restart: from files, with those of its state or without."""
    with trainer.versions.scratch() as scratch:
        probe = trainer.probe(policy)
        version = Version(number=1, parent=0, origin=Origin.REPLAY, created=0.0, probe=probe)

        def fill(place: Path) -> None:
            trainer.fill(place, policy, lambda phase: None)
            for path in () if state else [path for path in place.iterdir() if is_state(path.name)]:
                path.unlink()

        scratch.write(version, fill)
        return trainer.load(scratch, 1, settings)


class Halfway:
    """The progress of an earlier run of these steps, `kept` in a folder of versions of its own."""

    def __init__(self, versions: Versions, start: int, steps: Sequence[Rerun]) -> None:
        self.kept = Versions(root=versions.root / HALFWAY_FOLDER, base=versions.base)
        parts = [(start, versions.get(start)), *((step.version, step.turns, step.replayed) for step in steps)]
        self._names = [hashlib.sha256(repr(part).encode()).hexdigest() for part in parts]
        self.done = 0
        """Steps that need not be run again."""
        with suppress(VersionDamaged):
            newest = self.kept.get(self.kept.newest())
            if newest is not None and list(newest.turns) == self._names[: len(newest.turns)]:
                self.kept.verify(newest.number)
                self.done = len(newest.turns) - 1
        if not self.done:
            drop_halfway(versions.root)

    def keep(self, trainer: Trainer, policy: Policy, done: int) -> None:
        """Keep the policy after every `KEPT_EVERY` steps, in place of the one before."""
        if done % KEPT_EVERY or done == len(self._names) - 1:
            return
        older = self.kept.newest()
        version = Version(
            number=older + 1,
            parent=None,
            origin=Origin.REPLAY,
            created=0.0,
            turns=tuple(self._names[: done + 1]),
            probe=trainer.probe(policy),
        )
        with self.kept.writing():
            self.kept.write(version, lambda place: trainer.fill(place, policy, lambda phase: None))
        shutil.rmtree(self.kept.place(older), ignore_errors=True)


def drop_halfway(root: Path) -> None:
    shutil.rmtree(root / HALFWAY_FOLDER, ignore_errors=True)


def settings_of(version: Version) -> tuple[LearnerSettings, ObjectiveSettings, Placement]:
    """The settings of a version's update. NotRepeatable if they are not those that this Afterwit knows."""
    if (recipe := version.recipe) is None or version.parent is None:
        raise NotRepeatable(
            "its manifest does not hold its settings, because it learned from an Atropos server, or an older"
            " Afterwit wrote it"
        )
    if recipe.learner.get("lr") is None:
        raise NotRepeatable("its step size was not kept")
    # of an update before they could be set
    learner = {"adam_eps": 0.0, "max_move": 0.0, "stop_at_teacher": False}
    learner |= {name: value for name, value in recipe.learner.items() if name != "target_kl"}
    if not learner.get("target_share"):  # once an update could aim at a share of its way
        learner.pop("target_share", None)
    try:
        return (
            _read(LearnerSettings, learner),
            _read(ObjectiveSettings, recipe.objective),
            Placement(recipe.placement),
        )
    except (TypeError, ValueError) as error:
        raise NotRepeatable(f"its settings are those of another version of Afterwit ({error})") from error


def _read(kind: type[S], data: Mapping[str, Any]) -> S:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})
