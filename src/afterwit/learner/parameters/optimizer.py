"""AdamW over the master weights, and its state as tensors by name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

from afterwit.learner.parameters.masters import Masters
from afterwit.learner.settings import LearnerSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def build(masters: Masters, settings: LearnerSettings) -> AdamW:
    """AdamW. Weight decay applies to matrices, not to norms and biases.

    On a CPU the step reads and writes memory once (an eighth of the time); on a GPU torch chooses.
    """
    matrices = [parameter for parameter in masters.named.values() if parameter.dim() > 1]
    vectors = [parameter for parameter in masters.named.values() if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    once = all(parameter.device.type == "cpu" for parameter in masters.named.values()) or None
    return AdamW([group for group in groups if group["params"]], lr=settings.rate, betas=betas, fused=once)


def set_rate(optimizer: AdamW, rate: float) -> None:
    """Change the step size; the moments stay."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def state(optimizer: AdamW, masters: Masters) -> dict[str, Tensor]:
    """`<moment>.<parameter>` -> tensor; empty before the first step."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in masters.named.items()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


def restore(optimizer: AdamW, masters: Masters, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `state`; exact if the masters had the same precision."""
    for name, parameter in masters.named.items():
        if f"step.{name}" not in tensors:
            continue
        moments = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS}
        optimizer.state[parameter] = {
            moment: tensor if moment == "step" else tensor.to(parameter) for moment, tensor in moments.items()
        }


def gradient_norm(masters: Masters) -> Tensor:
    """The global 2-norm, without clipping; a DTensor if the gradients are."""
    return torch.nn.utils.get_total_norm([p.grad for p in masters.named.values() if p.grad is not None])


def number(norm: Tensor) -> float:
    """The norm as a number, in all processes."""
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def clip(masters: Masters, norm: Tensor, most: float) -> None:
    """Scale all gradients down to a global norm of `most`."""
    torch.nn.utils.clip_grads_with_norm_(masters.named.values(), most, norm)
