"""What an update did to the responses that it learned from: one forward pass once the weights have moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from afterwit.learning.batch import Item
from afterwit.learning.distributed.ranks import ALONE, Ranks, streamed
from afterwit.learning.policy import Policy
from afterwit.learning.rows import Packing, Row
from afterwit.learning.score import stream_logits, stream_states
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update_state import UpdateState
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, token_targets
from afterwit.objective.terms import advantages
from afterwit.promotion.items import Item as ApprovedItem
from afterwit.version import Effect

CHUNK = 256
"""Tokens whose logits are in memory at once beside the fused head."""


@torch.no_grad()
def effects(state: UpdateState, indices: Sequence[int], *, measured: Sequence[int]) -> tuple[Effect, ...]:
    """The effects on these items that are turns of the store, after the update's last epoch.

    What the weights now say is measured for the `measured` ones among them, by whichever rank has least to
    do; all else each rank knows of its own.
    """
    read = [index for index in measured if index in indices and state.items[index].turn is not None]
    with state.ranks.running():
        share = state.ranks.share([len(state.items[index].student) for index in read])
        chosen = [read[at] for at in share]
        now = dict(zip(chosen, _now(state, chosen), strict=True))
    after = state.ranks.gathered(now)
    with state.ranks.running():
        own = [index for index in indices if index in state.targets and state.items[index].turn is not None]
        mine = {index: _effect(state, index, after.get(index)) for index in own}
    return tuple(state.ranks.gathered(mine).values())


def _effect(state: UpdateState, index: int, after: float | None) -> Effect:
    sample, target, turn = state.samples[index], state.targets[index], state.items[index].turn
    if turn is None:
        raise ValueError(f"item {index} is of no store")
    hinted = target.hint_targets
    return Effect(
        turn=turn,
        before=_mean(target.old_T, sample.mask_T),
        after=after,
        hinted_before=None if hinted is None else _mean(target.old_T + hinted.gap_T, sample.mask_T),
        advantages=_pushes(sample, target, state.objective),
    )


def _pushes(sample: Sample, target: Target, objective: ObjectiveSettings) -> tuple[float, ...]:
    """`Effect.advantages`, to three decimals."""
    targets = token_targets(sample, target, objective)
    pushed_T = torch.zeros(len(sample.ids_T), dtype=torch.float64)
    for name in objective.terms_of(sample.carried):
        ids_TJ, values_TJ = advantages(name, targets, objective)
        own_T = (values_TJ * (ids_TJ == sample.ids_T[:, None])).sum(dim=-1)
        own_T = torch.where(sample.mask_of(name), own_T, torch.zeros_like(own_T))
        pushed_T += objective.weights[name] * own_T.double().cpu()
    return tuple(round(value, 3) for value in pushed_T.tolist())


def _now(state: UpdateState, chosen: Sequence[int]) -> Iterator[float]:
    """The mean log-prob of each item's response under the policy, in order."""
    head, model = state.policy.head, state.policy.model
    stream = stream_logits if head is None or not state.fused else stream_states
    rows = [state.items[index].student for index in chosen]
    outputs = streamed(stream, model, rows, state.limit, state.packing, state.ranks)
    for index, output in zip(chosen, outputs, strict=True):
        head = None if head is None else state.policy.whole_head()
        sample, parts = state.samples[index], list[Tensor]()
        for part, ids in zip(torch.split(output, CHUNK), torch.split(sample.ids_T, CHUNK), strict=True):
            logits = part if head is None or not state.fused else head.logits(part, head.buffer(len(part)))
            parts.append(at(logprobs(logits, sample.tau), ids.to(logits.device)))
        yield _mean(torch.cat(parts), sample.mask_T)


def _mean(values_T: Tensor, mask_T: Tensor) -> float:
    return float(values_T.double()[mask_T.to(values_T.device)].mean())


FORWARD_AND_BACKWARD = 3
"""Work of a token that is trained on, in tokens that are only read."""


SHARE_OF_EFFECTS = 0.1
"""What measuring effects may cost, as a share of the update's work."""


LEAST_OF_EFFECTS = 4096
"""Tokens that are read for it after the smallest update too."""


def work(items: Sequence[Item]) -> int:
    """What one epoch over these items costs, in tokens that are only read."""
    trained = sum(len(item.student) for item in items)
    return FORWARD_AND_BACKWARD * trained + sum(len(row) for item in items for row in item.teachers)


def to_measure(items: Sequence[Item], new: int) -> list[int]:
    """Which of the first `new` items have their effect measured, ascending: those with hints before others,
    while they fit. Items of no store are left out."""
    left = max(LEAST_OF_EFFECTS, int(SHARE_OF_EFFECTS * work(items)))
    own = [index for index in range(new) if items[index].turn is not None]
    chosen = []
    for index in sorted(own, key=lambda index: not items[index].hints):
        if len(items[index].student) <= left:
            left -= len(items[index].student)
            chosen.append(index)
    return sorted(chosen)


ROWS = 256
"""Tokens whose log-probs over the vocabulary are held at once."""


def read(
    policy: Policy, items: Sequence[ApprovedItem], settings: LearnerSettings, ranks: Ranks = ALONE
) -> list[list[float]]:
    """The log-probs that the policy gives each item's ids, at temperature 1, in one pass.

    Each rank reads its share of them.
    """
    with ranks.running():
        mine = ranks.share([len(item.prompt_ids) + len(item.ids) for item in items])
        own = dict(zip(mine, _read(policy, [items[index] for index in mine], settings, ranks), strict=True))
    found = ranks.gathered(own)
    return [found[index] for index in range(len(items))]


def _read(
    policy: Policy, items: Sequence[ApprovedItem], settings: LearnerSettings, ranks: Ranks
) -> list[list[float]]:
    rows = [Row(prompt=item.prompt_ids, response=item.ids) for item in items]
    packing = Packing.of(settings, policy.model)
    limit = settings.micro_batch_tokens
    found = streamed(stream_logits, policy.model, rows, limit, packing, ranks)
    return [_logprobs(logits_TV, item) for item, logits_TV in zip(items, found, strict=True)]


def _logprobs(logits_TV: Tensor, item: ApprovedItem) -> list[float]:
    """The log-prob of each of the item's T ids at temperature 1, some rows at a time."""
    ids_T = torch.tensor(item.ids, device=logits_TV.device)
    parts = zip(torch.split(logits_TV, ROWS), torch.split(ids_T, ROWS), strict=True)
    return torch.cat([at(logprobs(rows, tau=1.0), ids) for rows, ids in parts]).tolist()
