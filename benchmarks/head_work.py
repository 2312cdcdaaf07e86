"""One response with a reward and a hint, the head it is learned through, and several ways to do so."""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.fused_head.head import Head, HeadGradients, sizes_on
from afterwit.fused_head.loss import FusedLoss, Rows, ScoringInput, collect_rows, fused_loss, targets
from afterwit.objective.sample import Sample, Target, denominators, sample_loss
from afterwit.objective.settings import ObjectiveSettings

SETTINGS = ObjectiveSettings(beta=0.0)
"""RL and top-K OPD, as published: without the reference KL."""


class Work:
    """Random states and a random weight of the head."""

    def __init__(
        self,
        tokens: int,
        width: int,
        vocabulary: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        settings: ObjectiveSettings = SETTINGS,
    ) -> None:
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        self.settings = settings
        self.chunk = sizes_on(torch.device(device)).chunk
        self.head = Head(weight_VD=drawn(vocabulary, width).mul_(2 / width**0.5).to(device, dtype))
        self.gradient_VD = torch.zeros_like(self.head.weight_VD, dtype=self.head.dtype)
        same = self.head.dtype is dtype
        self.floor_VD = self.gradient_VD if same else torch.zeros_like(self.head.weight_VD)
        self.states_ND = drawn(tokens, width).to(device, dtype)
        self.taught_ND = self.states_ND + drawn(tokens, width).to(device, dtype)
        ids_T = torch.randint(vocabulary, (tokens,), generator=generator).to(device)
        self.sample = self._sample(ids_T, every=1)
        self.target = self.phase_one()

    def phase_one(self) -> Target:
        """The log-probs of the old policy and the teacher."""
        entry = ScoringInput(sample=self.sample, states_TD=self.states_ND, teachers=(self.taught_ND,))
        (target,) = targets(self.head, [entry], self.head, self.settings)
        return target

    @staticmethod
    def _sample(ids_T: Tensor, *, every: int) -> Sample:
        """A sample of which one in a number of tokens trains."""
        mask_T = torch.arange(len(ids_T), device=ids_T.device) % every == 0
        return Sample(ids_T=ids_T, mask_T=mask_T, behaviour_T=None, tau=1.0, advantage=1.0, hints=1)

    def rows(self, *, every: int = 1) -> Rows:
        sample = self._sample(self.sample.ids_T, every=every)
        return collect_rows([sample], [self.target], denominators([sample], self.settings), self.settings)

    def fused(self, rows: Rows) -> FusedLoss:
        """The loss and both gradients, ours."""
        gradients = HeadGradients(weight_VD=self.gradient_VD)
        return fused_loss(self.head, self.states_ND, rows, self.settings, gradients)

    def both_phases(self) -> FusedLoss:
        """The same, from what the old policy and the teacher say on."""
        self.target = self.phase_one()
        return self.fused(self.rows())

    def plain(self) -> tuple[Tensor, Tensor]:
        """Both gradients by autograd through whole logits."""
        states_ND, weight_VD = self.leaves()
        over = denominators([self.sample], self.settings)
        loss = sample_loss(states_ND @ weight_VD.t(), self.sample, self.target, over, self.settings).loss
        by_states_ND, by_weight_VD = torch.autograd.grad(loss, (states_ND, weight_VD))
        return by_states_ND, by_weight_VD

    def leaves(self) -> tuple[Tensor, Tensor]:
        """States and weight, to be differentiated by."""
        return self.states_ND.clone().requires_grad_(), self.head.weight_VD.detach().requires_grad_()

    def three_products(self, buffer_NV: Tensor) -> None:
        """The floor of the loss: logits, and back to states and weight, a chunk at a time."""
        for states_ND in self.states_ND.split(self.chunk):
            logits_NV = torch.mm(states_ND, self.head.weight_VD.t(), out=buffer_NV[: len(states_ND)])
            torch.mm(logits_NV, self.head.weight_VD)
            self.floor_VD.addmm_(logits_NV.t(), states_ND)

    def one_product(self, buffer_NV: Tensor) -> None:
        """The floor of scoring: logits, a chunk at a time."""
        for states_ND in self.states_ND.split(self.chunk):
            torch.mm(states_ND, self.head.weight_VD.t(), out=buffer_NV[: len(states_ND)])

    def buffer(self) -> Tensor:
        """For a chunk of logits, in the precision of the weight."""
        return self.states_ND.new_empty((self.chunk, len(self.head.weight_VD)))
