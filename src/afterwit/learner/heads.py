"""The model's head, taken out of the model to be fused with the loss."""

from __future__ import annotations

import logging

import torch
from torch import nn
from transformers import PreTrainedModel

from afterwit.head.head import Head
from afterwit.learner.rows import Row
from afterwit.learner.score import response_logits, response_states

CLOSE = 0.02
"""Of the largest logit: within it half precision agrees with itself, and no other head does."""
log = logging.getLogger(__name__)


def head_of(model: PreTrainedModel) -> Head:
    """The head as its parameters and the config tell it. ValueError where it is no plain linear layer."""
    layer = model.get_output_embeddings()
    if type(layer) is not nn.Linear:
        raise ValueError(f"the head is a {type(layer).__name__}, not a Linear")
    soft_cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return Head(weight_VD=layer.weight, bias_V=layer.bias, soft_cap=soft_cap)


def fused_head(model: PreTrainedModel) -> Head | None:
    """The head, shown to give the model's own logits; None, with a warning, where it does not."""
    try:
        head = head_of(model)
        _check(head, model)
    except ValueError as error:
        log.warning("learner.head is plain from here on, which takes more memory and time: %s", error)
        return None
    return head


@torch.no_grad()
def _check(head: Head, model: PreTrainedModel) -> None:
    row = Row(prompt=(0,), response=(1, 2))
    (theirs_TV,) = response_logits(model, [row])
    ours_TV = head.logits(response_states(model, [row]), head.room(len(theirs_TV)))
    apart = float((ours_TV - theirs_TV).abs().max())
    if not apart <= CLOSE * float(theirs_TV.abs().max()):
        raise ValueError(f"the model's logits are not those of its head: {apart} apart")
