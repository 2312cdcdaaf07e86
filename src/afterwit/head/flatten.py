"""Samples, whose hidden states lie one after the other in a pass, become its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from afterwit.head.rows import Rows, Taught, blank, chosen, joined
from afterwit.objective.sample import Denominators, Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target


def turn_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows of turns. ValueError where a sample carries a term that `over` does not count."""
    parts = [_taught(*pair, over, settings) for pair in zip(samples, targets, strict=True)]
    weights = [
        _spread(sample.mask_T, over.samples, part.old_N) for sample, part in zip(samples, parts, strict=True)
    ]
    taus = [torch.full_like(part.old_N, sample.tau) for sample, part in zip(samples, parts, strict=True)]
    return _live([sample.mask_T for sample in samples], taus, weights, joined(_with_kept(parts)))


def memory_rows(
    masks: Sequence[Tensor], taus: Sequence[float], over: Denominators, dtype: torch.dtype
) -> Rows:
    """The rows of memory samples."""
    if over.memory < 1:
        raise ValueError(f"{len(masks)} memory samples, but their denominator is {over.memory}")
    each_tau = [torch.full_like(mask_T, tau, dtype=dtype) for mask_T, tau in zip(masks, taus, strict=True)]
    weights = [_spread(mask_T, over.memory, tau_T) for mask_T, tau_T in zip(masks, each_tau, strict=True)]
    return _live(masks, each_tau, weights, None)


def _live(
    masks: Sequence[Tensor], taus: Sequence[Tensor], weights: Sequence[Tensor], taught: Taught | None
) -> Rows:
    """The rows that train of all these."""
    at_N = torch.cat(list(masks)).nonzero().squeeze(-1)
    tau_N, whole_N = torch.cat(list(taus))[at_N], torch.cat(list(weights))[at_N]
    return Rows(at_N=at_N, tau_N=tau_N, whole_N=whole_N, taught=chosen(taught, at_N))


def _taught(sample: Sample, target: Target, over: Denominators, settings: ObjectiveSettings) -> Taught:
    old_T, lesson = target.old_T, target.lesson
    rl = sample.advantage is not None and settings.has_rl
    by_token = lesson is not None and settings.objective == "token_opd"
    one_T, none_T = torch.ones_like(old_T), torch.zeros_like(old_T)
    return Taught(
        ids_N=sample.ids_T,
        old_N=old_T,
        correction_N=target.weight_T if rl or by_token else one_T,
        advantage_N=torch.full_like(old_T, sample.advantage or 0.0),
        gap_N=none_T if lesson is None else lesson.gap_T,
        rl_N=_spread(sample.mask_T, _counted("rl", over.rl), old_T) if rl else none_T,
        opd_N=none_T if lesson is None else _spread(sample.mask_T, _counted("opd", over.opd), old_T),
        kept=None if lesson is None or by_token else lesson.kept,
    )


def _with_kept(parts: Sequence[Taught]) -> list[Taught]:
    """All with kept ids if any has them; those of a sample without a lesson teach nothing."""
    kept = next((part.kept for part in parts if part.kept is not None), None)
    return [part if part.kept else replace(part, kept=blank(kept, len(part.ids_N))) for part in parts]


def _spread(mask_T: Tensor, over: int, like_T: Tensor) -> Tensor:
    """The weight of each token in the mean over those that train, divided by the term's denominator."""
    return mask_T.to(like_T.dtype) / (int(mask_T.sum()) * over)


def _counted(term: str, over: int) -> int:
    if over < 1:
        raise ValueError(f"a sample carries {term}, but its denominator is {over}")
    return over
