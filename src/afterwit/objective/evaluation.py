"""Named arrays in; the loss, its terms and its gradient out, by the code that trains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afterwit.objective.sample import Sample, advantages, denominators, prepare, sample_loss
from afterwit.objective.settings import TERMS, ObjectiveSettings, Rewarded
from afterwit.objective.terms import same_shape
from afterwit.turn import Basis
from afterwit.verdict import confidence, terms_of

ARRAYS = (
    "logits_current",
    "logits_old",
    "logits_teacher",
    "logits_base",
    "ids",
    "behaviour",
    "reward",
    "tau",
    "mask",
    "group",
    "basis",
    "hint_lengths",
)
SYMBOLS = {"c": "logprob_diff_clip", "c_h": "entropy_coef"}
"""Symbols of the algorithm page that are not a setting's name in lower case."""


class Evaluation(NamedTuple):
    """The result of `evaluate`: tensors for tensors, else NumPy arrays, in the dtype of the logits."""

    loss: Any
    terms: dict[str, Any]
    """Each of `TERMS` before its weight, 0 if no sample carries it: `rl`, `opd` (any distillation),
    `combine`, `entropy`, `reference_kl`."""
    gradients: list[Any]
    """d loss / d logits_current, [T, V] for each sample."""


def evaluate_batch(
    arrays: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    settings: ObjectiveSettings | Mapping[str, Any],
    *,
    running_mean: float,
) -> Evaluation:
    chosen, batch = settings_named(settings), [Arrays(named) for named in samples_named(arrays)]
    samples, hints = samples_of(batch, chosen, running_mean)
    over = denominators(samples, chosen)
    parts = []
    for each, sample, run in zip(batch, samples, hints, strict=True):
        old_TV = _floats(each.named.get("logits_old", each.leaf_TV.detach()))
        same_shape(each.leaf_TV, "old", old_TV)
        teachers = (_floats(each.named["logits_teacher"][hint]) for hint in run)
        target = prepare(sample, old_TV, teachers, chosen)
        base_TV = _floats(each.named["logits_base"]) if "logits_base" in each.named else None
        parts.append(sample_loss(each.leaf_TV, sample, target, over, chosen, logits_reference_TV=base_TV))
    loss = torch.stack([part.loss for part in parts]).sum()
    gradients = torch.autograd.grad(loss, [each.leaf_TV for each in batch])
    terms = {name: torch.stack([part.terms[name] for part in parts]).sum() for name in TERMS}
    as_tensors = isinstance(batch[0].named["logits_current"], Tensor)

    def out(value: Tensor, dtype: torch.dtype = batch[0].leaf_TV.dtype) -> Any:
        value = value.detach().to(dtype)
        return value if as_tensors else value.numpy()[()]

    return Evaluation(
        loss=out(loss),
        terms={name: out(term) for name, term in terms.items()},
        gradients=[out(gradient, gradient.dtype) for gradient in gradients],
    )


class Arrays:
    """The named arrays of one sample. ValueError for values that would be misread later."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = given = {name: value for name, value in named.items() if value is not None}
        self.leaf_TV = _floats(named["logits_current"]).detach().clone().requires_grad_()
        self.ids_T = torch.as_tensor(named["ids"]).long()
        self.reward, self.tau = float(given.get("reward", 0.0)), float(given.get("tau", 1.0))
        self.hints = len(given.get("logits_teacher", ()))
        self.lengths = [int(length) for length in given.get("hint_lengths", range(self.hints))]
        self.mask_T = torch.as_tensor(given.get("mask", [True] * len(self.leaf_TV))).bool()
        self.behaviour_T = _floats(given["behaviour"]) if "behaviour" in given else None
        if not math.isfinite(self.reward):
            raise ValueError(f"a reward is {self.reward}: not finite")
        if self.behaviour_T is not None:
            if len(self.behaviour_T) != len(self.ids_T):
                raise ValueError(f"{len(self.ids_T)} ids but {len(self.behaviour_T)} log-probs in behaviour")
            if not bool(self.behaviour_T.isfinite().all()):
                raise ValueError(
                    "behaviour holds log-probs that are not finite: nothing can be corrected by those"
                )
        if len(self.lengths) != self.hints:
            raise ValueError(f"{self.hints} hints but {len(self.lengths)} lengths")
        if self.lengths != sorted(self.lengths):
            raise ValueError(f"hints come shortest first, but their lengths are {tuple(self.lengths)}")


def samples_of(
    batch: Sequence[Arrays], settings: ObjectiveSettings, running_mean: float
) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """The samples without logits, and for each the hints whose teachers run."""
    # a term of weight 0 is evaluated as well, so that its value can be compared
    reads = replace(settings.reads, rl=settings.has_rl)
    rewarded, hints = list[Rewarded | None](), list[tuple[int, ...]]()
    for each in batch:
        sure = None
        if each.behaviour_T is not None:
            sure = confidence(each.behaviour_T.tolist(), (~each.mask_T).tolist())
        allowed = terms_of(reward=each.reward, hints=each.hints, tau=each.tau)
        carried = reads.learned(allowed, reward=each.reward, confidence=sure)
        prompt = each.named.get("group")
        group = [other.reward for other in batch if prompt is not None and other.named.get("group") == prompt]
        rewarded.append(Rewarded(each.reward, group) if carried.rl else None)
        hints.append(settings.hint_rule.teachers(each.lengths, each.ids_T.tolist()) if carried.opd else ())
    found = advantages(rewarded, settings, mean=running_mean)
    samples = [
        Sample.sampled_at(
            each.tau,
            ids_T=each.ids_T,
            mask_T=each.mask_T,
            behaviour_T=each.behaviour_T,
            basis=Basis(each.named.get("basis") or Basis.PROCESSED),
            advantage=advantage,
            hints=len(run),
        )
        for each, advantage, run in zip(batch, found.values, hints, strict=True)
    ]
    return samples, hints


def _floats(values: Any) -> Tensor:
    """A tensor as it is, an array copied, a list as the doubles that Python's floats are."""
    if isinstance(values, Tensor):
        return values
    return torch.tensor(values, dtype=None if hasattr(values, "dtype") else torch.float64)


def settings_named(settings: ObjectiveSettings | Mapping[str, Any]) -> ObjectiveSettings:
    """Settings from a mapping such as `{"w_RL": 0, "K": 8, "C": 0}`; case does not matter."""
    if isinstance(settings, ObjectiveSettings):
        return settings
    known = [field.name for field in fields(ObjectiveSettings)]
    ours = {name: SYMBOLS.get(name.lower(), name.lower()) for name in settings}
    _refuse_unknown("setting", ours, known)
    if len(set(ours.values())) < len(ours):
        raise ValueError(f"a setting is given twice among {', '.join(ours)}")
    return ObjectiveSettings(**{our_name: settings[name] for name, our_name in ours.items()})


def samples_named(arrays: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One mapping per sample, also from one of names to lists, where a number or `None` is every sample's."""
    if isinstance(arrays, Mapping):
        if (first := arrays.get("logits_current")) is None:
            raise ValueError("the arrays lack logits_current")
        columns = {}
        for name, column in arrays.items():
            shared = column is None or isinstance(column, (int, float, str))
            columns[name] = [column] * len(first) if shared else column
            if len(columns[name]) != len(first):
                raise ValueError(f"{len(first)} samples but {len(column)} of {name}")
        arrays = [{name: column[at] for name, column in columns.items()} for at in range(len(first))]
    if not arrays:
        raise ValueError("there is no sample")
    for sample in arrays:
        _refuse_unknown("array", {name: name for name in sample}, ARRAYS)
        if sample.get("logits_current") is None:
            raise ValueError("a sample lacks logits_current")
    return list(arrays)


def _refuse_unknown(what: str, given: Mapping[str, str], known: Sequence[str]) -> None:
    """ValueError for a name that, as we call it, is not known."""
    for name, ours in given.items():
        if ours not in known:
            nearest = get_close_matches(ours, known, n=1, cutoff=0.0)
            raise ValueError(f"unknown {what} {name!r}; the nearest is {nearest[0]!r}")
