"""Master weights, which the optimiser moves: the model's own, or fp32 copies of rounded ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


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
