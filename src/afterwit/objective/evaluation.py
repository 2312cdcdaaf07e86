"""The outside door: named arrays in; the loss, its terms and its gradient out, by the code that trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afterwit.core.terms import Carried, TurnFacts, confidence, terms_of
from afterwit.core.turn import scoring_temperature
from afterwit.objective.advantage import advantages
from afterwit.objective.logprobs import same_shape
from afterwit.objective.named_inputs import samples_named, settings_named
from afterwit.objective.sample import Denominators, Sample, denominators
from afterwit.objective.sample_loss import sample_loss
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.shares import TERMS, SampleLoss
from afterwit.objective.target import prepare


class Evaluation(NamedTuple):
    """What `evaluate` returns: tensors for tensors, else NumPy arrays, in the dtype of the logits."""

    loss: Any
    terms: dict[str, Any]
    """Each of `TERMS` before its weight, 0 where no sample carries it: `rl`, `opd` (any distillation),
    `combine`, `entropy`, `reference_kl` (the anchor)."""
    gradients: list[Any]
    """d loss / d logits_current, [T, V] for each sample."""


def evaluate_batch(
    arrays: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    settings: ObjectiveSettings | Mapping[str, Any],
    *,
    running_mean: float = 0.0,
) -> Evaluation:
    """Evaluate a batch; `afterwit.objective.evaluate` states the arrays."""
    chosen = settings_named(settings)
    batch = samples_named(arrays)
    leaves = [_floats(named["logits_current"]).detach().clone().requires_grad_() for named in batch]
    samples = _samples(batch, chosen, running_mean)
    over = denominators(samples, chosen)
    shares = [
        _sample_loss(named, leaf, sample, over, chosen)
        for named, leaf, sample in zip(batch, leaves, samples, strict=True)
    ]
    return _evaluation(shares, leaves, as_tensors=isinstance(batch[0]["logits_current"], Tensor))


def _samples(batch: list[Mapping[str, Any]], settings: ObjectiveSettings, mean: float) -> list[Sample]:
    """The batch without its logits: which terms each sample carries, and its advantage."""
    carried = [_terms(named, settings) for named in batch]
    rewards = [
        float(named["reward"]) if terms.rl else None for named, terms in zip(batch, carried, strict=True)
    ]
    found = advantages(rewards, [named.get("group") for named in batch], settings, mean=mean)
    return [
        _sample(named, terms, advantage)
        for named, terms, advantage in zip(batch, carried, found.values, strict=True)
    ]


def _terms(named: Mapping[str, Any], settings: ObjectiveSettings) -> Carried:
    """What the sample carries and, where samples are routed, keeps."""
    reward = named.get("reward")
    facts = TurnFacts(
        reward=0.0 if reward is None else float(reward), hints=_hints(named), tau=_temperature(named)
    )
    # a term of weight 0 is evaluated as well, so that its value can be compared
    reads = replace(settings.reads, rl=settings.has_rl)
    return reads.learned(terms_of(facts), reward=facts.reward, confidence=_confidence(named))


def _temperature(named: Mapping[str, Any]) -> float:
    tau = named.get("tau")
    return 1.0 if tau is None else float(tau)


def _confidence(named: Mapping[str, Any]) -> float | None:
    if named.get("behaviour") is None:
        return None
    return confidence(torch.as_tensor(named["behaviour"]).tolist(), (~_mask(named)).tolist())


def _sample(named: Mapping[str, Any], terms: Carried, advantage: float | None) -> Sample:
    behaviour, lengths = _behaviour(named), named.get("hint_lengths") if terms.opd else None
    return Sample(
        ids_T=torch.as_tensor(named["ids"]).long(),
        mask_T=_mask(named),
        behaviour_T=behaviour,
        basis=named.get("basis") or "processed",
        tau=scoring_temperature(_temperature(named)),
        advantage=advantage,
        hints=_hints(named) if terms.opd else 0,
        hint_lengths=None if lengths is None else tuple(int(length) for length in lengths),
    )


def _behaviour(named: Mapping[str, Any]) -> Tensor | None:
    if named.get("behaviour") is None:
        return None
    behaviour_T = _floats(named["behaviour"])
    if not bool(behaviour_T.isfinite().all()):
        raise ValueError("behaviour holds log-probs that are not finite: nothing can be corrected by those")
    return behaviour_T


def _sample_loss(
    named: Mapping[str, Any], leaf: Tensor, sample: Sample, over: Denominators, settings: ObjectiveSettings
) -> SampleLoss:
    old = named.get("logits_old")
    old_TV = leaf.detach() if old is None else _floats(old)
    same_shape(leaf, "old", old_TV)
    teachers = (_floats(named["logits_teacher"][hint]) for hint in range(sample.hints))
    target = prepare(sample, old_TV, teachers, settings)
    base = named.get("logits_base")
    base_TV = None if base is None else _floats(base)
    return sample_loss(leaf, sample, target, over, settings, logits_base_TV=base_TV)


def _evaluation(shares: list[SampleLoss], leaves: list[Tensor], *, as_tensors: bool) -> Evaluation:
    loss = torch.stack([part.loss for part in shares]).sum()
    gradients = torch.autograd.grad(loss, leaves)
    terms = {name: torch.stack([part.terms[name] for part in shares]).sum() for name in TERMS}

    def out(value: Tensor, dtype: torch.dtype = leaves[0].dtype) -> Any:
        value = value.detach().to(dtype)
        return value if as_tensors else value.numpy()[()]

    return Evaluation(
        loss=out(loss),
        terms={name: out(term) for name, term in terms.items()},
        gradients=[out(gradient, gradient.dtype) for gradient in gradients],
    )


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
