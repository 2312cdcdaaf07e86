"""A model in half precision that computes in float32: its log-probs without intermediate rounding."""

from __future__ import annotations

from collections.abc import Iterator
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
            if any(weight.dtype in HALVES for weight in _tensors(block)):
                widening = _Widening(block)
                for handle in (
                    block.register_forward_pre_hook(widening.widen, with_kwargs=False),
                    block.register_forward_hook(widening.narrow, always_call=True),
                ):
                    hooks.callback(handle.remove)
        yield


class _Widening:
    """The weights of one block, widened while it runs."""

    def __init__(self, block: nn.Module) -> None:
        self._block = block
        self._narrow: list[tuple[dict[str, Any], str, Any]] = []

    def widen(self, block: nn.Module, inputs: Any) -> None:
        for module in block.modules():
            kinds: tuple[dict[str, Any], dict[str, Any]] = (module._parameters, module._buffers)
            for named in kinds:
                for name, tensor in named.items():
                    if tensor is not None and tensor.dtype in HALVES:
                        self._narrow.append((named, name, tensor))
                        wide = tensor.detach().float()
                        named[name] = nn.Parameter(wide, False) if named is module._parameters else wide

    def narrow(self, block: nn.Module, inputs: Any, output: Any) -> None:
        while self._narrow:
            named, name, tensor = self._narrow.pop()
            named[name] = tensor


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The elements of module lists, and other modules with weights of their own: together all weights,
    once."""
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif isinstance(child, nn.Linear | nn.Embedding) or not any(True for _ in child.children()):
            yield child
        else:
            if next(child.parameters(recurse=False), None) is not None:
                yield child
            else:
                yield from _blocks(child)


def _tensors(block: nn.Module) -> Iterator[Tensor]:
    yield from block.parameters()
    yield from block.buffers()
