"""The measurements of an update, for the manifest: figures of its batch, and its effect on each turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import torch
from torch import Tensor

from afterwit.learning.batch import Item
from afterwit.learning.distributed.ranks import ALONE, Ranks, streamed
from afterwit.learning.passes import UpdateState
from afterwit.learning.policy import Policy
from afterwit.learning.rows import Packing, Row, token_ratio
from afterwit.learning.score import stream_logits, stream_states
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target
from afterwit.objective.terms import advantages
from afterwit.promotion.suite import SuiteItem
from afterwit.version import Effect

CHUNK = 256
"""Tokens whose log-probs over the vocabulary are in memory at once."""

FORWARD_AND_BACKWARD = 3
"""Work of a token that is trained on, in tokens that are only read."""
SHARE_OF_EFFECTS = 0.1
"""The most that measuring effects may cost, as a share of the update's work."""
LEAST_OF_EFFECTS = 4096
"""Tokens that are read for it after the smallest update too."""


def figures(state: UpdateState) -> dict[str, float]:
    """Counts, token ratio, staleness, the teachers' gaps, and the engine's distance from the learner."""
    items, samples = state.items, state.samples
    staleness = [item.staleness for item in items] or [0]
    return {
        "samples": float(len(items)),
        "rl_samples": float(sum(sample.advantage is not None for sample in samples)),
        "opd_samples": float(sum(sample.taught for sample in samples)),
        "tokens": float(sum(int(sample.mask_T.sum()) for sample in samples)),
        "token_ratio": token_ratio([row for item in items for row in (item.student, *item.teachers)]),
        "staleness_mean": fmean(staleness),
        "staleness_max": float(max(staleness)),
        **_hints(state),
        **_mismatch(state),
    }


def _hints(state: UpdateState) -> dict[str, float]:
    """How many tokens each candidate taught; over these tokens, the means of |log pi_T - log pi_old| and of
    the overlap of the student's top-K ids with the teacher's.
    """
    mine = {}
    for index, target in state.targets.items():
        if target.hint_T is not None and target.overlap_T is not None:
            mask_T = state.samples[index].mask_of("opd")
            read = (target.hint_T, target.tokens.gap_N, target.overlap_T)
            mine[index] = [each[mask_T].cpu() for each in read]
    taught = state.ranks.gathered(mine)
    if not taught:
        return {}
    hint_N, gap_N, overlap_N = map(torch.cat, zip(*taught.values(), strict=True))
    counts = enumerate(torch.bincount(hint_N).tolist())
    return {
        **{f"hint_{hint}_tokens": float(count) for hint, count in counts},
        "teacher_gap": gap_N.abs().mean().item(),
        "overlap": overlap_N.double().mean().item(),
    }


def _mismatch(state: UpdateState) -> dict[str, float]:
    """Mean and max |log pi_old - log pi_b| in nats, over turns that were sampled without truncation.

    `mismatch_fresh` is the mean over responses that these weights alone made. There engine and learner must
    agree; on older ones they differ, because the policy has moved.
    """
    parts = state.ranks.gathered(
        {
            index: target.mismatch_T[state.samples[index].mask_T].abs().cpu()
            for index, target in state.targets.items()
            if target.mismatch_T is not None and not state.items[index].behaviour.truncated
        }
    )
    if not parts:
        return {}
    mismatch_N = torch.cat(list(parts.values()))
    found = {"mismatch_mean": mismatch_N.mean().item(), "mismatch_max": mismatch_N.max().item()}
    if fresh := [gaps_T for index, gaps_T in parts.items() if is_fresh(state.items[index])]:
        found["mismatch_fresh"] = torch.cat(fresh).mean().item()
    return found


def is_fresh(item: Item) -> bool:
    """Whether the version that is being updated sampled the whole response, and read the prompt too.

    A response that was under way at a swap keeps the keys and values of older weights.
    """
    return item.staleness == 0 and not item.behaviour.older_cache


def measure(state: UpdateState, count: int) -> tuple[Effect, ...]:
    """The effects on the first `count` items, as far as they are turns of the store."""
    return effects(state, range(count), measured=to_measure(state.items, count)) if count else ()


@torch.no_grad()
def effects(state: UpdateState, indices: Sequence[int], *, measured: Sequence[int]) -> tuple[Effect, ...]:
    """The effects on these items that are turns of the store, after the update's last epoch.

    The new weights are read for the `measured` items among them, shared among the ranks.
    """
    read = [index for index in measured if index in indices and state.items[index].turn is not None]
    share = state.ranks.share([len(state.items[index].student) for index in read])
    chosen = [read[at] for at in share]
    after = state.ranks.gathered(dict(zip(chosen, _now(state, chosen), strict=True)))
    own = {
        index: _effect(state, index, turn, after.get(index))
        for index in indices
        if index in state.targets and (turn := state.items[index].turn) is not None
    }
    return tuple(state.ranks.gathered(own).values())


def _effect(state: UpdateState, index: int, turn: str, after: float | None) -> Effect:
    sample, target = state.samples[index], state.targets[index]
    old_T, hinted_T = target.tokens.old_N, target.tokens.old_N + target.tokens.gap_N
    return Effect(
        turn=turn,
        before=_mean(old_T, sample.mask_T),
        after=after,
        hinted_before=None if target.hint_T is None else _mean(hinted_T, sample.mask_T),
        advantages=_pushes(sample, target, state.objective),
    )


def _pushes(sample: Sample, target: Target, objective: ObjectiveSettings) -> tuple[float, ...]:
    """`Effect.advantages`, to three decimals."""
    pushed_T = torch.zeros(len(sample.ids_T), dtype=torch.float64)
    for name in objective.terms_of(sample.carried):
        ids_TJ, values_TJ = advantages(name, target.tokens, objective)
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


def work(items: Sequence[Item]) -> int:
    """The cost of one epoch over these items, in tokens that are only read."""
    trained = sum(len(item.student) for item in items)
    return FORWARD_AND_BACKWARD * trained + sum(len(row) for item in items for row in item.teachers)


def to_measure(items: Sequence[Item], new: int) -> list[int]:
    """The items among the first `new` whose effect is measured, ascending: those with hints before others,
    while they fit. Items of no store are left out."""
    left = max(LEAST_OF_EFFECTS, int(SHARE_OF_EFFECTS * work(items)))
    own = [index for index in range(new) if items[index].turn is not None]
    chosen = []
    for index in sorted(own, key=lambda index: not items[index].hints):
        if len(items[index].student) <= left:
            left -= len(items[index].student)
            chosen.append(index)
    return sorted(chosen)


def item_logprobs(
    policy: Policy, items: Sequence[SuiteItem], settings: LearnerSettings, ranks: Ranks = ALONE
) -> list[list[float]]:
    """The log-probs that the policy gives each item's ids, at temperature 1, in one pass."""
    rows = [Row(prompt=item.prompt_ids, response=item.ids) for item in items]
    mine = ranks.share([len(row) for row in rows])
    packing, limit = Packing.of(settings, policy.model), settings.micro_batch_tokens
    outputs = streamed(stream_logits, policy.model, [rows[index] for index in mine], limit, packing, ranks)
    found = ranks.gathered(
        {index: _logprobs(logits, items[index].ids) for index, logits in zip(mine, outputs, strict=True)}
    )
    return [found[index] for index in range(len(items))]


def _logprobs(logits_TV: Tensor, ids: Sequence[int]) -> list[float]:
    ids_T = torch.tensor(ids, device=logits_TV.device)
    parts = zip(torch.split(logits_TV, CHUNK), torch.split(ids_T, CHUNK), strict=True)
    return torch.cat([at(logprobs(part, tau=1.0), ids) for part, ids in parts]).tolist()
