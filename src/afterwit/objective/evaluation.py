"""Named arrays in; the loss, its terms and its gradient out, by the code that trains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afterwit.objective.advantage import Denominators, advantages, denominators
from afterwit.objective.choices import TERMS, Rewarded
from afterwit.objective.logprobs import same_shape
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import SampleLoss, sample_loss
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import prepare
from afterwit.terms import Carried, TurnFacts, confidence, terms_of

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
    """Evaluate a batch; `afterwit.objective.evaluate` documents the arrays."""
    chosen, batch = settings_named(settings), [Arrays(named) for named in samples_named(arrays)]
    for each in batch:
        each.check()
    samples, hints = samples_of(batch, chosen, running_mean)
    over = denominators(samples, chosen)
    parts = [
        each.loss(sample, teachers, over, chosen)
        for each, sample, teachers in zip(batch, samples, hints, strict=True)
    ]
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


def samples_of(
    batch: Sequence[Arrays], settings: ObjectiveSettings, running_mean: float
) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """The samples without logits, and for each the hints whose teachers run."""
    carried = [each.terms(settings) for each in batch]
    rewarded = [
        Rewarded(each.reward, each.group(batch)) if terms.rl else None
        for each, terms in zip(batch, carried, strict=True)
    ]
    found = advantages(rewarded, settings, mean=running_mean)
    hints = [
        settings.hint_rule.teachers(each.lengths, each.ids_T.tolist()) if terms.opd else ()
        for each, terms in zip(batch, carried, strict=True)
    ]
    samples = [
        each.sample(advantage, len(teachers))
        for each, advantage, teachers in zip(batch, found.values, hints, strict=True)
    ]
    return samples, hints


class Arrays:
    """The named arrays of one sample."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = {name: value for name, value in named.items() if value is not None}
        self.leaf_TV = _floats(named["logits_current"]).detach().clone().requires_grad_()
        self.ids_T = torch.as_tensor(named["ids"]).long()
        self.reward = float(self.named.get("reward", 0.0))
        self.tau = float(self.named.get("tau", 1.0))
        self.hints = len(self.named.get("logits_teacher", ()))
        self.lengths = [int(length) for length in self.named.get("hint_lengths", range(self.hints))]
        self.mask_T = torch.as_tensor(self.named.get("mask", [True] * len(self.leaf_TV))).bool()
        self.behaviour_T = _floats(self.named["behaviour"]) if "behaviour" in self.named else None

    def check(self) -> None:
        """Refuse values that would be misread later."""
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

    def group(self, batch: Sequence[Arrays]) -> list[float]:
        """The rewards of all samples of the prompt."""
        name = self.named.get("group")
        return [] if name is None else [other.reward for other in batch if other.named.get("group") == name]

    def terms(self, settings: ObjectiveSettings) -> Carried:
        """The terms that the sample carries and, if samples are routed, keeps."""
        facts = TurnFacts(reward=self.reward, hints=self.hints, tau=self.tau)
        # a term of weight 0 is evaluated as well, so that its value can be compared
        reads = replace(settings.reads, rl=settings.has_rl)
        sure = None
        if self.behaviour_T is not None:
            sure = confidence(self.behaviour_T.tolist(), (~self.mask_T).tolist())
        return reads.learned(terms_of(facts), reward=self.reward, confidence=sure)

    def sample(self, advantage: float | None, hints: int) -> Sample:
        return Sample.sampled_at(
            self.tau,
            ids_T=self.ids_T,
            mask_T=self.mask_T,
            behaviour_T=self.behaviour_T,
            basis=self.named.get("basis") or "processed",
            advantage=advantage,
            hints=hints,
        )

    def loss(
        self, sample: Sample, hints: Sequence[int], over: Denominators, settings: ObjectiveSettings
    ) -> SampleLoss:
        old_TV = _floats(self.named.get("logits_old", self.leaf_TV.detach()))
        same_shape(self.leaf_TV, "old", old_TV)
        teachers = (_floats(self.named["logits_teacher"][hint]) for hint in hints)
        target = prepare(sample, old_TV, teachers, settings)
        base_TV = _floats(self.named["logits_base"]) if "logits_base" in self.named else None
        return sample_loss(self.leaf_TV, sample, target, over, settings, logits_reference_TV=base_TV)


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
    for name, our_name in ours.items():
        _refuse_unknown("setting", name, our_name, known)
    if len(set(ours.values())) < len(ours):
        raise ValueError(f"a setting is given twice among {', '.join(ours)}")
    return ObjectiveSettings(**{our_name: settings[name] for name, our_name in ours.items()})


def samples_named(arrays: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One mapping per sample, also from one of names to lists, where a number or `None` is every sample's."""
    samples = _transposed(arrays) if isinstance(arrays, Mapping) else list(arrays)
    if not samples:
        raise ValueError("there is no sample")
    for sample in samples:
        for name in sample:
            _refuse_unknown("array", name, name, ARRAYS)
        if sample.get("logits_current") is None:
            raise ValueError("a sample lacks logits_current")
    return samples


def _transposed(columns: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if columns.get("logits_current") is None:
        raise ValueError("the arrays lack logits_current")
    size = len(columns["logits_current"])
    rows: list[dict[str, Any]] = [{} for _ in range(size)]
    for name, column in columns.items():
        shared = column is None or isinstance(column, (int, float, str))
        if not shared and len(column) != size:
            raise ValueError(f"{size} samples but {len(column)} of {name}")
        for index, row in enumerate(rows):
            row[name] = column if shared else column[index]
    return list(rows)


def _refuse_unknown(what: str, given: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name in known:
        return
    nearest = get_close_matches(name, known, n=1, cutoff=0.0)
    raise ValueError(f"unknown {what} {given!r}; the nearest is {nearest[0]!r}")
