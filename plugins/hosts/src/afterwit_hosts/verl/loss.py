"""The objective as a loss function of verl's.

verl calls it twice for each pass: with the logits, where the loss is made, and with what that returned.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensordict import TensorDict
from torch import Tensor
from torch.nn.functional import pad

from afterwit.api.learning import Progress, UpdateState, losses
from afterwit_hosts.verl.batch import ITEM, NO_ITEM

LOSS = "afterwit_loss"


class UpdateLoss:
    """The loss of one update's batch. `terms` are the parts of this rank in the loss and its terms so far."""

    def __init__(self, state: UpdateState, progress: Progress) -> None:
        self._state, self._progress = state, progress
        self.terms: Counter[str] = Counter()

    def __call__(
        self,
        *,
        data: TensorDict,
        student_logits: Tensor | None = None,
        model_output: dict[str, Tensor] | None = None,
        dp_group: object = None,
    ) -> Any:
        """With `student_logits` [1, N, V] of the N tokens of a pass: {LOSS: [1, N]}, whose sum is the loss.

        With `model_output`, which holds that again: (loss, metrics), as verl's engine takes them.
        """
        if student_logits is not None:
            return {LOSS: self._at_tokens(student_logits[0], data)[None]}
        if model_output is None:
            raise ValueError("verl called the loss without logits and without what they gave")
        # verl's gradients are means over the processes, and the parts of the loss add up
        return model_output[LOSS].values().sum() * data["dp_size"], {}

    def _at_tokens(self, logits_NV: Tensor, data: TensorDict) -> Tensor:
        """The loss of a pass [N], placed at the first token, since verl expects a number for each."""
        loss = self._part(logits_NV, data) + 0.0 * logits_NV[0, 0]
        self.terms.update({"loss": loss.item()})
        self._state.ranks.passed(self._progress)
        return pad(loss[None], (0, len(logits_NV) - 1))

    def _part(self, logits_NV: Tensor, data: TensorDict) -> Tensor:
        chosen, logits = [], []
        for item, start in zip(data[ITEM].tolist(), data["input_ids"].offsets().tolist(), strict=False):
            if item != NO_ITEM:
                row = self._state.items[item].student
                first = start + row.first
                chosen.append(item)
                logits.append(logits_NV[first : first + len(row.response)])
        loss, terms = losses(self._state, chosen, logits)
        self.terms.update(terms)
        return loss
