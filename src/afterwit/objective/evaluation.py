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
    chosen = settings_named(settings)
    batch = samples_named(arrays)
    leaves = [_floats(named["logits_current"]).detach().clone().requires_grad_() for named in batch]
    for named in batch:
        _check(named)
    samples, teachers = _samples(batch, chosen, running_mean)
    over = denominators(samples, chosen)
    losses = [
        _sample_loss(named, leaf, sample, hints, over, chosen)
        for named, leaf, sample, hints in zip(batch, leaves, samples, teachers, strict=True)
    ]
    return _evaluation(losses, leaves, as_tensors=isinstance(batch[0]["logits_current"], Tensor))


def _check(named: Mapping[str, Any]) -> None:
    """Refuse what would be misread later."""
    if not math.isfinite(_reward(named)):
        raise ValueError(f"a reward is {_reward(named)}: not finite")
    behaviour, tokens = named.get("behaviour"), len(named["ids"])
    if behaviour is not None and len(behaviour) != tokens:
        raise ValueError(f"{tokens} ids but {len(behaviour)} log-probs in behaviour")
    if behaviour is not None and not bool(_floats(behaviour).isfinite().all()):
        raise ValueError("behaviour holds log-probs that are not finite: nothing can be corrected by those")
    lengths = named.get("hint_lengths")
    if lengths is None:
        return
    if len(lengths) != _hints(named):
        raise ValueError(f"{_hints(named)} hints but {len(lengths)} lengths")
    if list(lengths) != sorted(lengths):
        raise ValueError(f"hints come shortest first, but their lengths are {tuple(lengths)}")


def _samples(
    batch: list[Mapping[str, Any]], settings: ObjectiveSettings, mean: float
) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """The samples without logits, and for each the hints whose teachers run."""
    carried = [_terms(named, settings) for named in batch]
    rewarded = [
        Rewarded(_reward(named), _group(named, batch)) if terms.rl else None
        for named, terms in zip(batch, carried, strict=True)
    ]
    found = advantages(rewarded, settings, mean=mean)
    teachers = [
        settings.hint_rule.teachers(_lengths(named), torch.as_tensor(named["ids"]).tolist())
        if terms.opd
        else ()
        for named, terms in zip(batch, carried, strict=True)
    ]
    return [_sample(*each) for each in zip(batch, found.values, teachers, strict=True)], teachers


def _group(named: Mapping[str, Any], batch: list[Mapping[str, Any]]) -> list[float]:
    """The rewards of all samples of the prompt."""
    if named.get("group") is None:
        return []
    return [_reward(other) for other in batch if other.get("group") == named["group"]]


def _terms(named: Mapping[str, Any], settings: ObjectiveSettings) -> Carried:
    """The terms that the sample carries and, if samples are routed, keeps."""
    facts = TurnFacts(reward=_reward(named), hints=_hints(named), tau=_temperature(named))
    # a term of weight 0 is evaluated as well, so that its value can be compared
    reads = replace(settings.reads, rl=settings.has_rl)
    return reads.learned(terms_of(facts), reward=facts.reward, confidence=_confidence(named))


def _confidence(named: Mapping[str, Any]) -> float | None:
    if named.get("behaviour") is None:
        return None
    return confidence(torch.as_tensor(named["behaviour"]).tolist(), (~_mask(named)).tolist())


def _sample(named: Mapping[str, Any], advantage: float | None, teachers: tuple[int, ...]) -> Sample:
    behaviour = named.get("behaviour")
    return Sample.sampled_at(
        _temperature(named),
        ids_T=torch.as_tensor(named["ids"]).long(),
        mask_T=_mask(named),
        behaviour_T=None if behaviour is None else _floats(behaviour),
        basis=named.get("basis") or "processed",
        advantage=advantage,
        hints=len(teachers),
    )


def _sample_loss(
    named: Mapping[str, Any],
    leaf: Tensor,
    sample: Sample,
    hints: tuple[int, ...],
    over: Denominators,
    settings: ObjectiveSettings,
) -> SampleLoss:
    old = named.get("logits_old")
    old_TV = leaf.detach() if old is None else _floats(old)
    same_shape(leaf, "old", old_TV)
    target = prepare(sample, old_TV, (_floats(named["logits_teacher"][hint]) for hint in hints), settings)
    base = named.get("logits_base")
    base_TV = None if base is None else _floats(base)
    return sample_loss(leaf, sample, target, over, settings, logits_reference_TV=base_TV)


def _evaluation(losses: list[SampleLoss], leaves: list[Tensor], *, as_tensors: bool) -> Evaluation:
    loss = torch.stack([part.loss for part in losses]).sum()
    gradients = torch.autograd.grad(loss, leaves)
    terms = {name: torch.stack([part.terms[name] for part in losses]).sum() for name in TERMS}

    def out(value: Tensor, dtype: torch.dtype = leaves[0].dtype) -> Any:
        value = value.detach().to(dtype)
        return value if as_tensors else value.numpy()[()]

    return Evaluation(
        loss=out(loss),
        terms={name: out(term) for name, term in terms.items()},
        gradients=[out(gradient, gradient.dtype) for gradient in gradients],
    )


def _reward(named: Mapping[str, Any]) -> float:
    reward = named.get("reward")
    return 0.0 if reward is None else float(reward)


def _temperature(named: Mapping[str, Any]) -> float:
    tau = named.get("tau")
    return 1.0 if tau is None else float(tau)


def _lengths(named: Mapping[str, Any]) -> Sequence[int]:
    """Characters of each hint; without them, hints that grow longer."""
    lengths = named.get("hint_lengths")
    return range(_hints(named)) if lengths is None else [int(length) for length in lengths]


def _hints(named: Mapping[str, Any]) -> int:
    teachers = named.get("logits_teacher")
    return 0 if teachers is None else len(teachers)


def _mask(named: Mapping[str, Any]) -> Tensor:
    if named.get("mask") is None:
        return torch.ones(len(named["logits_current"]), dtype=torch.bool)
    return torch.as_tensor(named["mask"]).bool()


def _floats(values: Any) -> Tensor:
    """A tensor as it is, an array copied, a list as the doubles that Python's floats are."""
    if isinstance(values, Tensor):
        return values
    return torch.tensor(values, dtype=None if hasattr(values, "dtype") else torch.float64)


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
