"""Updates run again, as they were, from what their manifests and the store hold."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from afterwit.checkpoints.ancestry import Step
from afterwit.checkpoints.manifest import is_state
from afterwit.checkpoints.versions import Versions
from afterwit.errors import NotRepeatable, VersionDamaged
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.batch import Item, TurnLimits, build_items
from afterwit.learning.passes import Progress
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, Recipe, Version

if TYPE_CHECKING:
    from afterwit.learning.trainer import Trainer

Samples = Callable[[int, Step], list[JudgedTurn]]
"""(place of a step from 1 on, the step) -> its samples, new ones before replayed ones. NotRepeatable if the
content of one is gone."""

S = TypeVar("S")

DIGEST_BYTES = 16

HALFWAY_FOLDER = ".forgetting"
KEPT_EVERY = 8
"""The policy is kept after every eighth update: with full weights it is as large as a version."""


def replay_updates(
    trainer: Trainer, start: int, steps: Sequence[Step], samples: Samples, progress: Progress
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
    models = trainer.frozen
    if not settings.alike(trainer.settings):
        models = FrozenModels(trainer.versions.base, settings, server=trainer.teacher)
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
        if item.turn is None or digests.get(item.turn) != digest(item):
            raise NotRepeatable(f"turn {item.turn} was judged again since")
    trainer.update(policy, items, objective, settings, progress, models=models)


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

    def __init__(self, versions: Versions, start: int, steps: Sequence[Step]) -> None:
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


def recipe_of(
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    placement: Placement,
    fresh_optimizer: bool,
) -> Recipe | None:
    """The recipe of an update; None if it learned from anything but turns of the store."""
    turns = {item.turn: item for item in items if item.turn is not None}
    if len(turns) != len(items):
        return None
    return Recipe(
        learner=asdict(settings),
        objective=asdict(objective),
        placement=placement.value,
        fresh_optimizer=fresh_optimizer,
        digests={turn: digest(item) for turn, item in turns.items()},
        groups={turn: item.group for turn, item in turns.items() if item.group},
    )


def digest(item: Item) -> str:
    """BLAKE2b of everything that an update reads of an item."""
    return hashlib.blake2b(repr(replace(item, hints=())).encode(), digest_size=DIGEST_BYTES).hexdigest()


def settings_of(version: Version) -> tuple[LearnerSettings, ObjectiveSettings, Placement]:
    """The settings of a version's update. NotRepeatable if they are not those that this Afterwit knows."""
    if (recipe := version.recipe) is None or version.parent is None:
        raise NotRepeatable(
            "its manifest does not hold its settings, because it learned from an Atropos server, or an older"
            " Afterwit wrote it"
        )
    if recipe.learner.get("lr") is None:
        raise NotRepeatable("its step size was not kept")
    learner = {name: value for name, value in recipe.learner.items() if name != "target_kl"}
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
