"""An update that aims at a share of the way to the teacher, within a bound on the KL to where it began.

The size of a step of AdamW says little about what it achieves: with the same rate one update of SmolLM2-135M
went a tenth of the way and the next one half. So each step is measured on the batch itself, in one forward
pass: a step that falls short is followed by another one, and one that goes too far is taken back in part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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

MOST_STEPS = 4
"""Steps of an update at most: the later ones of a batch teach it by heart."""
CLOSE = 0.1
"""A share that is above the aim by no more than this part of it is let be."""
LOOKS = 3
"""Lengths that are tried of a step that was too long."""
INSIDE = 0.9
"""A step that broke the bound is shortened to this part of it, so that it need not be shortened again."""


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


def kept(before: Moved, after: Moved, *, share: float, kl: float) -> float:
    """The part of a step, from `before` to `after`, that ends at the share and within the KL: 1 if all of it
    does. The share grows with the step, the KL with its square."""
    part, start = 1.0, before.share or 0.0
    if after.share is not None and after.share > (1 + CLOSE) * share:
        part = (share - start) / (after.share - start)
    if after.kl > kl:
        least = math.sqrt(before.kl)
        part = min(part, (math.sqrt(INSIDE * kl) - least) / (math.sqrt(after.kl) - least))
    return max(0.0, part)


def aimed(state: UpdateState, settings: LearnerSettings, step: Callable[[], None]) -> dict[str, float]:
    """Go on from the first step of an update, which has been taken, until the batch is at the aim.

    `step` takes one more. Returns the steps, and how far they went.
    """
    at, part, steps = *_within(state, settings, Moved(share=None, kl=0.0)), 1
    while part == 1.0 and steps < MOST_STEPS and _has_room(at, steps, settings):
        step()
        steps += 1
        at, part = _within(state, settings, at)
    return {"steps": float(steps), "last_step": part, "update_kl": at.kl}


def _has_room(at: Moved, steps: int, settings: LearnerSettings) -> bool:
    """Whether the aim is further on, and one more step like these would stay within the bound."""
    fits = at.kl * ((steps + 1) / steps) ** 2 <= settings.target_kl
    return at.share is not None and fits and not _near(at.share, settings)


def _near(share: float | None, settings: LearnerSettings) -> bool:
    """Whether a share is at the aim, or so little below that nothing is gained by another look."""
    return share is not None and share >= (1 - CLOSE) * settings.target_share


def _within(state: UpdateState, settings: LearnerSettings, before: Moved) -> tuple[Moved, float]:
    """Take back as much of the last step as goes beyond the aim or the bound: where the policy is then, and
    the part of the step that was kept.

    By interpolation between a part of the step that goes beyond, and one that does not: at first none of it.
    """
    fits = partial(kept, share=settings.target_share, kl=settings.target_kl)
    part, now = 1.0, read(state)
    if fits(before, now) == 1.0:
        return now, part
    low, at_low, high, at_high = 0.0, before, part, now
    for _ in range(LOOKS):
        between = low + (high - low) * fits(at_low, at_high)
        rescale(state, part, between)
        part, now = between, read(state)
        if fits(at_low, now) < 1.0:
            high, at_high = part, now
        elif now.kl >= settings.target_kl / 2 or _near(now.share, settings):
            return now, part
        else:
            low, at_low = part, now
    if part != low:
        rescale(state, part, low)
        part, now = low, read(state)
    return now, part


@torch.no_grad()
def read(state: UpdateState) -> Moved:
    """How far the policy has moved by now, by one forward pass over the batch; fills `state.now`."""
    own = sorted(state.targets)
    rows = [(state.items[index].student, state.samples[index].tau) for index in own]
    found = response_logprobs(state.policy, rows, state.limit, state.packing, state.ranks, fused=state.fused)
    state.now = dict(zip(own, found, strict=True))
    return moved(state)


def rescale(state: UpdateState, was: float, part: float) -> None:
    """Make AdamW's last step, of which this part `was` taken, this `part` of itself."""
    _rescale(state.policy.optimizer, was, part)
    state.policy.masters.publish()


@torch.no_grad()
def _rescale(optimizer: AdamW, was: float, part: float) -> None:
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
            parameter.add_(step, alpha=part - was)
