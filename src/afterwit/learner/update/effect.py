"""What an update did to the responses that it learned from: one forward pass once the weights have moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from afterwit.core.version import Effect
from afterwit.learner.ranks.lockstep import streamed
from afterwit.learner.scoring import stream_logits, stream_states
from afterwit.learner.update.state import UpdateState
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, token_targets
from afterwit.objective.terms import advantages

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
