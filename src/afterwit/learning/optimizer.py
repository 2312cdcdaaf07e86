"""AdamW over the master weights, and its state as tensors by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

from afterwit.learning.settings import LearnerSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
MASTER = "master."
"""Prefix of a master weight in the state."""


def adamw(masters: Masters, settings: LearnerSettings) -> AdamW:
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


def moments(optimizer: AdamW, masters: Masters) -> dict[str, Tensor]:
    """`<moment>.<parameter>` -> tensor; empty before the first step."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in masters.named.items()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


def restore_moments(optimizer: AdamW, masters: Masters, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `moments`; exact if the masters had the same precision."""
    for name, parameter in masters.named.items():
        if f"step.{name}" not in tensors:
            continue
        kept = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS}
        optimizer.state[parameter] = {
            moment: tensor if moment == "step" else tensor.to(parameter) for moment, tensor in kept.items()
        }


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def gradient_norm(masters: Masters) -> Tensor:
    """The global 2-norm, without clipping; a DTensor if the gradients are."""
    return torch.nn.utils.get_total_norm([p.grad for p in masters.named.values() if p.grad is not None])


def as_float(norm: Tensor) -> float:
    """The norm as a number, in all processes."""
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def clip_gradients(masters: Masters, norm: Tensor, most: float) -> None:
    """Scale all gradients down to a global norm of `most`."""
    torch.nn.utils.clip_grads_with_norm_(masters.named.values(), most, norm)


class Masters:
    """The model's parameters that train, by name, at the optimiser's precision.

    A rounded parameter adds each gradient to its master as soon as it is complete, so that micro-batches add
    up in fp32. `publish` copies the masters back into the model.
    """

    def __init__(self, model: nn.Module, precise: Mapping[str, Tensor] | None = None) -> None:
        """`precise` are the masters' values; None: the model's own parameters are the masters."""
        self._model = {name: own for name, own in model.named_parameters() if own.requires_grad}
        self.separate = precise is not None
        self.named: dict[str, nn.Parameter] = self._model
        if precise is not None:
            self.named = {
                name: nn.Parameter(precise[name].to(own.device)) for name, own in self._model.items()
            }
            for name, own in self._model.items():
                hook = _hand_over(self.named[name])
                own.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def gradient(self, own: Tensor | None) -> Tensor | None:
        """The tensor in which a parameter's gradient adds up; None if the parameter is frozen."""
        name = next((name for name, parameter in self._model.items() if parameter is own), None)
        if own is None or name is None or not own.requires_grad:
            return None
        master = self.named[name]
        if master.grad is None:
            master.grad = torch.zeros_like(master)
        return master.grad

    def clear(self) -> None:
        """Forget all gradients."""
        for parameter in self.named.values():
            parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the model."""
        if self.separate:
            for name, own in self._model.items():
                own.copy_(self.named[name])


def _hand_over(master: nn.Parameter) -> Callable[[Tensor], None]:
    def hook(own: Tensor) -> None:
        if own.grad is None:
            raise ValueError("a parameter's gradient is missing after it was computed")
        gradient = own.grad.to(master.dtype)
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
        own.grad = None

    return hook
