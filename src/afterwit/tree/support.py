"""Which models can run packed rows: read from the config, then tested on a small tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.core.agreement import MULTIPLE
from afterwit.tree.attention import NAME
from afterwit.tree.feed import inputs
from afterwit.tree.pack import Path, pack

Widened = Callable[[PreTrainedModel], AbstractContextManager[None]]
ROWS = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 4), (0, 1, 2, 4, 3, 1), (0, 1, 5), (2, 1, 0))
"""A trunk, a branch, a branch on it, one beside it, and another tree."""
BY_LENGTH = ("dynamic", "longrope")
"""Kinds of rotary embedding that depend on the longest row of a pass."""
_known: WeakKeyDictionary[PreTrainedModel, str | None] = WeakKeyDictionary()


def unsupported_reason(
    model: PreTrainedModel, attention: str = NAME, *, widened: Widened = nullcontext
) -> str | None:
    """Why the model cannot run packed rows. None if it can; its attention is then set up for them.

    `attention` is the name of one that takes `tree=`. Within `widened` the model computes without rounding:
    packed rows of a model in half precision may be as far from that as single ones are, three times over.
    """
    if model not in _known:
        _known[model] = _reason_in_config(model) or _reason_in_test(model, attention, widened)
    return _known[model]


def _reason_in_config(model: PreTrainedModel) -> str | None:
    """What the config rules out."""
    config = model.config.get_text_config()
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    if kinds:
        return f"it has layers of {', '.join(kinds)}"
    window = getattr(config, "sliding_window", None)
    if not hasattr(config, "layer_types") and window and getattr(config, "use_sliding_window", True):
        return f"its attention has a window of {window} tokens"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in BY_LENGTH:
        return f"its rotary embedding is {rope['rope_type']}: it depends on the longest row of a pass"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention cannot be replaced"
    return None


def _reason_in_test(model: PreTrainedModel, attention: str, widened: Widened) -> str | None:
    """How packing changes the logits of `ROWS`; None if by no more than rounding."""
    before = model.config._attn_implementation
    alone = _alone(model)
    with widened(model):
        exact = _alone(model)
    packed = pack([Path(ids=ids, first=0) for ids in ROWS])
    model.set_attn_implementation(attention)
    try:
        logits_LV = _logits(model, inputs(packed, model.device))
        reason = _difference([logits_LV[at] for at in packed.at], alone, exact)
    except (RuntimeError, TypeError, ValueError) as error:  # a foreign model may raise anything here
        reason = f"packed rows fail: {error}"
    if reason is not None:
        model.set_attn_implementation(before)
    return reason


@torch.no_grad()
def _logits(model: PreTrainedModel, given: dict[str, Any]) -> Tensor:
    logits: Tensor = model(**given).logits[0]
    return logits


def _alone(model: PreTrainedModel) -> list[Tensor]:
    return [_logits(model, {"input_ids": torch.tensor([ids], device=model.device)}) for ids in ROWS]


def _difference(packed: Sequence[Tensor], alone: Sequence[Tensor], exact: Sequence[Tensor]) -> str | None:
    """What packed rows are off, if it is more than rounding: three times what single ones are off, where
    that was measured."""
    off, noise = _apart(packed, exact), _apart(alone, exact)
    rounding = torch.finfo(alone[0].dtype).eps ** 0.5 * max(float(each.abs().max()) for each in alone)
    if off <= (MULTIPLE * noise if noise else rounding):
        return None
    return f"packed rows give other logits than single ones: {off:.2g} off, single ones {noise:.2g}"


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True))
