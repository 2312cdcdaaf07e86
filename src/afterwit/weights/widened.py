"""A model in half precision that computes in float32: its log-probs without intermediate rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

HALVES = (torch.bfloat16, torch.float16)


@contextmanager
def widened(model: nn.Module) -> Iterator[None]:
    """Within the body a model in half precision computes in float32, and returns it.

    One block at a time has its weights widened, so that this costs the memory of a block and not of a model.
    A model in any other precision, or whose weights are in shards, stays as it is.
    """
    if not all(type(weight.data) is Tensor for weight in model.parameters()):
        yield
        return
    with ExitStack() as hooks:
        for block in _blocks(model):
            if any(tensor.dtype in HALVES for tensor in (*block.parameters(), *block.buffers())):
                widen, narrow = _widening()
                hooks.callback(block.register_forward_pre_hook(widen).remove)
                hooks.callback(block.register_forward_hook(narrow, always_call=True).remove)
        yield


def _widening() -> tuple[Callable[..., None], Callable[..., None]]:
    """Two hooks: one widens the weights of a block before it runs, one puts them back."""
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

    return widen, narrow


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
