"""Updates run again, as they were, from what their manifests and the store hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from afterwit.checkpoints import Versions
from afterwit.checkpoints.files import is_state
from afterwit.checkpoints.forgetting import Step
from afterwit.core.adapters import SHARED
from afterwit.core.errors import NotRepeatable
from afterwit.core.judged_turn import JudgedTurn
from afterwit.core.judging import Rendering
from afterwit.core.teacher import TeacherServer
from afterwit.core.version import Origin, Probe, Recipe, Version
from afterwit.learner.batch import Item, TurnLimits, build
from afterwit.learner.parameters import FrozenModels
from afterwit.learner.policy import Policy
from afterwit.learner.ranks import Ranks
from afterwit.learner.ranks.load import load, probed, write
from afterwit.learner.ranks.orders import Update
from afterwit.learner.rerun.halfway import Halfway
from afterwit.learner.rerun.recipe import digest, settings_of
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.update import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """An update to run again, with the samples that stay in it."""

    number: int
    """The version that it made."""
    parent: int
    """The version that it began with: staleness is counted from there."""
    recipe: Recipe
    new: Sequence[JudgedTurn]
    replayed: Sequence[JudgedTurn]
    probe: Probe | None = None
    """What the policy must say after it, to the bit: nothing was left out so far. None: something was."""


def run_again(
    versions: Versions,
    start: int,
    steps: Sequence[Step],
    again: Callable[[int, Step], Again],
    rendering: Rendering,
    frozen: FrozenModels,
    settings: LearnerSettings,
    progress: Progress,
    *,
    server: TeacherServer | None,
    ranks: Ranks,
) -> Policy:
    """The policy at `start` after the steps, which `again` gives with their samples, by their places from 1
    on; those that a run before this one kept are not run again.

    `frozen` belongs to the present `settings`, `server` holds the teacher of steps whose settings say so.

    Raises NotRepeatable, with the update's number.
    """
    policy: Policy | None = None
    present = settings
    halfway = Halfway(versions, start, steps)
    if halfway.done and (recipe := steps[halfway.done - 1].version.recipe) is not None:
        present, _, _ = settings_of(recipe)
        policy = halfway.policy(present, ranks)
    for at, planned in enumerate(steps[halfway.done :], start=halfway.done + 1):
        step = again(at, planned)
        try:
            then, objective, placement = settings_of(step.recipe)
            if policy is None:
                policy = load(versions, start, then, ranks)
            elif not then.alike(present):
                policy = _reloaded(policy, versions, then, ranks)
            if step.recipe.anew:
                policy = _reloaded(policy, versions, then, ranks, state=False)
            models = frozen if then.alike(settings) else FrozenModels(versions.base, then, server=server)
            limits = TurnLimits(
                max_tokens=context_of(policy, then, models.served if objective.needs_teacher else None),
                max_staleness=then.max_staleness,
                version=step.parent,
                chain=versions.numbers(),
                adapter=versions.adapter or SHARED,
            )
            items, refused = build([*step.new, *step.replayed], rendering, placement, limits, objective)
            if refused:
                raise NotRepeatable(f"turn {refused[0].turn} would be refused now ({refused[0].reason})")
            _check_unchanged(items, step.recipe)
            order = Update(items=items, objective=objective, settings=then, measured=0)
            with ranks.leading(order):
                order.run(policy, models, then, progress, ranks)
            if step.probe is not None and probed(policy, ranks) != step.probe:
                raise NotRepeatable(_differs(then.processes, ranks.size))
        except NotRepeatable as error:
            raise NotRepeatable(f"version {step.number} cannot be run again: {error}") from error
        present = then
        halfway.keep(policy, at, ranks)
    return load(versions, start, settings, ranks) if policy is None else policy


def _differs(processes: int, size: int) -> str:
    if processes == size:
        return "this machine does not compute it as it was: its probe differs"
    return (
        f"a learner of {processes} processes made it, this one has {size} and sums in another order: run it "
        f"with --learner-processes {processes}"
    )


def context_of(policy: Policy, settings: LearnerSettings, served: TeacherServer | None) -> int:
    """Most tokens of prompt and response: the least of the setting and of either model's context."""
    context = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    most = min(settings.max_tokens, context or settings.max_tokens)
    return most if served is None else min(most, served.context_length)


def _check_unchanged(items: Sequence[Item], recipe: Recipe) -> None:
    for item in items:
        if item.turn is None or recipe.digests.get(item.turn) != digest(item):
            raise NotRepeatable(f"turn {item.turn} is not what it was: it was judged again since")


def _reloaded(
    policy: Policy, versions: Versions, settings: LearnerSettings, ranks: Ranks, *, state: bool = True
) -> Policy:
    """The policy as a learner finds it that starts anew: through its files, those of its state or without."""
    with versions.scratch() as scratch:
        version = Version(number=1, parent=0, origin=Origin.REPLAY, created=0.0, probe=probed(policy, ranks))

        def fill(place: Path) -> None:
            write(policy, place, versions.base, lambda phase: None, ranks)
            for path in () if state else [path for path in place.iterdir() if is_state(path.name)]:
                path.unlink()

        scratch.write(version, fill)
        return load(scratch, 1, settings, ranks)
