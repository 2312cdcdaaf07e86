"""One update: the batch's gradient, summed over passes, then the optimiser's step; once per epoch.

Every share of the loss is divided by counts over the whole batch, so passes may be cut anywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.core.errors import UpdateRefused
from afterwit.learner import measure
from afterwit.learner import optimizer as adamw
from afterwit.learner.batch import Item
from afterwit.learner.memory import Memory
from afterwit.learner.packing import Packing, Pass
from afterwit.learner.phase import Phase, Progress
from afterwit.learner.policy import Policy
from afterwit.learner.rows import Row
from afterwit.learner.score import response_logits, stream_logits
from afterwit.learner.settings import LearnerSettings
from afterwit.objective.advantage import advantages
from afterwit.objective.hybrid import memory_share, share
from afterwit.objective.sample import Denominators, Sample, denominators
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, prepare


@dataclass(slots=True, kw_only=True)
class _Run:
    """An update on its way. `targets` fills in the first epoch, whose logits are the old policy's."""

    model: PreTrainedModel
    base: PreTrainedModel | None
    teacher: PreTrainedModel | None
    items: Sequence[Item]
    samples: list[Sample]
    memories: Sequence[Memory]
    over: Denominators
    objective: ObjectiveSettings
    limit: int
    packing: Packing
    progress: Progress
    targets: dict[int, Target] = field(default_factory=dict)


def needs_base(objective: ObjectiveSettings, settings: LearnerSettings) -> bool:
    """Whether an update reads the frozen base's weights."""
    taught = settings.teacher == "base" and objective.needs_teacher
    return taught or objective.beta > 0 or objective.memory_weight > 0


def update(
    policy: Policy,
    base: PreTrainedModel | None,
    items: Sequence[Item],
    memories: Sequence[Memory],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    progress: Progress,
) -> dict[str, float]:
    """Move the policy's weights by one batch; returns the metrics, measured at the update's start.

    Raises UpdateRefused where loss or gradient is not finite. Whatever it raises, the policy may have moved
    by an earlier epoch: load it anew.
    """
    samples, reward_mean = _samples(items, objective, policy)
    run = _Run(
        model=policy.model,
        base=base,
        teacher=base if settings.teacher == "base" else policy.model,
        items=items,
        samples=samples,
        memories=memories,
        over=denominators(samples, objective, memory=len(memories)),
        objective=objective,
        limit=settings.micro_batch_tokens,
        packing=Packing.of(settings, policy.model, base),
        progress=progress,
    )
    terms, norm = _epoch(run, policy, settings)
    metrics = {**terms, "grad_norm": norm} | measure.batch(items, run.targets, samples, memories)
    for _ in range(settings.epochs - 1):
        terms, _ = _epoch(run, policy, settings)
        metrics |= {name: value for name, value in terms.items() if name.startswith("ratio_")}
    policy.reward_mean = reward_mean
    return metrics


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


def _epoch(run: _Run, policy: Policy, settings: LearnerSettings) -> tuple[dict[str, float], float]:
    """One optimiser step over the whole batch: its loss terms and the gradient's norm."""
    policy.masters.clear()
    terms: Counter[str] = Counter()
    for each in run.packing.cut([item.student for item in run.items], run.limit):
        terms.update(_learn(run, each))
        run.progress(Phase.SCORING)
    for each in run.packing.cut([memory.row for memory in run.memories], run.limit):
        terms.update(_remember(run, each))
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


def _learn(run: _Run, each: Pass) -> dict[str, float]:
    """Add one pass over turns to the gradient."""
    chosen = each.chosen
    logits = response_logits(run.model, [run.items[index].student for index in chosen], packed=each.packed)
    teachers, anchors = _views(run, chosen)
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for index, logits_TV in zip(chosen, logits, strict=True):
        sample, known = run.samples[index], index in run.targets
        if not known:
            shown = islice(teachers, sample.hints)
            run.targets[index] = prepare(sample, logits_TV.detach(), shown, run.objective)
        target = run.targets[index]
        base_TV = next(anchors) if run.objective.beta > 0 else None
        part = share(logits_TV, sample, target, run.over, run.objective, logits_base_TV=base_TV)
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
        if known:
            terms.update(measure.ratio(logits_TV.detach(), sample, target, of=len(run.items)))
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}


def _views(run: _Run, chosen: Sequence[int]) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The teacher's logits of the chosen turns' hints that have not been heard yet, and the base's of their
    students. One model's are one stream, turn by turn, hints first: they share their prompts."""
    hinted = [() if index in run.targets else run.items[index].teachers for index in chosen]
    plain = [(run.items[index].student,) if run.objective.beta > 0 else () for index in chosen]
    if run.teacher is run.base:
        both = _stream(run, run.base, [hints + own for hints, own in zip(hinted, plain, strict=True)])
        return both, both
    return _stream(run, run.teacher, hinted), _stream(run, run.base, plain)


def _stream(run: _Run, model: PreTrainedModel | None, rows: Sequence[tuple[Row, ...]]) -> Iterator[Tensor]:
    flat = [row for each in rows for row in each]
    return iter(()) if model is None else stream_logits(model, flat, run.limit, run.packing)


def _remember(run: _Run, each: Pass) -> dict[str, float]:
    """Add one pass over memory samples to the gradient."""
    memories = [run.memories[index] for index in each.chosen]
    if run.base is None:
        raise ValueError(f"{len(memories)} memory samples, but no base to compare with")
    rows = [memory.row for memory in memories]
    logits = response_logits(run.model, rows, packed=each.packed)
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for memory, logits_TV, base_TV in zip(
        memories, logits, stream_logits(run.base, rows, run.limit, run.packing), strict=True
    ):
        mask_T = torch.ones(len(logits_TV), dtype=torch.bool, device=logits_TV.device)
        part = memory_share(logits_TV, base_TV, mask_T, run.over, run.objective, tau=memory.tau)
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}
