"""A model in half precision that computes in float32: its log-probs without intermediate rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from afterwit.weights.lora import twin

HALVES = (torch.bfloat16, torch.float16)

M = TypeVar("M", bound=nn.Module)


def widened(model: M) -> M:
    """A model with the same weights, in half precision, that computes in float32, and returns it.

    One block at a time has its weights widened, so that this costs the memory of a block and not of a model.
    A model in any other precision, or whose weights are in shards, is returned itself.
    """
    weights = list(model.parameters())
    if not all(type(weight.data) is Tensor for weight in weights) or not _halves(model):
        return model
    wide = twin(model, {})
    for block in _blocks(wide):
        if _halves(block):
            _widen_while_it_runs(block)
    return wide


def _halves(module: nn.Module) -> bool:
    return any(tensor.dtype in HALVES for tensor in (*module.parameters(), *module.buffers()))


def _widen_while_it_runs(block: nn.Module) -> None:
    narrow_ones: list[tuple[dict[str, Any], str, Any]] = []

    def widen(block: nn.Module, inputs: Any) -> None:
        for module in block.modules():
            kinds: tuple[dict[str, Any], dict[str, Any]] = (module._parameters, module._buffers)
            for named in kinds:
                for name, tensor in named.items():
                    if tensor is not None and tensor.dtype in HALVES:
                        narrow_ones.append((named, name, tensor))
                        wide = tensor.detach().float()
                        named[name] = nn.Parameter(wide, False) if named is module._parameters else wide

    def narrow(block: nn.Module, inputs: Any, output: Any) -> None:
        while narrow_ones:
            named, name, tensor = narrow_ones.pop()
            named[name] = tensor

    block.register_forward_pre_hook(widen)
    block.register_forward_hook(narrow, always_call=True)


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The elements of module lists, and other modules with weights of their own: together all weights,
    once."""
    for child in model.children():
        own = isinstance(child, nn.Linear | nn.Embedding) or not list(child.children())
        if isinstance(child, nn.ModuleList):
            yield from child
        elif own or next(child.parameters(recurse=False), None) is not None:
            yield child
        else:
            yield from _blocks(child)
