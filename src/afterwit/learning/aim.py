"""An update that aims at a share of the way to the teacher, within a bound on the KL to where it began.

The size of a step of AdamW says little about what it achieves: at one rate an update of SmolLM2-135M went a
tenth of the way and the next one a third. So the step is measured on the batch itself, in one forward pass:
one that falls short is made longer, and one that goes too far shorter. Its direction stays. A second step on
the same batch would go further too, but taught less of it: at equal rates two steps reached .47 of a
preference where one reached .58.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import AdamW

from afterwit.learning.metrics import response_logprobs
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import Target

if TYPE_CHECKING:
    from afterwit.learning.update import UpdateState

CLOSE = 0.1
"""A share this part of the aim below or above it is at the aim."""
LONGEST = 8.0
"""The most by which a step is made longer."""
REACH = 0.5
"""A step is made longer up to this part of the bound on the KL: what it does there is foreseen only."""
INSIDE = 0.9
"""A step that broke the bound is shortened to this part of it, so that it need not be shortened again."""
LOOKS, LENGTHENED = 6, 2
"""Times that a step gets another length, and a greater one. If it goes too far then, none of it is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How far an update has moved the policy, on the tokens of its batch."""

    share: float | None
    """Of the way to the teacher; None: no turn was taught, or no teacher wanted a change."""
    kl: float
    """Nats a token from the policy at the start, to second order."""


def moved(state: UpdateState) -> Moved:
    """How far the policy has moved, by what was read of the batch after the last step."""
    parts = {
        index: item_moved(now_T, state.samples[index], state.targets[index])
        for index, now_T in (state.now or {}).items()
    }
    return mean(list(state.ranks.gathered(parts).values()))


def mean(items: Sequence[Mapping[str, float]]) -> Moved:
    """Of several items, each as `item_moved` has it."""
    total = Counter[str]()
    for each in items:
        total.update(each)
    share = total["along"] / total["wanted"] if total["wanted"] else None
    return Moved(share=share, kl=total["kl"] / max(1, len(items)))


def item_moved(now_T: Tensor, sample: Sample, target: Target) -> dict[str, float]:
    """One sample's part: with d = log pi - log pi_old and the teacher's gap g of the sampled tokens, the
    means of d g and g^2 over the tokens that are taught, and of d^2 / 2 over those that train.

    The share is sum(d g) / sum(g^2): the least-squares factor of the teacher's changes that the policy made,
    to which changes that have nothing to do with the teacher add nothing. d^2 / 2 is KL(pi_old || pi) to
    second order, with less variance than -d (Schulman 2020, "Approximating KL Divergence", k2).
    """
    apart_T = (now_T - target.tokens.old_N).double()
    found = {"kl": _mean(apart_T**2 / 2, sample.mask_T)}
    if target.hint_T is not None:
        gap_T, mask_T = target.tokens.gap_N.double(), sample.mask_of("opd")
        found |= {"along": _mean(apart_T * gap_T, mask_T), "wanted": _mean(gap_T**2, mask_T)}
    return found


def _mean(values_T: Tensor, mask_T: Tensor) -> float:
    return float(values_T[mask_T].mean()) if mask_T.any() else 0.0


def factor(at: Moved, *, share: float, kl: float, longest: float = LONGEST) -> float:
    """By how much to lengthen a step that leads there, so that it leads to the share: `longest` at most; 1 if
    it is near, or if there is no way or no room. The share grows with the step, the KL with its square."""
    if at.share is None or not 0 < at.share < (1 - CLOSE) * share:
        return 1.0
    room = math.sqrt(REACH * kl / at.kl) if at.kl else math.inf
    return max(1.0, min(share / at.share, longest, room))


def kept(at: Moved, *, share: float, kl: float) -> float:
    """The part of a step that leads there to keep, so that it leads no further than the share and the KL."""
    part = 1.0
    if at.share is not None and at.share > (1 + CLOSE) * share:
        part = share / at.share
    return min(part, math.sqrt(INSIDE * kl / at.kl)) if at.kl > kl else part


def aimed(state: UpdateState, settings: LearnerSettings) -> dict[str, float]:
    """Lengthen or shorten the step that was just taken until it is at the aim, and within the bound.

    Returns how long it was made, and how far it went. Within the bound it is as measured, not as foreseen.
    """
    share, kl = settings.target_share, settings.target_kl
    length, now = 1.0, read(state)
    for look in range(LOOKS):
        change = kept(now, share=share, kl=kl)
        if look < LENGTHENED:
            change *= factor(now, share=share, kl=kl, longest=LONGEST / length)
        if change == 1.0:
            break
        rescale(state, length, length * change)
        length, now = length * change, read(state)
    if kept(now, share=share, kl=kl) < 1.0:
        rescale(state, length, 0.0)
        length, now = 0.0, read(state)
    return {"step_length": length, "update_kl": now.kl}


@torch.no_grad()
def read(state: UpdateState) -> Moved:
    """How far the policy has moved by now, by one forward pass over the batch; fills `state.now`."""
    own = sorted(state.targets)
    rows = [(state.items[index].student, state.samples[index].tau) for index in own]
    found = response_logprobs(state.policy, rows, state.limit, state.packing, state.ranks, fused=state.fused)
    state.now = dict(zip(own, found, strict=True))
    return moved(state)


def rescale(state: UpdateState, was: float, length: float) -> None:
    """Make AdamW's last step, which `was` so many times as long as its rate, this `length`."""
    stretch(state.policy.optimizer, was, length)
    state.policy.masters.publish()


@torch.no_grad()
def stretch(optimizer: AdamW, was: float, length: float) -> None:
    """The step is `-rate (decay * weight + m / (sqrt(v) + eps))` with the weight before it, which follows
    from the one after it: no copy of the weights is needed."""
    for group in optimizer.param_groups:
        rate, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
        for parameter in group["params"]:
            if parameter not in optimizer.state:
                continue
            moments = optimizer.state[parameter]
            count = float(moments["step"])
            mean = moments["exp_avg"] / (1 - beta1**count)
            scale = (moments["exp_avg_sq"] / (1 - beta2**count)).sqrt_().add_(group["eps"])
            step = mean.div_(scale).add_(parameter, alpha=decay).mul_(-rate / (1 - was * rate * decay))
            parameter.add_(step, alpha=length - was)
