"""What an update did to the responses that it learned from: one forward pass once the weights have moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from afterwit.core.version import Effect
from afterwit.learner.scoring import Row, stream_logits, stream_states
from afterwit.learner.update.state import UpdateState
from afterwit.objective.logprobs import at, logprobs

CHUNK = 256
"""Tokens whose logits are in memory at once beside the fused head."""


@torch.no_grad()
def effects(state: UpdateState, indices: Sequence[int]) -> tuple[Effect, ...]:
    """The effects on these items that are turns of the store, after the update's last epoch.

    Each rank measures its own.
    """
    with state.ranks.together():
        chosen = [
            index for index in indices if index in state.targets and state.items[index].turn is not None
        ]
        found = _now(state, [(index, row) for index in chosen for row in _rows(state, index)])
        mine = {index: _effect(state, index, found) for index in chosen}
    return tuple(state.ranks.gathered(mine).values())


def _effect(state: UpdateState, index: int, now: Iterator[float]) -> Effect:
    sample, target, turn = state.samples[index], state.targets[index], state.items[index].turn
    if turn is None:
        raise ValueError(f"item {index} is of no store")
    hinted = target.hint_targets
    return Effect(
        turn=turn,
        before=_mean(target.old_T, sample.mask_T),
        after=next(now),
        hinted_before=None if hinted is None else _mean(target.old_T + hinted.gap_T, sample.mask_T),
        hinted_after=next(now) if _hint(state, index) is not None else None,
    )


def _rows(state: UpdateState, index: int) -> list[Row]:
    """The response after its prompt and, if a hint taught it, after the hinted one."""
    item, hint = state.items[index], _hint(state, index)
    return [item.student] if hint is None else [item.student, item.teachers[hint]]


def _hint(state: UpdateState, index: int) -> int | None:
    """The hint that taught most tokens; None: none did."""
    hinted = state.targets[index].hint_targets
    if hinted is None or not state.items[index].teachers:
        return None
    chosen = hinted.hint_T[state.samples[index].mask_T]
    return int(torch.bincount(chosen).argmax())


def _now(state: UpdateState, rows: Sequence[tuple[int, Row]]) -> Iterator[float]:
    """The mean log-prob of each row's response under the policy, in order."""
    head, model = state.policy.head, state.policy.model
    stream = stream_logits if head is None or not state.fused else stream_states
    outputs = stream(model, [row for _, row in rows], state.limit, state.packing)
    for (index, _), output in zip(rows, outputs, strict=True):
        sample, parts = state.samples[index], list[Tensor]()
        for part, ids in zip(torch.split(output, CHUNK), torch.split(sample.ids_T, CHUNK), strict=True):
            logits = part if head is None or not state.fused else head.logits(part, head.buffer(len(part)))
            parts.append(at(logprobs(logits, sample.tau), ids.to(logits.device)))
        yield _mean(torch.cat(parts), sample.mask_T)


def _mean(values_T: Tensor, mask_T: Tensor) -> float:
    return float(values_T.double()[mask_T.to(values_T.device)].mean())
