"""A teacher that follows the policy: the exponential mean of its weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from afterwit.learner.parameters.masters import Masters
from afterwit.weights.twin import twin


class Ema:
    """`model` is the policy with the mean of its weights. It shares what does not train.

    The mean is kept at the masters' precision; `model` holds it at the policy's. Under an adapter it is the
    mean of each factor. The product of the means is near the mean of the products, but not equal to it.
    """

    def __init__(self, policy: PreTrainedModel, start: Mapping[str, Tensor], decay: float) -> None:
        """`start` is the mean so far, by parameter. It is not copied."""
        self.named = dict(start)
        self._decay = decay
        own = dict(policy.named_parameters())
        self._rounded = {
            name: nn.Parameter(mean.to(own[name].dtype), requires_grad=False)
            for name, mean in self.named.items()
        }
        self.model = twin(policy, self._rounded)

    @torch.no_grad()
    def follow(self, masters: Masters) -> None:
        """After an update: mean = decay * mean + (1 - decay) * policy."""
        for name, mean in self.named.items():
            mean.mul_(self._decay).add_(masters.named[name], alpha=1 - self._decay)
            self._rounded[name].copy_(mean)
