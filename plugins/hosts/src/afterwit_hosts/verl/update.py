"""An update's passes and its optimiser's step by verl's engine, which a learner calls in place of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn.functional import pad
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.utils.tensordict_utils import get_tensordict

from afterwit.api.learning import Phase, Progress, Row, UpdateState, losses, require_finite
from afterwit.api.settings import LearnerSettings
from afterwit_hosts.verl.policy import engine_in

LOSS = "afterwit_loss"

ITEM = "item"
"""The column with a row's item of the update."""
NO_ITEM = -1
"""In that column: a padding row, outside the loss."""
EMPTY_ROW = Row(prompt=(0,), response=(0,))


def epoch(
    state: UpdateState, settings: LearnerSettings, progress: Progress
) -> tuple[dict[str, float], float]:
    """The batch's loss terms, and the gradient's norm before clipping. UpdateRefused if they are not finite.

    verl skips the step if the gradient is not finite. If the loss alone is not, it has taken one: load the
    policy again, as after any error.
    """
    engine, ranks = engine_in(state.policy), state.ranks
    rows = rows_of(state)
    longest = max(ranks.every(max(len(row) for _, row in rows)))
    loss = UpdateLoss(state, progress)
    with ranks.in_lockstep(), engine.train_mode():
        found = engine.train_batch(batch_of(rows, max(longest, settings.pass_tokens)), loss)
    terms, norm = ranks.totals(loss.terms), float(found["metrics"]["grad_norm"])
    require_finite(terms["loss"], norm, state.policy)
    progress(Phase.STEPPED)
    return terms, norm


def rows_of(state: UpdateState) -> list[tuple[int, Row]]:
    """This rank's rows, each with its item; as many as any rank has: verl cuts all into as many passes."""
    own = [(item, state.items[item].student) for part in state.passes for item in part.chosen]
    most = max(state.ranks.every(len(own)))
    return [*own, *[(NO_ITEM, EMPTY_ROW)] * (most - len(own))]


def batch_of(rows: Sequence[tuple[int, Row]], limit: int) -> TensorDict:
    """The rows, each with its item, for passes of about `limit` tokens.

    verl returns the logits of all tokens at temperature 1; the objective applies the temperature.
    """
    ids = [torch.tensor((*row.prompt, *row.response)) for _, row in rows]
    trains = [torch.tensor([0] * len(row.prompt) + [1] * len(row.response)) for _, row in rows]
    return get_tensordict(
        {
            ITEM: torch.tensor([item for item, _ in rows]),
            "input_ids": _jagged(ids),
            "position_ids": _jagged([torch.arange(len(each)) for each in ids]),
            "loss_mask": _jagged(trains),
        },
        {
            "temperature": 1.0,
            "pad_mode": DatasetPadMode.NO_PADDING,
            "use_dynamic_bsz": True,
            "max_token_len_per_gpu": limit,
            "distillation_use_topk": True,
            "distillation_only": True,
        },
    )


def _jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class UpdateLoss:
    """The loss of one update's batch. `terms` are the parts of this rank in the loss and its terms so far.

    verl calls it twice for each pass: with the logits, where the loss is made, and with what that returned.
    """

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
