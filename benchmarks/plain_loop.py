"""An update as a plain training loop makes it, from the published description (arXiv:2603.10165) alone.

Sample by sample, row by row, whole logits: one pass for the old policy, one for each hint's teacher, one for
the base if it is needed, and one with a graph; autograd does the rest. Nothing here is ours, so it
is also an independent reference. RL, top-K OPD on the student's ids with one hint a sample, the KL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.batch import Item
from afterwit.learning.passes import Row
from afterwit.objective.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLoop:
    """`keep`: logits of the response's rows alone (`logits_to_keep`), not of the prompt's as well."""

    model: PreTrainedModel
    base: PreTrainedModel
    optimizer: torch.optim.Optimizer
    objective: ObjectiveSettings
    keep: bool

    def update(self, items: Sequence[Item]) -> float:
        """One optimiser step; returns the loss."""
        self.optimizer.zero_grad()
        total = self.gradient(items)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return total

    def gradient(self, items: Sequence[Item]) -> float:
        """The loss; its gradient is added to the model's."""
        total = 0.0
        for item in items:
            loss = self._loss(item) / len(items)
            loss.backward()
            total += loss.item()
        return total

    def _loss(self, item: Item) -> Tensor:
        """RL, OPD and the reference KL, each the mean over the response's tokens."""
        ids_T1 = torch.tensor(item.student.response, device=self.model.device)[:, None]
        old_T1, old_TK, ids_TK, teacher_TK = self._phase_one(item, ids_T1)
        behaviour_T1 = torch.tensor(item.behaviour.logprobs, device=old_T1.device)[:, None]
        weight_T1 = (old_T1 - behaviour_T1).exp().clamp(max=self.objective.is_cap)
        clip = self.objective.logprob_diff_clip
        advantage_TK = (teacher_TK - old_TK).clamp(-clip, clip) * old_TK.softmax(dim=1)
        now_TV = self._logprobs(self.model, item.student, item.behaviour.tau)
        rl_T1 = weight_T1 * self._surrogate(item.reward, now_TV.gather(1, ids_T1), old_T1)
        opd_TK = self._surrogate(advantage_TK, now_TV.gather(1, ids_TK), old_TK)
        loss = rl_T1.mean() + opd_TK.sum(dim=1).mean()
        if self.objective.beta:
            with torch.no_grad():
                base_TV = self._logprobs(self.base, item.student, item.behaviour.tau)
            loss = loss + self.objective.beta * (now_TV.exp() * (now_TV - base_TV)).sum(dim=1).mean()
        return loss

    @torch.no_grad()
    def _phase_one(self, item: Item, ids_T1: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The old log-probs of the sampled and of the top-K ids, these ids, and the teacher's log-probs.

        The teacher is the one whose own likeliest ids overlap most with the student's.
        """
        old_TV = self._logprobs(self.model, item.student, item.behaviour.tau)
        old_T1, ids_TK = old_TV.gather(1, ids_T1), old_TV.topk(self.objective.ids_kept).indices
        old_TK = old_TV.gather(1, ids_TK)
        del old_TV
        best, most = old_TK, -1
        for row in item.teachers:
            teacher_TV = self._logprobs(self.base, row, item.behaviour.tau)
            native_TK = teacher_TV.topk(ids_TK.shape[1]).indices
            overlap = int((ids_TK[:, :, None] == native_TK[:, None, :]).sum())
            if overlap > most:
                best, most = teacher_TV.gather(1, ids_TK), overlap
        return old_T1, old_TK, ids_TK, best

    def _surrogate(self, advantage: Tensor | float, now: Tensor, old: Tensor) -> Tensor:
        ratio = (now - old).exp()
        clipped = ratio.clamp(1 - self.objective.eps_lo, 1 + self.objective.eps_hi)
        return torch.maximum(-advantage * ratio, -advantage * clipped)

    def _logprobs(self, model: PreTrainedModel, row: Row, tau: float) -> Tensor:
        """Of every id at every token of the response, [T, V]; all logits there are take the temperature."""
        inputs = torch.tensor([[*row.prompt, *row.response]], device=model.device)
        kept = len(row.response) + 1 if self.keep else 0
        logits_LV = model(input_ids=inputs, logits_to_keep=kept, use_cache=False).logits[0].float() / tau
        return torch.log_softmax(logits_LV[-len(row.response) - 1 : -1], dim=-1)
