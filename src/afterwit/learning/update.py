"""One update: the batch's gradient, summed over micro-batches, then the optimiser's step; once per epoch.

Every part of the loss is divided by counts over the whole batch, so micro-batches may be cut anywhere, and
run by any rank of the learner: gradients and terms are summed before they are looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from afterwit.engines.teacher import given_ids
from afterwit.errors import UpdateRefused
from afterwit.fused_head.score import score_states
from afterwit.learning.batch import Item
from afterwit.learning.distributed.ranks import ALONE, Ranks, streamed
from afterwit.learning.frozen import FrozenModels
from afterwit.learning.metrics import figures, work
from afterwit.learning.optimizer import as_float, clip_gradients, gradient_norm, set_rate
from afterwit.learning.passes import UpdateState, accumulate, accumulate_nothing
from afterwit.learning.phase import Phase, Progress
from afterwit.learning.policy import Policy
from afterwit.learning.rows import NEVER, MicroBatch, Packing, Row
from afterwit.learning.score import stream_logits, stream_states
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.teacher_scores import server_scores, teacher_rows, temperature_of
from afterwit.objective.advantage import advantages, denominators
from afterwit.objective.choices import Rewarded
from afterwit.objective.logprobs import top_k
from afterwit.objective.sample import Sample, TeacherRows
from afterwit.objective.settings import ObjectiveSettings
from afterwit.teacher import Ids

Epoch = Callable[[UpdateState, LearnerSettings, Progress], tuple[dict[str, float], float]]
"""One step of the optimiser over the whole batch: its loss terms and the gradient's norm before clipping."""


def update(
    policy: Policy,
    frozen: FrozenModels,
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    progress: Progress,
    ended: Callable[[UpdateState], object] = lambda state: None,
    ranks: Ranks = ALONE,
    epoch: Epoch | None = None,
) -> dict[str, float]:
    """Move the policy's weights by one batch; returns the metrics, measured at the update's start.

    All ranks of the learner call it with the same items and the same weights, and return the same. `ended` is
    called with the update's state once the weights have moved. `epoch` takes each step of the optimiser in
    the place of this module's own.
    Raises UpdateRefused if loss or gradient is not finite. After any error load the policy again: an earlier
    epoch may have moved it.
    """
    state, reward_mean = update_state(policy, frozen, items, objective, settings, ranks)
    set_rate(policy.optimizer, settings.settled(policy.width).rate)
    step = epoch or _epoch
    terms, norm = step(state, settings, progress)
    found = {**terms, "grad_norm": norm} | figures(state)
    for _ in range(settings.epochs - 1):
        terms, _ = step(state, settings, progress)
        found |= {name: value for name, value in terms.items() if name.startswith("ratio_")}
    policy.reward_mean = reward_mean
    if policy.ema is not None:
        policy.ema.follow(policy.masters)
    ranks.require_alike(policy.masters)
    ended(state)
    return found


def _epoch(
    state: UpdateState, settings: LearnerSettings, progress: Progress
) -> tuple[dict[str, float], float]:
    policy, ranks = state.policy, state.ranks
    policy.masters.clear()
    counted: Counter[str] = Counter()
    for micro_batch in ranks.passes(state.passes, progress):
        if micro_batch is None:
            accumulate_nothing(state)
        else:
            counted.update(accumulate(state, micro_batch))
    terms = ranks.totals(counted)
    ranks.add_up(policy.masters)
    norm = gradient_norm(policy.masters)
    length = as_float(norm)
    require_finite(terms["loss"], length, policy)
    clip_gradients(policy.masters, norm, settings.clip)
    policy.optimizer.step()
    policy.masters.clear()
    policy.masters.publish()
    progress(Phase.STEPPED)
    return terms, length


def require_finite(loss: float, norm: float, policy: Policy) -> None:
    """UpdateRefused unless loss and gradient are finite; the gradient is forgotten then."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        policy.masters.clear()
        raise UpdateRefused(f"the loss is {loss}, the gradient's norm {norm}: no step was taken")


def update_state(
    policy: Policy,
    frozen: FrozenModels,
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    ranks: Ranks = ALONE,
) -> tuple[UpdateState, float]:
    """The state before the first micro-batch, and the running mean of rewards after the batch."""
    limit, runs = (
        settings.micro_batch_tokens,
        objective.needs_teacher and any(item.teachers for item in items),
    )
    scores = None
    if runs and frozen.served is not None:
        k = given_ids(objective)
        at = (lambda rows: likeliest(policy, rows, k, limit, ranks)) if k else None
        scores = server_scores(items, frozen.served, ranks, at)
    rows = teacher_rows(items, scores, policy.model.get_input_embeddings().weight, k=objective.ids_kept)
    samples, reward_mean = _samples(items, rows, objective, policy, served=scores is not None)
    teacher = frozen.teacher(policy) if runs and scores is None else None
    reference = frozen.reference(policy) if objective.beta > 0 else None
    packing = Packing.of(settings, policy.model, teacher, reference)
    state = UpdateState(
        policy=policy,
        teacher=teacher,
        reference=reference,
        items=items,
        samples=samples,
        over=denominators(samples, objective),
        objective=objective,
        limit=limit,
        packing=packing,
        passes=own_passes(items, packing, limit, ranks),
        ranks=ranks,
        fused=policy.head is not None and frozen.fusable(),
    )
    return state, reward_mean


def _samples(
    items: Sequence[Item],
    rows: Sequence[tuple[TeacherRows, ...]],
    objective: ObjectiveSettings,
    policy: Policy,
    *,
    served: bool,
) -> tuple[list[Sample], float]:
    """The batch as the objective sees it, and the running mean of rewards after it."""
    rewarded = [None if item.reward is None else Rewarded(item.reward, item.group) for item in items]
    found = advantages(rewarded, objective, mean=policy.reward_mean)
    device = policy.model.device
    samples = [
        sample_of(item, own, advantage, device, served=served and bool(own))
        for item, own, advantage in zip(items, rows, found.values, strict=True)
    ]
    return samples, found.mean


def sample_of(
    item: Item,
    rows: tuple[TeacherRows, ...],
    advantage: float | None,
    device: torch.device,
    *,
    served: bool,
) -> Sample:
    """One item as the objective sees it. `served`: the rows are of a teacher on a server."""
    behaviour = item.behaviour
    return Sample.sampled_at(
        behaviour.temperature,
        tau=temperature_of(behaviour.temperature) if served else None,
        ids_T=torch.tensor(item.student.response, device=device),
        mask_T=~torch.tensor(behaviour.forced, device=device),
        behaviour_T=None if behaviour.logprobs is None else torch.tensor(behaviour.logprobs, device=device),
        basis=behaviour.basis.value,
        advantage=advantage,
        hints=0 if rows else len(item.teachers),
        teacher_rows=rows,
    )


def own_passes(items: Sequence[Item], packing: Packing, limit: int, ranks: Ranks) -> list[MicroBatch]:
    """This rank's passes, of at most `limit` tokens; some rank may have none.

    Items that run one sequence each are shared out before they are cut: so no rank has more to do by a whole
    pass. Packed passes are shared out as they are cut, so that shared beginnings stay together.
    """
    rows = [item.student for item in items]
    passes = packing.cut(rows, limit)
    if not passes[0].packed:
        own = ranks.share([work([item]) for item in items])
        cut = NEVER.cut([rows[index] for index in own], limit)
        return [MicroBatch([own[at] for at in each.chosen], False) for each in cut]
    while len(passes) < min(ranks.size, len(rows)) and limit > 1:  # else some rank would have none
        limit //= 2
        passes = packing.cut(rows, limit)
    mine = ranks.share([work([items[index] for index in each.chosen]) for each in passes])
    return [passes[index] for index in mine]


@torch.no_grad()
def likeliest(policy: Policy, rows: Sequence[Row], k: int, limit: int, ranks: Ranks) -> list[Sequence[Ids]]:
    """The `k` likeliest ids, or all, at each place of each response. `limit`: tokens of a pass."""
    wanted = min(k, policy.model.config.get_text_config().vocab_size)
    return [tuple(map(tuple, ids_TK.tolist())) for ids_TK in _ids(policy, rows, wanted, limit, ranks)]


def _ids(policy: Policy, rows: Sequence[Row], k: int, limit: int, ranks: Ranks) -> Iterator[Tensor]:
    if policy.head is None:
        for logits_TV in streamed(stream_logits, policy.model, rows, limit, NEVER, ranks):
            yield top_k(logits_TV, k)
        return
    states = streamed(stream_states, policy.model, rows, limit, NEVER, ranks)
    for row, states_TD in zip(rows, states, strict=True):
        ids_T1 = torch.tensor(row.response, device=states_TD.device)[:, None]
        tau_T = torch.ones(len(row.response), device=states_TD.device)
        yield score_states(policy.whole_head(), states_TD, tau_T, ids_T1, k=k).top_ids_NK
