"""The model's head in the form that is fused with the loss."""

from __future__ import annotations

import logging

import torch
from torch import nn
from transformers import PreTrainedModel

from afterwit.fused_head.head import Head
from afterwit.fused_head.low_rank import LowRank
from afterwit.learner.scoring.rows import Row
from afterwit.learner.scoring.score import response_logits, response_states

CLOSE = 0.02
"""Share of the largest logit. Half precision differs from itself by less, another head by more."""
log = logging.getLogger(__name__)


def head_of(model: PreTrainedModel) -> Head:
    """The head, by its parameters and the config, with the LoRA that is active on it.

    ValueError if it is not a linear layer, or if its LoRA is more than two factors and a scale.
    """
    layer = model.get_output_embeddings()
    linear, low_rank = (layer, None) if type(layer) is nn.Linear else _adapted(layer)
    soft_cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return Head(weight_VD=linear.weight, bias_V=linear.bias, soft_cap=soft_cap, low_rank=low_rank)


def _adapted(layer: nn.Module) -> tuple[nn.Linear, LowRank | None]:
    """A linear layer and what PEFT adds to it; None if that is switched off."""
    from peft.tuners.lora import Linear  # importing takes seconds, and most heads have no LoRA

    if not isinstance(layer, Linear) or type(layer.base_layer) is not nn.Linear:
        raise ValueError(f"the head is a {type(layer).__name__}, not a Linear")
    if layer.merged:
        raise ValueError(f"adapters are merged into the head: {', '.join(layer.merged_adapters)}")
    active = [name for name in layer.active_adapters if name in layer.lora_A]
    if layer.disable_adapters or not active:
        return layer.base_layer, None
    if len(active) > 1:
        raise ValueError(f"the head has several adapters at once: {', '.join(active)}")
    (name,) = active
    dropout = getattr(layer.lora_dropout[name], "p", 0.0)
    if name in layer.lora_variant or layer.lora_bias[name] or dropout:
        raise ValueError("the head's adapter is more than two factors and a scale")
    down, up = (layer.get_parameter(f"{factor}.{name}.weight") for factor in ("lora_A", "lora_B"))
    return layer.base_layer, LowRank(down_RD=down, up_VR=up, scale=layer.scaling[name])


def fused_head(model: PreTrainedModel) -> Head | None:
    """The head if it gives the model's own logits, which is tested; else None, with a warning."""
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
    ours_TV = head.logits(response_states(model, [row]), head.buffer(len(theirs_TV)))
    apart = float((ours_TV - theirs_TV).abs().max())
    if not apart <= CLOSE * float(theirs_TV.abs().max()):
        raise ValueError(f"the model's logits are not those of its head: {apart} apart")
