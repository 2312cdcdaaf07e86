"""One update: the batch's gradient, summed over passes, then the optimiser's step; once per epoch.

Every share of the loss is divided by counts over the whole batch, so passes may be cut anywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from afterwit.core.errors import UpdateRefused
from afterwit.learner.batch import Item
from afterwit.learner.parameters import optimizer as adamw
from afterwit.learner.policy import Policy
from afterwit.learner.scoring.packing import Packing
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.update import fused, metrics, plain
from afterwit.learner.update.phase import Phase, Progress
from afterwit.learner.update.state import UpdateState
from afterwit.objective.advantage import advantages
from afterwit.objective.sample import Sample, denominators
from afterwit.objective.settings import ObjectiveSettings


def needs_base(objective: ObjectiveSettings, settings: LearnerSettings) -> bool:
    """Whether an update reads the frozen base's weights."""
    taught = settings.teacher == "base" and objective.needs_teacher
    return taught or objective.beta > 0


def update(
    policy: Policy,
    base: PreTrainedModel | None,
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    progress: Progress,
) -> dict[str, float]:
    """Move the policy's weights by one batch; returns the metrics, measured at the update's start.

    Raises UpdateRefused where loss or gradient is not finite. Whatever it raises, the policy may have moved
    by an earlier epoch: load it anew.
    """
    samples, reward_mean = _samples(items, objective, policy)
    teacher = _teacher(policy, base, settings)
    run = UpdateState(
        policy=policy,
        base=base,
        teacher=teacher,
        items=items,
        samples=samples,
        over=denominators(samples, objective),
        objective=objective,
        limit=settings.micro_batch_tokens,
        packing=Packing.of(settings, policy.model, base, teacher),
        progress=progress,
    )
    terms, norm = _epoch(run, settings)
    found = {**terms, "grad_norm": norm} | metrics.batch(items, run.targets, samples)
    for _ in range(settings.epochs - 1):
        terms, _ = _epoch(run, settings)
        found |= {name: value for name, value in terms.items() if name.startswith("ratio_")}
    policy.reward_mean = reward_mean
    if policy.ema is not None:
        policy.ema.follow(policy.masters)
    return found


def _teacher(
    policy: Policy, base: PreTrainedModel | None, settings: LearnerSettings
) -> PreTrainedModel | None:
    """Who reads the hints; None where nobody has to."""
    if settings.teacher == "base":
        return base
    return policy.model if policy.ema is None else policy.ema.model


def _samples(
    items: Sequence[Item], objective: ObjectiveSettings, policy: Policy
) -> tuple[list[Sample], float]:
    """The batch as the objective sees it, and the running mean of rewards after it."""
    rewards = [item.reward for item in items]
    groups = [(item.turn.scope, item.turn.prompt_ids) for item in items]
    found = advantages(rewards, groups, objective, mean=policy.reward_mean)
    pairs = zip(items, found.values, strict=True)
    return [_sample(item, advantage, policy.model.device) for item, advantage in pairs], found.mean


def _sample(item: Item, advantage: float | None, device: torch.device) -> Sample:
    sampled, behaviour = item.turn.sampled, item.behaviour
    return Sample(
        ids_T=torch.tensor(sampled.ids, device=device),
        mask_T=~torch.tensor(sampled.forced, device=device),
        behaviour_T=None if behaviour is None else torch.tensor(behaviour, device=device),
        basis=sampled.basis.value,
        tau=item.tau,
        advantage=advantage,
        hints=len(item.teachers),
        hint_lengths=tuple(map(len, item.hints)),
    )


def _epoch(run: UpdateState, settings: LearnerSettings) -> tuple[dict[str, float], float]:
    """One optimiser step over the whole batch: its loss terms and the gradient's norm."""
    policy, way = run.policy, plain if run.policy.head is None else fused
    policy.masters.clear()
    terms: Counter[str] = Counter()
    for each in run.packing.cut([item.student for item in run.items], run.limit):
        terms.update(way.learn(run, each))
        run.progress(Phase.SCORING)
    norm = adamw.gradient_norm(policy.masters)
    if not (math.isfinite(terms["loss"]) and math.isfinite(norm.item())):
        policy.masters.clear()
        raise UpdateRefused(
            f"the loss is {terms['loss']}, the gradient's norm {norm.item()}: no step was taken"
        )
    adamw.clip(policy.masters, norm, settings.clip)
    policy.optimizer.step()
    policy.masters.clear()
    policy.masters.publish()
    run.progress(Phase.STEPPED)
    return dict(terms), norm.item()
