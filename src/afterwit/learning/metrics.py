"""The metrics of an update, for the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from afterwit.learning.batch import Item
from afterwit.learning.rows import token_ratio
from afterwit.learning.update_state import UpdateState
from afterwit.objective.sample import Sample
from afterwit.objective.target import Target


def everywhere(state: UpdateState) -> Mapping[int, Target]:
    """The targets of the whole batch, if ranks share it without the ids that only the loss reads."""
    if state.ranks.size == 1:
        return state.targets
    found = state.ranks.gathered({index: _light(target) for index, target in state.targets.items()})
    return {index: _on(target, state.samples[index].ids_T.device) for index, target in found.items()}


def _light(target: Target) -> Target:
    hinted = target.hint_targets
    light = replace(target, hint_targets=None if hinted is None else replace(hinted, kept=None))
    return _on(light, torch.device("cpu"))


def _on(target: Target, device: torch.device) -> Target:
    hinted, mismatch_T = target.hint_targets, target.mismatch_T
    return Target(
        old_T=target.old_T.to(device),
        mismatch_T=None if mismatch_T is None else mismatch_T.to(device),
        weight_T=target.weight_T.to(device),
        hint_targets=None
        if hinted is None
        else replace(
            hinted,
            hint_T=hinted.hint_T.to(device),
            gap_T=hinted.gap_T.to(device),
            overlap_T=hinted.overlap_T.to(device),
        ),
    )


def batch(
    items: Sequence[Item],
    targets: Mapping[int, Target],
    samples: Sequence[Sample],
) -> dict[str, float]:
    """Counts, token ratio, staleness, the teachers' gaps, and the engine's distance from the learner."""
    staleness = [item.staleness for item in items] or [0]
    return {
        "samples": float(len(items)),
        "rl_samples": float(sum(sample.advantage is not None for sample in samples)),
        "opd_samples": float(sum(sample.taught for sample in samples)),
        "tokens": float(sum(int(sample.mask_T.sum()) for sample in samples)),
        "token_ratio": token_ratio([row for item in items for row in (item.student, *item.teachers)]),
        "staleness_mean": fmean(staleness),
        "staleness_max": float(max(staleness)),
        **_hints([(samples[index], target) for index, target in targets.items()]),
        **_mismatch([(items[index], samples[index], target) for index, target in targets.items()]),
    }


def _hints(pairs: Sequence[tuple[Sample, Target]]) -> dict[str, float]:
    """How many tokens each candidate taught; over these tokens, the means of |log pi_T - log pi_old| and of
    the overlap of the student's top-K ids with the teacher's.
    """
    taught = [
        (sample.mask_of("opd"), target.hint_targets)
        for sample, target in pairs
        if target.hint_targets is not None
    ]
    if not taught:
        return {}
    chosen = torch.cat([hinted.hint_T[mask_T] for mask_T, hinted in taught])
    gaps = torch.cat([hinted.gap_T[mask_T] for mask_T, hinted in taught])
    counts = {
        f"hint_{hint}_tokens": float(count) for hint, count in enumerate(torch.bincount(chosen).tolist())
    }
    overlap = torch.cat([hinted.overlap_T[mask_T] for mask_T, hinted in taught])
    return {**counts, "teacher_gap": gaps.abs().mean().item(), "overlap": overlap.double().mean().item()}


def _mismatch(found: Sequence[tuple[Item, Sample, Target]]) -> dict[str, float]:
    """Mean and max |log pi_old - log pi_b| in nats, over turns that were sampled without truncation.

    `mismatch_fresh` is the mean over responses that these weights alone made. There engine and learner must
    agree; on older ones they differ, because the policy has moved.
    """
    parts = [
        (target.mismatch_T[sample.mask_T].abs().cpu(), is_fresh(item))
        for item, sample, target in found
        if target.mismatch_T is not None and not item.behaviour.truncated
    ]
    if not parts:
        return {}
    mismatch = torch.cat([gaps for gaps, _ in parts])
    metrics = {"mismatch_mean": mismatch.mean().item(), "mismatch_max": mismatch.max().item()}
    if fresh := [gaps for gaps, of_this_version in parts if of_this_version]:
        metrics["mismatch_fresh"] = torch.cat(fresh).mean().item()
    return metrics


def is_fresh(item: Item) -> bool:
    """Whether the version that is being updated sampled the whole response, and read the prompt too.

    A response that was under way at a swap keeps the keys and values of older weights.
    """
    return item.staleness == 0 and not item.behaviour.older_cache


def ratio(now_N: Tensor, sample: Sample, target: Target, *, of: int) -> dict[str, float]:
    """One sample's part of the batch's mean pi / pi_old and mean |log pi - log pi_old| of its tokens.

    `now_N` is log pi(y) of the tokens that train.
    """
    apart_N = now_N - target.old_T[sample.mask_T]
    return {
        "ratio_mean": apart_N.exp().mean().item() / of,
        "ratio_distance": apart_N.abs().mean().item() / of,
    }
